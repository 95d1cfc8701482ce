// What accompanies a policy through training and has a state of its own: a reference that follows it, a controller.
//
// Called after every optimizer step, in the order of Parts::companions; saved into and restored from every checkpoint.
// Evaluation never touches it.
#pragma once

#include <cstdint>
#include <filesystem>

#include <rlalgo/core/metrics.hpp>

namespace rlalgo::trainer {

class Companion {
 public:
  Companion() = default;
  Companion(const Companion&) = delete;
  Companion& operator=(const Companion&) = delete;
  virtual ~Companion() = default;

  // `step` is 1-based: the number of updates the policy has seen. `metrics` are the step's and may be added to.
  virtual void after_step(std::int64_t step, core::Metrics& metrics) = 0;
  virtual void save(const std::filesystem::path& directory) const = 0;
  virtual void restore(const std::filesystem::path& directory) = 0;
};

}  // namespace rlalgo::trainer
