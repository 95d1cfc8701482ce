// Drawn tokens whose texts and sinks wait until the device computes the next pass, so that the host's work for them (decoding bytes,
// answers of a server) takes no time of a token step.
//
// A token waits only where the pass runs apart from the host (Forward::overlaps()), and its text can end nothing. What waits for a request
// is said before its completions end or are cancelled, so a sink hears all in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/append_token.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>

namespace rlalgo::inference::detail {

class LaterTokens {
 public:
  // Of the last token of a completion, which ends it as `finished` or not; how it ends, its stop strings known. `overlaps`: it may wait.
  std::optional<data::Finish> say(Scheduled& request, std::int64_t completion, std::optional<data::Finish> finished,
                                  bool overlaps) {
    const std::size_t index = request.completion(completion).ids.size() - 1;
    if (overlaps && !finished && request.spec.stop_strings.empty()) {
      if (!request.texts.empty() || request.spec.on_token) waiting_.push_back({&request, completion, index});
      return std::nullopt;
    }
    tell(request);
    return tell_token(request, completion, index, finished);
  }

  // All that waits. A sink that throws: nothing waits any more.
  void tell() {
    tell_those([](const Token&) { return true; });
  }

  // What waits for this request.
  void tell(const Scheduled& request) {
    tell_those([&](const Token& one) { return one.request == &request; });
  }

  void clear() { waiting_.clear(); }

 private:
  struct Token {
    Scheduled* request;
    std::int64_t completion;
    std::size_t index;
  };

  template <class Chosen>
  void tell_those(Chosen&& chosen) {
    now_.clear();
    std::size_t kept = 0;
    for (const Token& one : waiting_) {
      if (chosen(one))
        now_.push_back(one);
      else
        waiting_[kept++] = one;
    }
    waiting_.resize(kept);
    for (const Token& one : now_) tell_token(*one.request, one.completion, one.index, std::nullopt);
  }

  std::vector<Token> waiting_, now_;
};

}  // namespace rlalgo::inference::detail
