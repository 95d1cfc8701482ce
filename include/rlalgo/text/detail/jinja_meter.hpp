// What a running template may cost, and how it fails.
//
// Every operation costs one step, and what it walks through, compares, copies or makes costs by its length: a step for
// some 8 to 64 bytes of text (fewer where ICU works on each character), for an item of a list, for some names of a
// scope. So the budget bounds time (seconds) and memory (some hundred megabytes) alike. The rendering that runs on a thread owns the thread's meter; without
// one (while a template is parsed) nothing is counted.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace rlalgo::text::detail {

// A failure while a template runs; the evaluator adds the place.
class TemplateFailure : public std::runtime_error {
 public:
  explicit TemplateFailure(const std::string& message, bool raised_by_template = false)
      : std::runtime_error(message), raised_by_template_(raised_by_template) {}
  [[nodiscard]] bool raised_by_template() const noexcept { return raised_by_template_; }

 private:
  bool raised_by_template_;
};

[[noreturn, gnu::noinline, gnu::cold]] inline void fail(const std::string& message) { throw TemplateFailure(message); }

class Meter {
 public:
  explicit Meter(std::size_t limit) : limit_(limit), outer_(current_) { current_ = this; }
  ~Meter() { current_ = outer_; }
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  static void charge(std::size_t steps) {
    if (current_ != nullptr) current_->add(steps);
  }

 private:
  void add(std::size_t steps) {
    used_ = steps > limit_ - used_ ? limit_ : used_ + steps;
    if (used_ == limit_) exhausted();
  }
  [[noreturn, gnu::noinline, gnu::cold]] void exhausted() const {
    fail("the template does not come to an end: it was stopped after " + std::to_string(limit_) + " steps");
  }

  inline static thread_local Meter* current_ = nullptr;

  std::size_t limit_, used_ = 0;
  Meter* outer_;
};

inline void charge(std::size_t steps) { Meter::charge(steps); }
// For text of so many bytes.
inline void charge_bytes(std::size_t bytes) { Meter::charge(bytes / 8 + 1); }

}  // namespace rlalgo::text::detail
