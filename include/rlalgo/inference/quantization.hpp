// Whether an engine generates with weights in 8 bits, made of the model's own whenever they change.
//
// int8: every matrix of the decoder's products, the head included, and every x that meets one are cut along their inner dimension into
// groups of 32, each with a scale:
//
//   q = round(x / s), s = max |x| / 127 of a group          −127 ≤ q ≤ 127
//   y = Σ_groups s_x · s_w · Σ_group q_x · q_w               the inner sum in whole numbers, exact
//
// (the groups are those of llama.cpp's Q8_0, whose scales are float16; here they are float32). The embedding, norms, biases and adapters stay as
// they are. A weight takes 1.125 bytes beside the model's own. The policy that draws is another one than the one that is trained, by more than
// rounding to bfloat16 makes it: log-probs that the engine reports are those of its own, and a trainer corrects for the difference
// (loss/sampling_correction.hpp). Sums of a row do not depend on the other rows of a batch, and are the same on every CPU.
//
// Errors: [rlalgo.inference.18] no quantization has that name.
#pragma once

#include <string>
#include <string_view>

#include <rlalgo/core/error.hpp>

namespace rlalgo::inference {

enum class Quantization { none, int8 };

// The one of this name; `where` it was asked for.
[[nodiscard]] inline Quantization quantization_named(std::string_view name, std::string_view where) {
  if (name == "none") return Quantization::none;
  if (name == "int8") return Quantization::int8;
  core::raise_usage("inference", 18,
                    {.what = "there is no such quantization",
                     .found = "'" + std::string(name) + "'",
                     .expected = "none or int8",
                     .where = std::string(where)});
}

}  // namespace rlalgo::inference
