// How completions are drawn where a request does not say: what the model's generation_config.json says, as vLLM takes
// it. Routes of TRL's protocol do not use them.
//
// max_tokens is the most that any request gets, too. do_sample has no effect: a temperature of 0 is greedy.
//
// Errors (usage): [rlalgo.serve.25] a value that no sampling can have.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/hf_config.hpp>

namespace rlalgo::serve {

struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k, max_tokens;
};

// `where`: of the configuration, for errors.
[[nodiscard]] inline SamplingDefaults sampling_defaults(const model::GenerationConfig& config,
                                                        const std::string& where) {
  const auto require = [&](const char* name, const auto& value, bool good, const char* expected) {
    if (value && !good)
      core::raise_usage("serve", 25,
                        {.what = std::string("a default of the sampling is out of range: ") + name,
                         .found = std::to_string(*value),
                         .expected = expected,
                         .where = where,
                         .remedy = "mend the file, or serve with --generation-config vllm"});
  };
  const SamplingDefaults out = {.temperature = config.temperature,
                                .top_p = config.top_p,
                                .min_p = config.min_p,
                                .repetition_penalty = config.repetition_penalty,
                                .top_k = config.top_k,
                                .max_tokens = config.max_new_tokens};
  require("temperature", out.temperature, out.temperature >= 0.0 && std::isfinite(*out.temperature), "at least 0");
  require("top_p", out.top_p, out.top_p > 0.0 && out.top_p <= 1.0, "above 0, to 1");
  require("min_p", out.min_p, out.min_p >= 0.0 && out.min_p <= 1.0, "0 to 1");
  require("repetition_penalty", out.repetition_penalty,
          out.repetition_penalty > 0.0 && std::isfinite(*out.repetition_penalty), "above 0");
  require("top_k", out.top_k, out.top_k >= -1, "-1 or more");
  require("max_new_tokens", out.max_tokens, out.max_tokens >= 1, "at least 1");
  return out;
}

}  // namespace rlalgo::serve
