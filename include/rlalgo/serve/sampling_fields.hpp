// The fields by which a request says how completions are drawn, the same in all protocols, as a request to the scheduler.
//
//   n, max_tokens, temperature, top_p, top_k (0 and −1: off), min_p, repetition_penalty, presence_penalty,
//   frequency_penalty, seed, stop, stop_token_ids, min_tokens, ignore_eos, logit_bias, allowed_token_ids,
//   include_stop_str_in_output, skip_special_tokens; structured_outputs {json | regex | choice | json_object},
//   guided_json, guided_regex, guided_choice, response_format, structured_outputs_regex
//
// Defaults are neutral unless `defaults` (sampling_defaults.hpp) says otherwise. Presence and frequency penalties count the
// completion's tokens: l − presence·[c > 0] − frequency·c. Without a seed draws differ from request to request.
//
// Errors (status 400): [rlalgo.serve.3] a field of the wrong type; [.4] a value out of range; [.12] what is not
// supported; those of schema_pattern.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/sampling_defaults.hpp>

namespace rlalgo::serve {

struct SamplingLimits {
  std::int64_t vocab_size = 0;
  std::int64_t length = 0;  // tokens of prompt and completion
  std::int64_t most_completions = 4096;
};

struct SamplingRequest {
  inference::RequestSpec spec;             // all but prompt, weights, log-probs and sinks
  std::optional<std::int64_t> max_tokens;  // as asked for; spec.sampling.max_new_tokens is at least 1
  bool seeded = false;                     // the request says its seed
  bool include_stop_text = false;
  bool skip_special_tokens = true;
  std::optional<std::string> pattern;  // what the text must match (pattern.hpp)
};

// `otherwise`: the default of max_tokens; none = up to the context's end.
[[nodiscard]] SamplingRequest read_sampling(Fields& fields, const SamplingLimits& limits,
                                            std::optional<std::int64_t> otherwise,
                                            const SamplingDefaults& defaults = {});

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/sampling_fields_impl.hpp>
#endif
