// Definitions of load.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/detail/joined_memory.hpp>
#include <rlalgo/model/detail/module_pattern.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/quantised_files.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/large_pages.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE std::string name_list(const std::vector<std::string>& names) {
  constexpr std::size_t shown = 5;
  std::string out;
  for (std::size_t i = 0; i < names.size() && i < shown; ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > shown) out += " and " + std::to_string(names.size() - shown) + " more";
  return out;
}

RLALGO_INLINE std::string unread_part(const std::string& name, const DecoderConfig& config) {
  for (const std::string& first : config.unread)
    if (name.starts_with(first)) return first;
  return "";
}

RLALGO_INLINE bool is_ignored_tensor(const std::string& name, const DecoderConfig& config) {
  return !unread_part(name, config).empty() || name.ends_with("rotary_emb.inv_freq") ||
         (config.tied_embeddings && name == "lm_head.weight");
}

RLALGO_INLINE std::string place_list(const CheckpointFiles& files, const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    const CheckpointFiles::Place& place = files.places().at(name);
    out.push_back(place.name + " (" + place.file->path().filename().string() + ")");
  }
  return name_list(out);
}

RLALGO_INLINE std::string stored_name(const CheckpointFiles& files, const DecoderConfig& config,
                                      const std::string& name) {
  const bool other = config.tied_embeddings && name == "model.embed_tokens.weight" && !files.contains(name);
  return other && files.contains("lm_head.weight") ? "lm_head.weight" : name;
}

// In parts, so that no second copy of both is made.
inline bool equal_in(at::ScalarType dtype, const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.dim() == 0) return false;
  constexpr std::int64_t rows = 4096;
  for (std::int64_t row = 0; row < a.size(0); row += rows) {
    const std::int64_t n = std::min(rows, a.size(0) - row);
    if (!a.narrow(0, row, n).to(dtype).equal(b.narrow(0, row, n).to(dtype))) return false;
  }
  return true;
}

}  // namespace detail

RLALGO_INLINE void untie_by_files(HfConfig& hf, const CheckpointFiles& files, at::ScalarType dtype) {
  const std::string input = "model.embed_tokens.weight", output = "lm_head.weight";
  if (!hf.decoder.tied_embeddings || !files.contains(input) || !files.contains(output)) return;
  if (detail::equal_in(dtype, files.map(input), files.map(output))) return;
  hf.decoder.tied_embeddings = false;
  hf.json["tie_word_embeddings"] = false;
}

RLALGO_INLINE std::map<std::string, std::int64_t> unread_tensors(const std::filesystem::path& directory,
                                                                 const DecoderConfig& config) {
  std::map<std::string, std::int64_t> out;
  if (config.unread.empty()) return out;
  const CheckpointFiles files(directory);
  for (const auto& [name, place] : files.places())
    if (const std::string part = detail::unread_part(name, config); !part.empty()) ++out[part];
  return out;
}

namespace detail {

// As transformers reads llm_int8_skip_modules.
inline bool skips(const std::string& pattern, const std::string& path) {
  return path.ends_with(pattern) || ModulePattern("(?:" + pattern + ")(?:(?<=\\.)|(?=\\.|$))", false).matches(path);
}

inline void require_names(const Quantisation& how, const DecoderConfig& config, const DecoderWeights& weights) {
  const std::vector<std::string> paths = decoder_modules(config, weights).all;
  for (const std::string& pattern : how.skip)
    if (std::none_of(paths.begin(), paths.end(), [&](const std::string& path) { return skips(pattern, path); }))
      core::raise_usage(
          "model", 47,
          {.what = "a name of modules that are not to be quantised is nobody's",
           .found = pattern,
           .expected = "the end of a path like model.layers.0.mlp.up_proj, or its beginning up to a dot"});
}

}  // namespace detail

RLALGO_INLINE bool quantises(const Quantisation& how, const std::string& path, const LayerSpec& spec, bool routed) {
  if (routed && spec.experts.count > 0 && !(how.experts && path.find(".experts.") != std::string::npos)) return false;
  return std::none_of(how.skip.begin(), how.skip.end(),
                      [&](const std::string& pattern) { return detail::skips(pattern, path); });
}

RLALGO_INLINE std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& directory,
                                                    const LoadOptions& options) {
  const at::ScalarType dtype = options.dtype;
  HfConfig hf = read_hf_config(directory);
  const CheckpointFiles files(directory);
  untie_by_files(hf, files, dtype);
  DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(hf.decoder.layers));
  std::vector<std::string> missing;
  std::set<std::string> expected;
  const QuantisedFiles quantised(files);
  const auto source = [&](const std::string& name) { return detail::stored_name(files, hf.decoder, name); };
  const auto check = [&](const std::string& name, const Tensor&, const std::vector<std::int64_t>& shape, WeightRole) {
    expected.insert(name);
    const auto place = files.places().find(source(name));
    if (place == files.places().end()) {
      missing.push_back(name);
    } else if (quantised.contains(source(name))) {
      expected.merge(quantised.parts(source(name)));
    } else if (place->second.entry->shape != shape) {
      core::raise("model", 21,
                  {.what = "a tensor has a wrong shape",
                   .found = detail::shape_text(place->second.entry->shape),
                   .expected = detail::shape_text(shape) + " by config.json",
                   .where = place->second.file->path().string() + ", tensor " + place->second.name,
                   .remedy = "config.json and the weights do not belong together"});
    }
  };
  visit_weights(hf.decoder, weights, check);
  std::vector<std::string> unexpected;
  for (const auto& [name, place] : files.places())
    if (!expected.contains(name) && !detail::is_ignored_tensor(name, hf.decoder)) unexpected.push_back(name);
  if (!missing.empty()) {
    core::raise("model", 19,
                {.what = std::to_string(missing.size()) + " tensors are missing from the checkpoint",
                 .found = "no " + detail::name_list(missing) +
                          (unexpected.empty() ? "" : "; there is " + detail::place_list(files, unexpected)),
                 .where = directory.string(),
                 .remedy = "config.json and the weights do not belong together, or a file is incomplete"});
  }
  if (!unexpected.empty()) {
    core::raise("model", 20,
                {.what = std::to_string(unexpected.size()) + " tensors of the checkpoint have no place in the model",
                 .found = detail::place_list(files, unexpected),
                 .where = directory.string(),
                 .remedy = "config.json and the weights do not belong together"});
  }
  if (options.quantisation) detail::require_names(*options.quantisation, hf.decoder, weights);
  // Maps whose weights stay in 4 or 8 bits.
  std::map<std::string, Linear*> maps;
  visit_maps(hf.decoder, weights, [&](const std::string& path, Linear& map, std::int64_t layer, bool routed) {
    const std::string name = path + ".weight";
    if (quantised.contains(name) || (options.quantisation && quantised.empty() &&
                                     quantises(*options.quantisation, path, hf.decoder.spec(layer), routed)))
      maps[name] = &map;
  });
  std::size_t bytes = 0;
  visit_weights(hf.decoder, weights,
                [&](const std::string& name, const Tensor&, const std::vector<std::int64_t>& shape, WeightRole) {
                  if (!maps.contains(name)) bytes += tensor::LargePages::bytes_of(shape, dtype);
                });
  std::optional<tensor::LargePages> pages;
  if (options.device.is_cpu() && options.memory == WeightMemory::resident) pages.emplace(bytes);
  std::map<std::string, at::ScalarType> stored;
  const at::ScalarType asked = hf.quantised_compute.value_or(at::ScalarType::Undefined),
                       compute = asked == at::ScalarType::Undefined ? dtype : asked;
  const auto load = [&](const std::string& name, Tensor& value, const std::vector<std::int64_t>& shape, WeightRole) {
    os::stop_if_interrupted();
    stored[name] = files.places().at(source(name)).entry->dtype;
    if (const auto map = maps.find(name); map != maps.end()) {
      const QuantisedWeight weight = quantised.contains(name)
                                         ? quantised.read(name, shape, compute)
                                         : quantise(files.convert(name, dtype), *options.quantisation, name);
      map->second->quantised = std::make_shared<const QuantisedWeight>(weight.to(options.device));
      value = stand_in(shape, at::TensorOptions().dtype(dtype).device(options.device));
      return;
    }
    if (quantised.contains(source(name))) {
      value = quantised.read(source(name), shape, dtype).dense(dtype).to(options.device);
    } else if (pages) {
      value = pages->take(shape, dtype);
      files.fill(source(name), value);
    } else {
      value = files.convert(source(name), dtype).to(options.device);
    }
    value.requires_grad_(true);
  };
  visit_weights(hf.decoder, weights, load);
  if (!options.device.is_cpu() && options.memory == WeightMemory::resident)  // shards lie apart
    for (LayerWeights& layer : weights.layers) detail::lie_together(layer);
  hf.stored = std::move(stored);
  return std::make_unique<Decoder>(std::move(hf), std::move(weights));
}

RLALGO_INLINE std::unique_ptr<Decoder> random_decoder(HfConfig hf, std::uint64_t seed, at::ScalarType dtype) {
  detail::dispatch_floating(dtype, [](auto) {});  // weights are floating point
  DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(hf.decoder.layers));
  const double deviation = hf.json.value("initializer_range", 0.02);
  const core::PhiloxKey key{seed, core::Stream::init};
  std::uint64_t position = 0;
  const auto fill = [&](const std::string&, Tensor& value, const std::vector<std::int64_t>& shape, WeightRole role) {
    const auto options = at::TensorOptions().dtype(at::ScalarType::Float);
    const std::uint64_t step = position++;
    if (role == WeightRole::norm) value = tensor::ones(shape, options);
    if (role == WeightRole::bias) value = tensor::zeros(shape, options);
    if (role == WeightRole::matrix) {
      value = tensor::empty(shape, options);
      float* data = value.mutable_data_ptr<float>();
      const auto n = static_cast<std::uint64_t>(value.numel());
      // Box–Muller: each block of four words gives four normal numbers. The uniform under the logarithm is above 0.
      for (std::uint64_t i = 0; i < n; i += 4) {
        const core::PhiloxBlock block = core::philox(key, step, i / 4);
        for (std::uint64_t pair = 0; pair < 2; ++pair) {
          const double u = (static_cast<double>(block[2 * pair]) + 1.0) * 0x1.0p-32;
          const double angle = 2.0 * std::numbers::pi * static_cast<double>(block[2 * pair + 1]) * 0x1.0p-32;
          const double radius = deviation * std::sqrt(-2.0 * std::log(u));
          if (i + 2 * pair < n) data[i + 2 * pair] = static_cast<float>(radius * std::cos(angle));
          if (i + 2 * pair + 1 < n) data[i + 2 * pair + 1] = static_cast<float>(radius * std::sin(angle));
        }
      }
    }
    value = value.to(dtype).requires_grad_(true);
  };
  visit_weights(hf.decoder, weights, fill);
  return std::make_unique<Decoder>(std::move(hf), std::move(weights));
}

RLALGO_INLINE std::unique_ptr<Decoder> outline_decoder(HfConfig hf) {
  DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(hf.decoder.layers));
  visit_weights(hf.decoder, weights, [](const std::string&, Tensor& value, const auto&, WeightRole) {
    value = tensor::empty({0}, at::TensorOptions().dtype(at::ScalarType::Float));
  });
  return std::make_unique<Decoder>(std::move(hf), std::move(weights));
}

}  // namespace rlalgo::model
