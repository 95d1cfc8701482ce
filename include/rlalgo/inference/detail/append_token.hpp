// A completion grows by one token: ids, log-probs and whether it has ended; then its text and the request's sink.
//
// Where stop strings end a completion its text must be known before the next pass; else text and sink may wait (later_tokens.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/request.hpp>

namespace rlalgo::inference::detail {

// What the text still holds back belongs to it after all; what of it is new.
inline std::string end_text(Scheduled& request, std::size_t completion) {
  if (request.texts.empty()) return {};
  TextOfCompletion& text = request.texts[completion];
  CompletionResult& result = request.result.completions[completion];
  std::string shown = text.stops.push(text.stream.finish());
  shown += text.stops.finish();
  result.text += shown;
  result.stop_text = text.stops.stopped().value_or("");
  return shown;
}

// How it ends with this token, as far as that needs no text.
inline std::optional<data::Finish> append_token(Scheduled& request, std::int64_t j, Drawn drawn,
                                                const std::vector<TokenLogProb>* top) {
  CompletionResult& result = request.result.completions[static_cast<std::size_t>(j)];
  result.completion.ids.push_back(drawn.id);
  result.completion.log_probs.push_back(drawn.log_prob);
  if (top != nullptr) result.top.push_back(*top);
  if (request.spec.given.empty() &&
      std::find(request.end_ids.begin(), request.end_ids.end(), drawn.id) != request.end_ids.end())
    return data::Finish::stop;
  if (static_cast<std::int64_t>(result.completion.ids.size()) >= request.room) return data::Finish::length;
  return std::nullopt;
}

// The text of the token at `index`, and what the sink hears of it; how the completion ends, its stop strings known.
inline std::optional<data::Finish> tell_token(Scheduled& request, std::int64_t j, std::size_t index,
                                              std::optional<data::Finish> finished) {
  const auto at = static_cast<std::size_t>(j);
  const RequestSpec& spec = request.spec;
  CompletionResult& result = request.result.completions[at];
  const data::TokenId id = result.completion.ids[index];
  std::string shown;
  if (!request.texts.empty()) {
    TextOfCompletion& text = request.texts[at];
    shown = text.stops.push(text.stream.push(id), static_cast<std::int64_t>(index) + 1 >= spec.min_new_tokens);
    result.text += shown;
    if (finished || text.stops.stopped()) shown += end_text(request, at);
    if (text.stops.stopped()) finished = data::Finish::stop;
  }
  if (finished) result.completion.finish = *finished;
  if (spec.on_token)
    spec.on_token(
        {request.id, j, id, result.completion.log_probs[index],
         index < result.top.size() ? std::span<const TokenLogProb>(result.top[index]) : std::span<const TokenLogProb>(),
         shown, result.stop_text, finished});
  return finished;
}

}  // namespace rlalgo::inference::detail
