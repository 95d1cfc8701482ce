// Waiting with a deadline for a call that has none.
#pragma once

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include <rlalgo/distributed/detail/group_failure.hpp>

namespace rlalgo::distributed::detail {

// What `act` returns. Where it does not come back in time it is left behind on its thread, with all that it holds: a
// store answers as slowly as the process that has it.
template <class F>
auto within(double seconds, const std::string& what, F act) {
  using Result = decltype(act());
  const auto done = std::make_shared<std::promise<Result>>();
  std::future<Result> result = done->get_future();
  std::thread([done, act = std::move(act)]() mutable {
    try {
      if constexpr (std::is_void_v<Result>) {
        act();
        done->set_value();
      } else {
        done->set_value(act());
      }
    } catch (...) {
      done->set_exception(std::current_exception());
    }
  }).detach();
  if (result.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready)
    group_failed(what, "the process that has the store does not answer", seconds);
  return result.get();
}

}  // namespace rlalgo::distributed::detail
