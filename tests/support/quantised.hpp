// The adapter of tests over a base in 4 or 8 bits (tests/golden/quantised).
#pragma once

#include <string>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/lora.hpp>

namespace rlalgo::support {

// On every linear map, and under DoRA of a mixture of experts on two: the parameters of experts have no DoRA. `b`: what every
// element of its second factors is, so that it changes the model.
inline void adapt_quantised(model::Decoder& decoder, const std::string& name, bool dora, double b = 0.02) {
  model::LoraConfig lora{.r = 3, .alpha = 6, .use_dora = dora};
  if (dora && name == "qwen3_moe_nf4")
    lora.target_modules = {"q_proj", "o_proj"};
  else
    lora.every_linear = true;
  model::attach_lora(decoder, lora, 5);
  for (const auto& p : decoder.parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(b);
}

}  // namespace rlalgo::support
