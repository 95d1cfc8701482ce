// Memory for answers: what an answer may take at most is estimated when its request is read, refused at once where it is
// more than the server has for answers, and held until the answer is written.
//
//   answer_bytes({.tokens = 200, .log_probs = AnswerForm::chat, .alternatives = 20})      an estimate, from above
//   const auto held = budget.hold(bytes, "n");                                      given back when it goes
//
// Errors: [rlalgo.serve.28] an answer larger than all that the server has for answers (400); [.9] others take it now (429).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include <rlalgo/os/memory_limit.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

// How log-probs are written: not at all, as numbers in base64, as lists of numbers, as texts, as objects.
enum class AnswerForm { none, streamed, binary, ranked, completion, chat };

struct AnswerShape {
  double tokens = 0;  // at most, in all completions
  AnswerForm log_probs = AnswerForm::none;
  std::int64_t alternatives = 0;  // log-probs beside each token's own
};

// Bytes, while the answer is made: results, JSON values and text.
[[nodiscard]] inline double answer_bytes(const AnswerShape& shape) {
  const auto each = [&]() -> double {
    switch (shape.log_probs) {
      case AnswerForm::none:
        return 0;
      case AnswerForm::streamed:
        return 12;
      case AnswerForm::binary:
        return 32;
      case AnswerForm::ranked:
        return 60;
      case AnswerForm::completion:
        return 160;
      case AnswerForm::chat:
        return 480;
    }
    return 0;
  };
  return shape.tokens * (80.0 + each() * static_cast<double>(shape.alternatives + 1));
}

class AnswerBudget {
 public:
  static constexpr std::uint64_t usual = std::uint64_t{2} << 30U;

  // 0 bytes: 2 GiB, or a quarter of the memory that the process may have where that is less.
  explicit AnswerBudget(std::uint64_t bytes = 0)
      : state_(std::make_shared<State>(
            static_cast<double>(bytes != 0 ? bytes : std::min(usual, os::memory_limit() / 4)))) {}

  [[nodiscard]] double bytes() const noexcept { return state_->most; }

  // `field`: what makes the answer large.
  [[nodiscard]] std::shared_ptr<const void> hold(double bytes, const std::string& field) const {
    const std::lock_guard lock(state_->mutex);
    if (bytes > state_->most)
      refuse_request(400, 28,
                     {.what = "the answer may take more memory than the server has for answers",
                      .found = megabytes(bytes) + " at most",
                      .expected = "at most " + megabytes(state_->most),
                      .where = field,
                      .remedy = "ask for fewer completions, tokens or log-probs, in several requests, or start the "
                                "server with a larger --answer-memory-mb"},
                     field);
    if (state_->held + bytes > state_->most)
      refuse_request(429, 9,
                     {.what = "answers under way take the memory for answers",
                      .found = megabytes(state_->held) + " and " + megabytes(bytes) + " more",
                      .expected = "at most " + megabytes(state_->most),
                      .remedy = "try again in a moment"});
    state_->held += bytes;
    return {static_cast<const void*>(state_.get()), [state = state_, bytes](const void*) {
              const std::lock_guard again(state->mutex);
              state->held = std::max(0.0, state->held - bytes);
            }};
  }

 private:
  struct State {
    explicit State(double bytes) : most(bytes) {}
    const double most;
    std::mutex mutex;
    double held = 0;
  };
  static std::string megabytes(double bytes) {
    return std::to_string(static_cast<std::uint64_t>(bytes / 1e6 + 0.5)) + " MB";
  }

  std::shared_ptr<State> state_;
};

}  // namespace rlalgo::serve
