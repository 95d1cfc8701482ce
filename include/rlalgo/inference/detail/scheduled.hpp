// What a scheduler keeps of a request: its prompt in the cache, and how far its completions are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/sampling.hpp>
#include <rlalgo/inference/stop_strings.hpp>

namespace rlalgo::inference {

namespace detail {

// The text of one completion.
struct TextOfCompletion {
  TextStream stream;
  StopStrings stops;
};

// The distinct ids of a text that grows, rising.
class DistinctIds {
 public:
  // Those of `text`, which begins with what the last call was given.
  const std::vector<data::TokenId>& of(const TokenView& text) {
    if (taken_ == 0) {
      ids_.assign(text.prompt.begin(), text.prompt.end());
      std::sort(ids_.begin(), ids_.end());
      ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
      taken_ = static_cast<std::int64_t>(text.prompt.size());
    }
    for (; taken_ < text.size(); ++taken_) {
      const data::TokenId id = text[taken_];
      if (const auto at = std::lower_bound(ids_.begin(), ids_.end(), id); at == ids_.end() || *at != id)
        ids_.insert(at, id);
    }
    return ids_;
  }

 private:
  std::vector<data::TokenId> ids_;
  std::int64_t taken_ = 0;  // tokens of the text that are among them
};

// A request in work. Its completions start in order; one that had to give its memory back is resumed before the next.
struct Scheduled {
  RequestId id = 0;  // rising: the order of arrival
  RequestSpec spec;
  RequestResult result;
  std::int64_t room = 0;                // tokens of a completion at most
  std::vector<data::TokenId> end_ids;   // that end a completion
  std::vector<TextOfCompletion> texts;  // [count], or empty
  KvCache::Sequence prompt;             // while completions have yet to continue it
  bool complete = false;                // all of the prompt is in `prompt`
  bool drawn = false;                   // `first` is known
  std::vector<Drawn> first;             // [count] first tokens, drawn when the prompt's logits are there
  std::vector<std::vector<TokenLogProb>> first_top;
  std::vector<DistinctIds>
      distinct;              // [count], or empty: of prompt and completion, where a device penalises what was seen
  std::int64_t started = 0;  // completions that have, or had, a slot
  std::int64_t waiting = 0;  // slots whose completion has yet to continue the prompt
  std::int64_t running = 0;  // slots
  std::int64_t ended = 0;    // completions
  std::vector<std::int64_t> preempted;  // completions to be resumed
  std::int64_t branch = 0;              // positions of the prompt in pages that are known, where a state is carried
  bool queued = false;                  // is among those that want slots
  bool indexed = true;                  // its pages go to the prefix cache
  std::uint64_t pass = 0;               // the last one that it has a row in, or was being given pages for
  std::exception_ptr failed;            // there was no memory for it alone: it ends behind the pass

  [[nodiscard]] std::int64_t prompt_size() const { return static_cast<std::int64_t>(spec.prompt.size()); }
  [[nodiscard]] data::Completion& completion(std::int64_t j) {
    return result.completions[static_cast<std::size_t>(j)].completion;
  }
  [[nodiscard]] const data::Completion& completion(std::int64_t j) const {
    return result.completions[static_cast<std::size_t>(j)].completion;
  }
  // Log-probs of a prompt need all of its logits.
  [[nodiscard]] bool may_reuse() const { return indexed && !spec.prompt_log_probs; }
  [[nodiscard]] bool wants_slots() const { return !preempted.empty() || started < spec.count; }
  // Completions that will continue the prompt where it is.
  [[nodiscard]] std::int64_t heirs() const { return spec.count - started + waiting; }
  // The tokens of completion j that are known; the last of given ones need not be computed.
  [[nodiscard]] TokenView tokens(std::int64_t j) const {
    if (spec.given.empty()) return {spec.prompt, completion(j).ids};
    return {spec.prompt, std::span(spec.given).first(spec.given.size() - 1)};
  }
};

struct Slot {
  Scheduled* request = nullptr;
  std::int64_t completion = 0;
  bool waits = true;                          // has yet to continue its prompt
  KvCache::Sequence sequence;                 // of its own, once it does not wait
  std::optional<KvCache::PageId> saved = {};  // a page of what was drawn, behind which the state is saved
  [[nodiscard]] TokenView tokens() const { return request->tokens(completion); }
  [[nodiscard]] std::int64_t uncomputed() const { return tokens().size() - sequence.length; }
};

// Something to find out from one row of logits.
struct Draw {
  enum class Kind { first, next, prompt } kind = Kind::next;
  Scheduled* request = nullptr;
  std::size_t slot = 0;         // of `next`
  std::int64_t completion = 0;  // of `first` and `next`
  std::int64_t index = 0;       // of the token in its completion, or in the prompt
  std::int64_t row = 0;         // of the logits at hand
  Drawn drawn = {};
  std::int64_t rank = 0;  // of `prompt`
  bool known = false;     // the device has answered it
  std::vector<TokenLogProb> top = {};
};

}  // namespace detail

}  // namespace rlalgo::inference
