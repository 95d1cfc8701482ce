// Definitions of lora.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/detail/expert_maps.hpp>
#include <rlalgo/model/lent_weights.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE void initialise_lora(LoraInit init, LoraDraw draw, std::int64_t r, Lora& lora, Tensor& weight) {
  const std::int64_t out = weight.size(0), in = weight.size(1);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in));
  lora.b = tensor::zeros({out, r}, at::TensorOptions().dtype(at::kFloat));
  switch (init) {
    case LoraInit::standard:
      lora.a = draw.uniform(r, in, bound);
      break;
    case LoraInit::random:
      lora.a = draw.uniform(r, in, bound);
      lora.b = draw.uniform(out, r, 1.0 / std::sqrt(static_cast<double>(r)));
      break;
    case LoraInit::gaussian:
      lora.a = draw.normal(r, in, 1.0 / static_cast<double>(r));
      break;
    case LoraInit::pissa: {
      if (r > std::min(in, out))
        raise_lora_setting("r", std::to_string(r), "at most " + std::to_string(std::min(in, out)) + " with PiSSA");
      const Tensor w = weight.to(at::kFloat);
      const auto [u, s, v] = tensor::reduced_svd(w);
      const Tensor root = s.narrow(0, 0, r).div(lora.scale).sqrt();
      lora.a = v.narrow(0, 0, r).mul(root.unsqueeze(1)).contiguous();
      lora.b = u.narrow(1, 0, r).mul(root).contiguous();
      weight = w.sub(tensor::mm(lora.b, lora.a).mul_(lora.scale)).to(weight.scalar_type());
      break;
    }
    case LoraInit::orthogonal: {
      if (r % 2 != 0) raise_lora_setting("r", std::to_string(r), "an even number with the orthogonal initialisation");
      const Tensor q = tensor::orthonormal_basis(draw.normal(r, r, 1.0));
      const Tensor odd = q.slice(0, 0, r, 2), even = q.slice(0, 1, r, 2);  // orthogonal to each other, [r/2, r]
      lora.a = tensor::mm(draw.normal(in, r / 2, 0.1), odd).t().contiguous();
      lora.b = tensor::mm(draw.normal(out, r / 2, 0.1), even).contiguous();
      break;
    }
  }
}

RLALGO_INLINE Tensor LoraDraw::uniform(std::int64_t rows, std::int64_t columns, double bound) {
  return fill(rows, columns, [&](const core::PhiloxBlock& b) { return (word(b[0]) * 2.0 - 1.0) * bound; });
}

RLALGO_INLINE Tensor LoraDraw::normal(std::int64_t rows, std::int64_t columns, double deviation) {
  return fill(rows, columns, [&](const core::PhiloxBlock& b) {
    return deviation * std::sqrt(-2.0 * std::log(1.0 - word(b[0]))) * std::cos(2.0 * std::numbers::pi * word(b[1]));
  });
}

}  // namespace detail

RLALGO_INLINE DecoderModules decoder_modules(const DecoderConfig& config, const DecoderWeights& weights) {
  DecoderModules out;
  visit_loras(
      config, weights, [&](const std::string& path, const auto&, const auto&) { out.linears.push_back(path); },
      [&](const std::string& path, const auto&, std::size_t) { out.parameters.push_back(path); });
  DecoderConfig c = config;
  c.tied_embeddings = false;
  visit_weights(c, weights, [&](const std::string& name, const auto&, const auto&, WeightRole) {
    const std::string path = name.substr(0, name.rfind('.'));
    if (out.all.empty() || out.all.back() != path) out.all.push_back(path);
  });
  return out;
}

namespace detail {

RLALGO_INLINE void attach_lora(Decoder& decoder, const LoraConfig& given, std::uint64_t seed, TargetCheck check,
                               bool continued) {
  if (decoder.adapter() != nullptr)
    core::raise_usage(
        "model", 27,
        {.what = "the model has an adapter already", .remedy = "attach to a decoder without one, or merge the first"});
  check_lora(given);
  const c10::NoGradGuard no_grad;
  const DecoderModules modules = decoder_modules(decoder.config(), decoder.weights());
  LoraConfig config = with_every_linear(given, modules.linears, modules.all);
  if (check == TargetCheck::every) config = with_expert_parameters(std::move(config), modules.linears, modules.all);
  const std::vector<std::string> targets = lora_targets(config, modules.linears, modules.all, check);
  check_target_parameters(config, modules.parameters);
  decoder.set_trained(false);
  Decoder::Adapter adapter{config, continued, seed, {}};
  DecoderWeights weights = decoder.weights();
  // Full copies first: a tied lm_head that is saved becomes a tensor of its own.
  DecoderConfig untied = decoder.config();
  untied.tied_embeddings = false;
  visit_weights(untied, weights, [&](const std::string& name, Tensor& value, const auto&, WeightRole) {
    if (!is_saved_module(config, name.substr(0, name.rfind('.')))) return;
    if (is_stand_in(value)) refuse_quantised(name + " (of lora_modules_to_save)");
    value = value.detach().clone().requires_grad_(true);
  });
  std::map<std::string, const Linear*> maps;
  visit_maps(decoder.config(), decoder.weights(), [&](const std::string& path, const Linear& map, auto, bool) {
    if (map.quantised) maps[path] = &map;
  });
  const at::ScalarType type = decoder.dtype() == at::kDouble ? at::kDouble : at::kFloat;
  std::uint32_t index = 0;
  auto target = targets.begin();
  const auto on_map = [&](const std::string& path, Lora& lora, Tensor& weight) {
    const std::uint32_t number = index++;
    if (target == targets.end() || *target != path) return;
    ++target;
    if (path == "lm_head" && config.dropout > 0)
      raise_lora_setting("dropout", std::to_string(config.dropout), "0 when lm_head is a target");
    const LoraShape shape = lora_shape(config, path);
    lora.scale = shape.scale;
    lora.dropout = config.dropout;
    lora.index = number;
    const auto quantised = maps.find(path);
    if (quantised != maps.end() && config.init == LoraInit::pissa)
      raise_lora_setting("init", "pissa",
                         "another initialisation over weights in 4 or 8 bits, of which nothing can be taken out");
    initialise_lora(config.init, {seed, number}, shape.r, lora, weight);
    lora.a = lora.a.to(weight.device(), type).requires_grad_(true);
    lora.b = lora.b.to(weight.device(), type).requires_grad_(true);
    if (!config.use_dora) return;
    lora.magnitude = quantised != maps.end() ? adapted_norm(*quantised->second, lora) : adapted_norm(weight, lora);
    lora.magnitude.requires_grad_(true);
  };
  std::uint32_t joined = 1U << 20U;  // numbers of their own: those of other maps do not depend on them
  visit_loras(decoder.config(), weights, on_map, [&](const std::string& path, Lora& lora, std::size_t layer) {
    const std::uint32_t number = joined++;
    if (!is_target_parameter(config, path)) return;
    const ExpertSpec& e = decoder.config().spec(static_cast<std::int64_t>(layer)).experts;
    const ExpertMap map = expert_maps(e, decoder.config().hidden_size)[path.ends_with(".gate_up_proj") ? 0 : 2];
    const LoraShape shape = lora_shape(config, path);
    lora.scale = shape.scale;
    lora.index = number;
    LoraDraw draw(seed, number);
    lora.a = config.init == LoraInit::gaussian
                 ? draw.normal(e.count * shape.r, map.columns, 1.0 / static_cast<double>(shape.r))
                 : draw.uniform(e.count * shape.r, map.columns, 1.0 / std::sqrt(static_cast<double>(map.columns)));
    lora.b = tensor::zeros({map.all_rows, shape.r * e.count}, at::TensorOptions().dtype(at::kFloat));
    const at::Device device = weights.layers[layer].experts.front().down_proj.weight.device();
    for (Tensor* one : {&lora.a, &lora.b}) *one = one->to(device, type).requires_grad_(true);
  });
  adapter.base = decoder.weights();
  if (config.init == LoraInit::pissa) {
    // What is left of the weights is all there is in memory.
    adapter.base = weights;
    visit_loras(decoder.config(), adapter.base, [](const std::string&, Lora& lora, const Tensor&) { lora = {}; });
  }
  decoder.adapt(std::move(adapter), std::move(weights));
}

}  // namespace detail

RLALGO_INLINE void check_lora_targets(const Decoder& decoder, const LoraConfig& config) {
  check_lora(config);
  const DecoderModules modules = decoder_modules(decoder.config(), decoder.weights());
  const LoraConfig named =
      with_expert_parameters(with_every_linear(config, modules.linears, modules.all), modules.linears, modules.all);
  (void)lora_targets(named, modules.linears, modules.all, TargetCheck::every);
  check_target_parameters(named, modules.parameters);
}

RLALGO_INLINE void attach_lora(Decoder& decoder, const LoraConfig& config, std::uint64_t seed) {
  detail::attach_lora(decoder, config, seed, TargetCheck::every, false);
}

}  // namespace rlalgo::model
