// The weights that an adapter changes, as they are with it: for those who run the model without adapters.
//
//   W + s·B A;   with DoRA each row times magnitude / ‖W + s·B A‖
//
// Names are those of the base model's files. New tensors, computed in the adapter's dtype and returned in that of the
// base; modules that the adapter replaces (modules_to_save) are returned as they are, not copied.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

[[nodiscard]] inline std::vector<std::pair<std::string, Tensor>> merged_weights(const Decoder& decoder) {
  const c10::NoGradGuard no_grad;
  std::vector<std::pair<std::string, Tensor>> out;
  if (decoder.adapter() == nullptr) return out;
  decoder.visit_adapter([&](const std::string& name, const Tensor& value) {
    if (name.find(".lora_") == std::string::npos) out.emplace_back(name, value.detach());
  });
  visit_loras(decoder.weights(), [&](const std::string& path, const Lora& lora, const Tensor& weight) {
    if (!lora.defined()) return;
    Tensor merged = tensor::addmm(weight.to(lora.a.scalar_type()), lora.b, lora.a, 1.0, lora.scale);
    if (lora.magnitude.defined()) merged.mul_(lora.magnitude.div(adapted_norm(weight, lora)).unsqueeze(1));
    out.emplace_back(path + ".weight", merged.to(weight.scalar_type()));
  });
  return out;
}

}  // namespace rlalgo::model
