// Definitions of completion_reader.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/detail/completion_reader.hpp>

namespace rlalgo::remote::detail {

RLALGO_INLINE nlohmann::ordered_json sampling_fields(const inference::SamplingConfig& s) {
  return {{"repetition_penalty", s.repetition_penalty},
          {"temperature", s.temperature},
          {"top_p", s.top_p},
          {"top_k", s.top_k},
          {"min_p", s.min_p},
          {"max_tokens", s.max_new_tokens},
          {"logprobs", 0}};
}

RLALGO_INLINE data::Completion CompletionReader::completion_of(const Json& ids, const Json& reason,
                                                               const inference::SamplingConfig& sampling) const {
  if (!ids.is_array()) wrong(ids.dump().substr(0, 100), "a list of token ids");
  if (static_cast<std::int64_t>(ids.size()) > sampling.max_new_tokens)
    wrong("a completion of " + std::to_string(ids.size()) + " tokens",
          "at most " + std::to_string(sampling.max_new_tokens));
  data::Completion out;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) wrong(id.dump().substr(0, 100), "a token id");
    const auto value = id.get<std::int64_t>();
    if (value < 0 || (vocab_size_ > 0 && value >= vocab_size_))
      core::raise("remote", 11,
                  {.what = "the generation server answers with a token that the model does not have",
                   .found = "id " + std::to_string(value),
                   .expected = "below " + std::to_string(vocab_size_),
                   .where = where_,
                   .remedy = "serve the checkpoint that is trained"});
    out.ids.push_back(static_cast<data::TokenId>(value));
  }
  const bool stopped = !out.ids.empty() && std::find(sampling.stop_ids.begin(), sampling.stop_ids.end(),
                                                     out.ids.back()) != sampling.stop_ids.end();
  const bool full = static_cast<std::int64_t>(out.ids.size()) >= sampling.max_new_tokens;
  out.finish = full && !stopped ? data::Finish::length : data::Finish::stop;
  if (reason == "stop" && !sampling.stop_strings.empty()) out.finish = data::Finish::stop;  // with its last token
  if (!stopped && reason == "length") out.finish = data::Finish::length;                    // at the end of its context
  if (reason == "abort") out.finish = data::Finish::aborted;
  return out;
}

RLALGO_INLINE std::vector<float> CompletionReader::log_probs_of(const std::vector<data::TokenId>& ids,
                                                                const Json& values, const Json* tokens) const {
  for (const auto& [given, name] : {std::pair(&values, "logprobs"), std::pair(tokens, "logprob_token_ids")}) {
    if (given == nullptr) continue;
    if (!given->is_array()) wrong(std::string(given->type_name()) + " as " + name + " of a completion", "a list");
    if (given->size() != ids.size())
      wrong(std::to_string(given->size()) + " " + name + " of a completion",
            std::to_string(ids.size()) + ", one per token");
  }
  std::vector<float> out;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const Json* value = &values[t];
    if (tokens != nullptr) {
      const Json& candidates = (*tokens)[t];
      if (!candidates.is_array() || !value->is_array() || candidates.size() != value->size())
        wrong("log-probs and token ids that do not match", "lists of one length");
      const auto at = std::find(candidates.begin(), candidates.end(), Json(ids[t]));
      if (at == candidates.end())
        wrong("no log-prob of the sampled token " + std::to_string(ids[t]),
              "one in " + candidates.dump().substr(0, 100));
      value = &(*value)[static_cast<std::size_t>(at - candidates.begin())];
    }
    if (value->is_null()) return {};   // NaN on the server's side: unknown
    constexpr float rounding = 1e-3F;  // of a probability of 1 on the server's side
    if (!value->is_number() || !(value->get<float>() <= rounding) || !std::isfinite(value->get<float>()))
      wrong(value->dump().substr(0, 100), "a log-prob, at most 0");
    out.push_back(value->get<float>());
  }
  return out;
}

RLALGO_INLINE const CompletionReader::Json& CompletionReader::list(const Json& answer, const char* key) const {
  if (!answer.is_object() || !answer.contains(key) || !answer[key].is_array())
    wrong(answer.dump().substr(0, 200), std::string("an object with the list '") + key + "'");
  return answer[key];
}

RLALGO_INLINE void CompletionReader::wrong(const std::string& found, const std::string& expected) const {
  core::raise("remote", 10,
              {.what = "the answer of the generation server has the wrong shape",
               .found = found,
               .expected = expected,
               .where = where_,
               .remedy = "it must speak the protocol of `trl vllm-serve`, or vLLM's"});
}

}  // namespace rlalgo::remote::detail
