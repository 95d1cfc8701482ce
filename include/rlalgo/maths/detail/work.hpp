// What reading or comparing answers may cost: a budget of small operations for each, instead of math-verify's seconds,
// so that a reward does not depend on how busy the machine is.
//
// The budget in force is the thread's; without one (in a test of a part) nothing is counted.
#pragma once

#include <cstddef>
#include <stdexcept>

namespace rlalgo::maths::detail {

// Leaves parsing and comparing; answer_impl.hpp catches it.
struct TooMuchWork : std::runtime_error {
  TooMuchWork() : std::runtime_error("an answer that takes too long to read") {}
};

class MathsWork {
 public:
  static constexpr std::size_t least = 10'000'000, each_byte = 100;

  explicit MathsWork(std::size_t bytes) : left_(least + each_byte * bytes), outer_(current_) { current_ = this; }
  ~MathsWork() { current_ = outer_; }
  MathsWork(const MathsWork&) = delete;
  MathsWork& operator=(const MathsWork&) = delete;

  static void charge(std::size_t steps) {
    if (current_ == nullptr) return;
    if (steps >= current_->left_) throw TooMuchWork();
    current_->left_ -= steps;
  }

 private:
  inline static thread_local MathsWork* current_ = nullptr;

  std::size_t left_;
  MathsWork* outer_;
};

}  // namespace rlalgo::maths::detail
