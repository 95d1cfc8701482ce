// Floating-point operations that a forward and a backward pass over a token tree need: what a share of a device's peak is counted in.
//
//   Σ_maps T·(4·E + 2·E·[trained])  +  N·(4·E_head + 2·E_head·[trained])  +  Σ_layers Σ_tokens 12·v_t·n·d
//
// E: elements of a matrix; the forward pass takes 2·E for a token, the gradient of its input as many, and that of the matrix where it is
// trained. T: tokens of the tree, a shared prompt once. N: targets. v_t: keys that token t sees (a window cuts them), n heads of d
// elements: 4·v·n·d forward, twice that backward. Of experts those that a token passes count. An adapter of rank r adds 6·r·(in + out) for a
// token. A gated delta rule reads and writes its state: 18·(value heads)·(key size)·(value size).
// What is computed again for gradient checkpointing does not count: the definition of Chowdhery et al., arXiv 2204.02311, appendix B (PaLM's
// model FLOPs utilisation), with what is frozen left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>

namespace rlalgo::model {

[[nodiscard]] inline double training_flops(const DecoderConfig& config, const DecoderWeights& weights,
                                           const TokenTree& tree) {
  const auto tokens = static_cast<double>(tree.tokens());
  double out = 0.0;
  const auto product = [](const Tensor& weight, const Lora& lora) {
    const auto rows = static_cast<double>(weight.size(0)), columns = static_cast<double>(weight.size(1));
    double flops = rows * columns * (weight.requires_grad() ? 6.0 : 4.0);
    if (lora.defined()) flops += 6.0 * static_cast<double>(lora.a.size(0)) * (rows + columns);
    return flops;
  };
  visit_maps(config, weights, [&](const std::string& path, const Linear& map, std::int64_t layer, bool) {
    const ExpertSpec& experts = config.spec(layer).experts;
    const double share = experts.count > 0 && path.find(".experts.") != std::string::npos
                             ? static_cast<double>(experts.chosen) / static_cast<double>(experts.count)
                             : 1.0;
    if (map.weight.defined() && map.weight.dim() == 2) out += tokens * share * product(map.weight, map.lora);
  });
  const Tensor& head = weights.lm_head.defined() ? weights.lm_head : weights.embedding;
  out += static_cast<double>(tree.targets()) * product(head, weights.lm_head_lora);
  std::map<std::int64_t, double> seen;  // keys of all tokens, of a window; 0: of none
  for (std::int64_t l = 0; l < config.layers; ++l) {
    const LayerSpec& spec = config.spec(l);
    if (spec.delta.present()) {
      out += tokens * 18.0 * static_cast<double>(spec.delta.state_size());
      continue;
    }
    const auto [keys, first] = seen.try_emplace(spec.window, 0.0);
    if (first)
      for (const std::int64_t position : tree.positions)
        keys->second += static_cast<double>(spec.window > 0 ? std::min(spec.window, position + 1) : position + 1);
    out += 12.0 * keys->second * static_cast<double>(config.heads * config.head_dim);
  }
  return out;
}

}  // namespace rlalgo::model
