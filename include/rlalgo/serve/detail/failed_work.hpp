// What work that failed, or was not done in time, is answered with.
#pragma once

#include <exception>
#include <string>

#include <rlalgo/core/error.hpp>

namespace rlalgo::serve::detail {

[[nodiscard]] inline std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "an unknown error";
  }
}

[[nodiscard]] inline core::Error failed_step(const std::string& found) {
  return core::Error("serve", 15,
                     {.what = "a step of the engine failed, and the requests in it with it", .found = found});
}

[[nodiscard]] inline core::Error dead_device(const std::string& found) {
  return core::Error("serve", 33,
                     {.what = "the device computes nothing any more in this process",
                      .found = found,
                      .remedy = "start the server again; CUDA_LAUNCH_BLOCKING=1 names the kernel that failed first"});
}

[[nodiscard]] inline core::Error late_work(double seconds) {
  return core::Error("serve", 14,
                     {.what = "the request was not done in time",
                      .found = "more than " + std::to_string(seconds) + " seconds",
                      .remedy = "ask for fewer tokens, or raise the limit"});
}

[[nodiscard]] inline core::ErrorText late_call(double seconds) {
  return {.what = "the engine did not take a call in time",
          .found = "more than " + std::to_string(seconds) + " seconds"};
}

}  // namespace rlalgo::serve::detail
