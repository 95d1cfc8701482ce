// Whether an engine generates with weights in 8 bits, made of the model's own whenever they change.
//
// int8: every matrix of the decoder's products, the head included, is cut along its inner dimension into groups of 32, each with a scale:
//
//   q = round(x / s), s = max |x| / 127 of a group          −127 ≤ q ≤ 127
//   CPU      y = Σ_groups s_x · s_w · Σ_group q_x · q_w      every x that meets one, too; the inner sum in whole numbers, exact
//   device   y = Σ_groups s_w · Σ_group x · q_w              x as it is (bfloat16, or float32)
//
// (the groups are those of llama.cpp's Q8_0, whose scales are float16; here they are float32.) A weight takes 1.125 bytes beside the
// model's own.
//
// fp8: on a device alone. A row of a matrix has one scale, s = max |x| / 448, and q is the e4m3 nearest to x / s (cuda/float8.cuh): vLLM's
// scales of a channel, without its rounding of x. A weight takes 1 byte and 4/columns.
//
// The embedding, norms, biases and adapters stay as they are, and so do maps that a base has in 4 or 8 bits. The policy that draws is another one
// than the one that is trained, by more than rounding to bfloat16 makes it: log-probs that the engine reports are those of its own, and a trainer
// corrects for the difference (loss/sampling_correction.hpp). On the CPU sums of a row do not depend on the other rows of a batch, and are the same on
// every CPU; quantised_copies.hpp has the device's.
//
// Errors: [rlalgo.inference.18] no quantization has that name.
#pragma once

#include <string>
#include <string_view>

#include <rlalgo/core/error.hpp>

namespace rlalgo::inference {

enum class Quantization { none, int8, fp8 };

// The one of this name; `where` it was asked for.
[[nodiscard]] inline Quantization quantization_named(std::string_view name, std::string_view where) {
  if (name == "none") return Quantization::none;
  if (name == "int8") return Quantization::int8;
  if (name == "fp8") return Quantization::fp8;
  core::raise_usage("inference", 18,
                    {.what = "there is no such quantization",
                     .found = "'" + std::string(name) + "'",
                     .expected = "none, int8 or fp8",
                     .where = std::string(where)});
}

}  // namespace rlalgo::inference
