// A completion grows by one token: ids, log-probs, text, the request's sink, and whether it has ended.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
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

// True when it was the last token.
inline bool append_token(Scheduled& request, std::int64_t j, Drawn drawn, const std::vector<TokenLogProb>* top) {
  const auto at = static_cast<std::size_t>(j);
  const RequestSpec& spec = request.spec;
  CompletionResult& result = request.result.completions[at];
  data::Completion& completion = result.completion;
  completion.ids.push_back(drawn.id);
  completion.log_probs.push_back(drawn.log_prob);
  if (top != nullptr) result.top.push_back(*top);
  const auto length = static_cast<std::int64_t>(completion.ids.size());
  std::optional<data::Finish> finished;
  if (length >= request.room) finished = data::Finish::length;
  if (spec.given.empty() &&
      std::find(request.end_ids.begin(), request.end_ids.end(), drawn.id) != request.end_ids.end())
    finished = data::Finish::stop;
  std::string shown;
  if (!request.texts.empty()) {
    TextOfCompletion& text = request.texts[at];
    shown = text.stops.push(text.stream.push(drawn.id), length >= spec.min_new_tokens);
    result.text += shown;
    if (finished || text.stops.stopped()) shown += end_text(request, at);
    if (text.stops.stopped()) finished = data::Finish::stop;
  }
  if (finished) completion.finish = *finished;
  if (spec.on_token)
    spec.on_token({request.id, j, drawn.id, drawn.log_prob,
                   top != nullptr ? std::span<const TokenLogProb>(*top) : std::span<const TokenLogProb>(), shown,
                   result.stop_text, finished});
  return finished.has_value();
}

}  // namespace rlalgo::inference::detail
