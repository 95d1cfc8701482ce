// Deadlines and stopwatches: nothing in the library waits without one.
#pragma once

#include <chrono>

namespace rlalgo::os {

using SteadyTime = std::chrono::steady_clock::time_point;

// Seconds since construction.
class Stopwatch {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  SteadyTime start_ = std::chrono::steady_clock::now();
};

// A point in time after which a wait must give up.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : at_(std::chrono::steady_clock::now() +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))) {}
  [[nodiscard]] bool passed() const { return std::chrono::steady_clock::now() >= at_; }
  // Whole milliseconds left, at least 0 (the unit of poll(2)).
  [[nodiscard]] int milliseconds_left() const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(at_ - std::chrono::steady_clock::now());
    return left.count() > 0 ? static_cast<int>(left.count()) : 0;
  }

 private:
  SteadyTime at_;
};

}  // namespace rlalgo::os
