// Definitions of merge_adapter.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/detail/config_fields.hpp>
#include <rlalgo/model/expert_adapter.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/merge_adapter.hpp>
#include <rlalgo/model/quantised_files.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/final_files.hpp>
#include <rlalgo/run/model_card.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE std::vector<std::filesystem::path> side_files(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> out;
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    const std::string name = item.path().filename().string(), end = item.path().extension().string();
    const bool weights = end == ".safetensors" || end == ".bin" || end == ".pt" || end == ".pth" || end == ".gguf" ||
                         end == ".h5" || end == ".msgpack" || name.ends_with(".index.json");
    if (item.is_regular_file() && !weights && name != "config.json" && !name.starts_with("adapter_") &&
        !name.starts_with(".") && name != run::model_card_file)
      out.push_back(item.path());
  }
  return out;
}

RLALGO_INLINE bool is_tokenizer_file(const std::string& name) {
  static const std::set<std::string> names = {
      "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "vocab.json",
      "merges.txt",     "added_tokens.json",     "tokenizer.model",     "special_tokens_map.json"};
  return names.contains(name);
}

RLALGO_INLINE AdapterMerger::AdapterMerger(const std::filesystem::path& base, const std::filesystem::path& adapter,
                                           MergeOptions options)
    : base_(base),
      hf_(read_hf_config(base)),
      config_(read_adapter_config(adapter)),
      files_(base),
      quantised_(files_),
      options_(std::move(options)),
      adapter_(adapter) {
  untie_by_files(hf_, files_, at::kFloat);
  DecoderWeights outline;
  outline.layers.resize(static_cast<std::size_t>(hf_.decoder.layers));
  visit_maps(hf_.decoder, outline, [&](const std::string& path, const Linear&, std::int64_t layer, bool routed) {
    if (options_.quantisation && quantised_.empty() &&
        quantises(*options_.quantisation, path, hf_.decoder.spec(layer), routed))
      to_quantise_.insert(path + ".weight");
  });
  visit_weights(hf_.decoder, outline,
                [&](const std::string& name, const Tensor&, const std::vector<std::int64_t>& shape, WeightRole) {
                  if (is_in_bits(name)) shapes_[name] = shape;
                });
  report_.quantised = static_cast<std::int64_t>(shapes_.size());
  const c10::NoGradGuard no_grad;
  if (files_.contains(stored_name(files_, hf_.decoder, "model.embed_tokens.weight")))
    own_ = new_embeddings(adapter_, config_, embeddings_of_base(), hf_.decoder.tied_embeddings);
}

RLALGO_INLINE AdapterEmbeddings AdapterMerger::embeddings_of_base() const {
  const Tensor input = files_.map(stored_name(files_, hf_.decoder, "model.embed_tokens.weight"));
  const bool one = hf_.decoder.tied_embeddings || !files_.contains("lm_head.weight");
  return {input, one ? input : files_.map("lm_head.weight")};
}

RLALGO_INLINE Tensor AdapterMerger::base_tensor(const std::string& source) const {
  if (own_.input.defined() && source == "model.embed_tokens.weight") return own_.input;
  if (own_.output.defined() && source == "lm_head.weight") return own_.output;
  if (const auto shape = shapes_.find(source); shape != shapes_.end())
    return (quantised_.contains(source)
                ? quantised_.read(source, shape->second, at::kFloat)
                : quantise(files_.convert(source, options_.computed), *options_.quantisation, source))
        .dense(options_.computed)
        .to(at::kFloat);
  return files_.map(source);
}

RLALGO_INLINE Tensor AdapterMerger::written(const Tensor& exact, at::ScalarType dtype) {
  const Tensor out = exact.to(dtype);
  constexpr std::int64_t most = std::int64_t{1} << 20U;
  const Tensor a = exact.reshape({-1}), b = out.reshape({-1});
  for (std::int64_t at = 0; at < a.numel(); at += most) {
    const std::int64_t n = std::min(most, a.numel() - at);
    const Tensor apart = a.narrow(0, at, n).to(at::kDouble).sub_(b.narrow(0, at, n)).abs_();
    report_.largest = std::max(report_.largest, apart.max().item<double>());
    report_.sum += apart.sum().item<double>();
    report_.rounded += n;
  }
  return out;
}

RLALGO_INLINE void AdapterMerger::write(const std::filesystem::path& target) {
  const c10::NoGradGuard no_grad;
  find_expert_parts();
  // Shards in the order of their names; a tensor that the adapter adds goes into the last.
  std::map<std::string, PendingTensors> shards;
  std::set<std::string> parts;  // of quantised weights
  for (const auto& [name, shape] : shapes_)
    if (quantised_.contains(name)) parts.merge(quantised_.parts(name));
  for (const auto& [name, place] : files_.places())
    if (!parts.contains(name) && unread_part(name, hf_.decoder).empty() &&
        !(untied() && name == "lm_head.weight" && hf_.decoder.tied_embeddings))
      shards[place.file->path().filename().string()].push_back(pending(name, name));
  if (untied())
    shards.rbegin()->second.push_back(
        pending("lm_head.weight", stored_name(files_, hf_.decoder, "model.embed_tokens.weight")));
  for (const auto& [name, given] : adapter_.names())
    if (!used_.contains(name) && !is_read_elsewhere(adapter_, name))
      core::raise("model", 30,
                  {.what = "the adapter has a tensor without a place in the model",
                   .found = given,
                   .where = adapter_.path().string(),
                   .remedy = "the adapter was trained on another base model"});
  Json index;
  std::uint64_t total = 0;
  std::map<std::string, std::string> home;
  for (auto& [file, tensors] : shards) {
    os::stop_if_interrupted();
    tensors = with_joined_experts(hf_.decoder, std::move(tensors));
    for (const PendingTensor& t : tensors) {
      total += t.bytes();
      home[t.name] = file;
    }
    write_pending_safetensors(target / file, std::move(tensors));
  }
  if (shards.size() > 1 || shards.begin()->first != "model.safetensors") {
    index["metadata"] = {{"total_size", total}};
    index["weight_map"] = home;
    os::write_file(target / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  Json json = hf_.json;
  if (untied()) json["tie_word_embeddings"] = false;
  if (own_.input.defined()) json["vocab_size"] = own_.input.size(0);
  if (!quantised_.empty()) json.erase("quantization_config");
  if (!quantised_.empty() || options_.dtype)
    for (const char* key : {"torch_dtype", "dtype"})
      if (json.contains(key)) json[key] = report_.dtype;
  os::write_file(target / "config.json", json.dump(2) + "\n");
}

RLALGO_INLINE void AdapterMerger::find_expert_parts() {
  for (std::int64_t layer = 0; layer < hf_.decoder.layers; ++layer) {
    const ExpertSpec& e = hf_.decoder.spec(layer).experts;
    if (e.count == 0) continue;
    const std::string prefix = layer_prefix(static_cast<std::size_t>(layer)), base = prefix + "mlp.experts.";
    const auto named = [&](std::string_view map) { return is_target_parameter(config_, base + std::string(map)); };
    const bool both = named("gate_up_proj") && named("down_proj");
    for (const ExpertMap& map : expert_maps(e, hf_.decoder.hidden_size)) {
      if (!named(map.joined)) continue;
      const std::string parameter = base + std::string(map.joined), at = joined_adapter_path(parameter, both);
      const LoraShape shape = lora_shape(config_, parameter);
      expect(key(at, ".lora_A.weight"), {e.count * shape.r, map.columns});
      expect(key(at, ".lora_B.weight"), {map.all_rows, shape.r * e.count});
      for (std::int64_t i = 0; i < e.count; ++i)
        expert_parts_.emplace(
            prefix + std::string(e.block) + ".experts." + std::to_string(i) + "." + std::string(map.name) + ".weight",
            ExpertDelta{at, i, e.count, map.rows, shape.scale});
    }
  }
}

RLALGO_INLINE Tensor AdapterMerger::merged_expert(const Tensor& weight, const ExpertDelta& delta) const {
  Lora all;
  all.scale = delta.scale;
  all.a = adapter_.map(key(delta.path, ".lora_A.weight")).to(at::kFloat);
  all.b = adapter_.map(key(delta.path, ".lora_B.weight")).to(at::kFloat);
  const Lora lora = expert_lora(all, delta.expert, delta.count, delta.rows);
  return tensor::addmm(weight.to(at::kFloat), lora.b, lora.a, 1.0, lora.scale);
}

RLALGO_INLINE std::string AdapterMerger::key(const std::string& path, const std::string& part) const {
  return Decoder::adapter_prefix + path + part;
}

RLALGO_INLINE bool AdapterMerger::untied() const {
  return hf_.decoder.tied_embeddings &&
         (is_saved_module(config_, "lm_head") || is_saved_module(config_, "model.embed_tokens") ||
          holds(key("lm_head", ".lora_A.weight")));
}

RLALGO_INLINE PendingTensor AdapterMerger::pending(const std::string& name, const std::string& source) {
  const auto& entry = *files_.places().at(source).entry;
  const std::string path = name.substr(0, name.rfind('.'));
  const auto in_bits = shapes_.find(source);
  std::vector<std::int64_t> shape = in_bits != shapes_.end() ? in_bits->second : entry.shape;
  if (own_.input.defined() && (path == "model.embed_tokens" || path == "lm_head")) shape.at(0) = own_.input.size(0);
  const at::ScalarType stored = quantised_.empty() ? entry.dtype : at::kBFloat16,
                       dtype = options_.dtype.value_or(stored);
  const bool computed = in_bits != shapes_.end();
  report_.dtype = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
  PendingTensor out{name, dtype, shape, [this, source, dtype, computed] {
                      const Tensor base = base_tensor(source);
                      return computed ? written(base, dtype) : base.to(dtype);
                    }};
  if (is_saved_module(config_, path) && holds(key(name, ""))) {
    expect(key(name, ""), shape);
    out.make = [this, name, dtype] { return adapter_.map(key(name, "")).to(dtype); };
  } else if (name == path + ".weight" && holds(key(path, ".lora_A.weight"))) {
    const LoraShape lora = lora_shape(config_, path);
    expect(key(path, ".lora_A.weight"), {lora.r, shape.at(1)});
    expect(key(path, ".lora_B.weight"), {shape.at(0), lora.r});
    if (config_.use_dora) expect(key(path, ".lora_magnitude_vector"), {shape.at(0)});
    out.make = [this, source, path, lora, dtype] { return written(merged(base_tensor(source), path, lora), dtype); };
  } else if (const auto delta = expert_parts_.find(name); delta != expert_parts_.end()) {
    out.make = [this, source, delta = delta->second, dtype] {
      return written(merged_expert(base_tensor(source), delta), dtype);
    };
  }
  return out;
}

RLALGO_INLINE void AdapterMerger::expect(const std::string& name, const std::vector<std::int64_t>& shape) {
  const bool there = adapter_.contains(name);
  if (!there || adapter_.shape(name) != shape)
    core::raise("model", 30,
                {.what = "a tensor of the adapter is missing or has a wrong shape",
                 .found = there ? Json(adapter_.shape(name)).dump() : "nothing",
                 .expected = Json(shape).dump(),
                 .where = adapter_.path().string() + ", tensor " + name});
  used_.insert(name);
}

RLALGO_INLINE Tensor AdapterMerger::merged(const Tensor& weight, const std::string& path,
                                           const LoraShape& shape) const {
  Tensor base = weight.to(at::kFloat);
  Lora lora;
  lora.scale = shape.scale;
  if (config_.init == LoraInit::pissa) initialise_lora(LoraInit::pissa, {0, 0}, shape.r, lora, base);
  lora.a = adapter_.map(key(path, ".lora_A.weight")).to(at::kFloat);
  lora.b = adapter_.map(key(path, ".lora_B.weight")).to(at::kFloat);
  Tensor out = tensor::addmm(base, lora.b, lora.a, 1.0, lora.scale);
  if (config_.use_dora)
    out.mul_(
        adapter_.map(key(path, ".lora_magnitude_vector")).to(at::kFloat).div(adapted_norm(base, lora)).unsqueeze(1));
  return out;
}

}  // namespace detail

RLALGO_INLINE MergeReport merge_adapter(const std::filesystem::path& base, const std::filesystem::path& adapter,
                                        const std::filesystem::path& target, const MergeOptions& options) {
  std::error_code error;
  for (const auto& source : {base, adapter})
    if (std::filesystem::equivalent(source, target, error))
      core::raise_usage("model", 31,
                        {.what = "the merged model would overwrite what it is made of",
                         .found = target.string(),
                         .remedy = "name another directory"});
  detail::AdapterMerger merger(base, adapter, options);
  (void)run::publish_files(target, [&](const std::filesystem::path& building) {
    const auto copy = [&](const std::filesystem::path& from) {
      std::filesystem::copy_file(from, building / from.filename(), error);
      if (error) os::raise_file_error("cannot copy the file", from, error.value());
    };
    const bool own_tokenizer = os::exists(adapter / "tokenizer.json");
    for (const auto& file : detail::side_files(base))
      if (!own_tokenizer || !detail::is_tokenizer_file(file.filename().string())) copy(file);
    if (own_tokenizer)
      for (const auto& file : detail::side_files(adapter))
        if (detail::is_tokenizer_file(file.filename().string())) copy(file);
    const Json json = detail::read_json_file(adapter / adapter_config_file);
    const auto named = detail::JsonFields(json, adapter.string()).text("base_model_name_or_path");
    os::write_file(building / run::model_card_file,
                   run::to_text({.base_model = named.value_or(base.string()), .merged = true}));
    merger.write(building);
  });
  return merger.report();
}

}  // namespace rlalgo::model
