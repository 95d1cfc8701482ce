// Definitions of weight_store.hpp.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/joined_experts.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/weight_store.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::serve {

namespace detail {

[[noreturn]] inline void refuse_adapter(int status, const std::string& found, const std::filesystem::path& directory) {
  refuse_request(status, 18,
                 {.what = "the adapter cannot be used",
                  .found = found,
                  .where = directory.string(),
                  .remedy = "name a complete PEFT directory of this base model"},
                 "lora_path");
}

inline bool all_finite(const tensor::Tensor& t) {
  const tensor::Tensor values = t.to(at::Device(at::kCPU), at::kFloat).contiguous();
  const float* const data = values.const_data_ptr<float>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    if (!std::isfinite(data[i])) return false;
  return true;
}

}  // namespace detail

RLALGO_INLINE WeightStore::WeightStore(std::shared_ptr<const model::Decoder> decoder, Engine& engine,
                                       std::shared_ptr<const model::DecoderWeights> weights)
    : decoder_(std::move(decoder)),
      untied_(decoder_->config()),
      engine_(engine),
      base_weights_(weights != nullptr ? std::move(weights)
                                       : std::make_shared<const model::DecoderWeights>(decoder_->weights())) {
  untied_.tied_embeddings = false;
  base_ = view(base_weights_, 0);
}

RLALGO_INLINE inference::Forward::WeightsHandle WeightStore::base() const {
  const std::lock_guard lock(mutex_);
  return base_;
}

RLALGO_INLINE inference::Forward::WeightsHandle WeightStore::find(const std::string& adapter) const {
  const std::lock_guard lock(mutex_);
  const auto at = adapters_.find(adapter);
  return at == adapters_.end() ? nullptr : at->second.handle;
}

RLALGO_INLINE std::vector<WeightStore::Adapter> WeightStore::adapters() const {
  const std::lock_guard lock(mutex_);
  std::vector<Adapter> out;
  for (const auto& [name, held] : adapters_) out.push_back(held.adapter);
  return out;
}

RLALGO_INLINE std::int64_t WeightStore::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

RLALGO_INLINE std::string WeightStore::version_name() const { return name_of(version()); }

RLALGO_INLINE std::string WeightStore::name_of(std::int64_t version) const {
  const std::lock_guard lock(mutex_);
  const auto at = names_.find(version);
  return at == names_.end() ? std::to_string(version) : at->second;
}

RLALGO_INLINE void WeightStore::name_version(std::string name) {
  const std::lock_guard lock(mutex_);
  remember_name(std::move(name));
}

RLALGO_INLINE void WeightStore::remember_name(std::string name) {
  names_.insert_or_assign(version_, std::move(name));
  if (names_.size() > most_names) names_.erase(names_.begin());
}

RLALGO_INLINE inference::Forward::WeightsHandle WeightStore::view(const Weights& weights, std::int64_t version) const {
  inference::Forward::WeightsHandle out;
  engine_.call([&](inference::DecoderEngine& decoder) { out = decoder.view(*weights, version, weights); });
  return out;
}

RLALGO_INLINE void WeightStore::forget(const inference::Forward::WeightsHandle& before) const {
  engine_.call([&](inference::DecoderEngine& decoder) { decoder.scheduler().forget(before->contents); });
}

RLALGO_INLINE WeightStore::Weights WeightStore::read(const std::filesystem::path& directory) const {
  if (!os::is_directory(directory)) detail::refuse_adapter(404, "no directory", directory);
  if (!model::is_adapter_directory(directory))
    detail::refuse_adapter(404, std::string("no ") + model::adapter_config_file, directory);
  Weights base;
  {
    const std::lock_guard lock(mutex_);
    base = base_weights_;
  }
  try {
    const c10::NoGradGuard no_grad;
    model::Decoder adapted(decoder_->hf_config(), *base);
    model::load_adapter(adapted, directory);
    if (const std::int64_t tokens = adapted.config().vocab_size; tokens != decoder_->config().vocab_size)
      detail::refuse_adapter(400,
                             "a vocabulary of " + std::to_string(tokens) + " tokens, where the server's has " +
                                 std::to_string(decoder_->config().vocab_size) + " (serve the adapter as the model)",
                             directory);
    model::DecoderWeights weights = adapted.weights();
    model::visit_loras(adapted.config(), weights,
                       [&](const std::string& path, model::Lora& lora, const tensor::Tensor&) {
                         for (tensor::Tensor* value : {&lora.a, &lora.b, &lora.magnitude}) {
                           if (!value->defined()) continue;
                           *value = value->detach();
                           if (!detail::all_finite(*value))
                             detail::refuse_adapter(400, "values that are not finite, module " + path, directory);
                         }
                       });
    return std::make_shared<const model::DecoderWeights>(std::move(weights));
  } catch (const Refusal&) {
    throw;
  } catch (const std::exception& error) {
    detail::refuse_adapter(400, error.what(), directory);
  }
}

RLALGO_INLINE void WeightStore::load_adapter(const std::string& name, const std::filesystem::path& directory,
                                             bool in_place) {
  const std::lock_guard one_at_a_time(changing_);
  if (!in_place && find(name))
    refuse_request(400, 16,
                   {.what = "an adapter of that name is loaded already",
                    .found = name,
                    .remedy = "unload it first, or load it with \"load_inplace\": true"},
                   "lora_name");
  const Weights weights = read(directory);
  std::int64_t version = 0;
  {
    const std::lock_guard lock(mutex_);
    version = ++version_;
  }
  Held held{.adapter = {.name = name,
                        .path = directory,
                        .since = std::chrono::duration_cast<std::chrono::seconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count()},
            .weights = weights,
            .handle = view(weights, version)};
  inference::Forward::WeightsHandle before;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = adapters_.find(name); at != adapters_.end()) before = at->second.handle;
    adapters_.insert_or_assign(name, std::move(held));
  }
  if (before) forget(before);
}

RLALGO_INLINE void WeightStore::unload_adapter(const std::string& name) {
  const std::lock_guard one_at_a_time(changing_);
  inference::Forward::WeightsHandle before;
  {
    const std::lock_guard lock(mutex_);
    const auto at = adapters_.find(name);
    if (at == adapters_.end())
      refuse_request(404, 5, {.what = "there is no adapter of that name", .found = name}, "lora_name");
    before = at->second.handle;
    adapters_.erase(at);
  }
  forget(before);
}

RLALGO_INLINE std::vector<std::pair<std::string, tensor::Tensor>> WeightStore::named_tensors() const {
  Weights base;
  {
    const std::lock_guard lock(mutex_);
    base = base_weights_;
  }
  std::vector<std::pair<std::string, tensor::Tensor>> out;
  model::visit_weights(decoder_->config(), *base,
                       [&](const std::string& name, const tensor::Tensor& value, const auto&, model::WeightRole) {
                         out.emplace_back(name, value);
                       });
  return out;
}

RLALGO_INLINE tensor::Tensor WeightStore::numbers_of(const std::string& name, const tensor::Tensor& value) const {
  if (!model::is_stand_in(value)) return value;
  Weights base;
  {
    const std::lock_guard lock(mutex_);
    base = base_weights_;
  }
  tensor::Tensor out = value;
  model::visit_maps(decoder_->config(), *base, [&](const std::string& path, const model::Linear& map, auto, bool) {
    if (map.quantised && path + ".weight" == name) out = map.quantised->dense(value.scalar_type());
  });
  return out;
}

RLALGO_INLINE void WeightStore::check(const std::string& name, const std::vector<std::int64_t>& shape) const {
  bool found = false;
  const model::DecoderWeights outline{
      .layers = std::vector<model::LayerWeights>(static_cast<std::size_t>(decoder_->config().layers))};
  model::visit_weights(untied_, outline,
                       [&](const std::string& known, const tensor::Tensor&, const auto& expected, model::WeightRole) {
                         if (known != name) return;
                         found = true;
                         if (expected != shape)
                           refuse_request(400, 19,
                                          {.what = "a tensor has another shape than the model's",
                                           .found = model::Json(shape).dump(),
                                           .expected = model::Json(expected).dump(),
                                           .where = name});
                       });
  if (found) return;
  if (const std::vector<std::int64_t> expected = model::joined_shape(untied_, name); !expected.empty()) {
    if (expected == shape) return;
    refuse_request(400, 19,
                   {.what = "a tensor has another shape than the model's",
                    .found = model::Json(shape).dump(),
                    .expected = model::Json(expected).dump(),
                    .where = name});
  }
  refuse_request(400, 19,
                 {.what = "the model has no such tensor",
                  .found = name,
                  .remedy = "send the names of the checkpoint; the whole update was refused"});
}

RLALGO_INLINE at::Device WeightStore::device() const {
  const std::lock_guard lock(mutex_);
  return base_weights_->embedding.device();
}

RLALGO_INLINE void WeightStore::update(const std::vector<model::NamedTensor>& sent, const std::string& name) {
  const std::lock_guard one_at_a_time(changing_);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, value] : sent) {
    check(name, value.sizes().vec());
    if (!value.is_floating_point())
      refuse_request(400, 19,
                     {.what = "a tensor holds no floating-point numbers",
                      .found = std::string(c10::toString(value.scalar_type())),
                      .where = name});
  }
  const std::vector<model::NamedTensor> tensors = model::without_joined_experts(decoder_->config(), sent);
  Weights from;
  {
    const std::lock_guard lock(mutex_);
    from = base_weights_;
  }
  auto next = std::make_shared<model::DecoderWeights>(*from);
  const bool tied = from->lm_head.defined() && from->lm_head.const_data_ptr() == from->embedding.const_data_ptr();
  bool own_head = false;
  for (const auto& [name, value] : tensors) {
    own_head = own_head || name == "lm_head.weight";
    model::visit_weights(untied_, *next,
                         [&, &wanted = name, &sent = value](const std::string& known, tensor::Tensor& place,
                                                            const auto&, model::WeightRole) {
                           if (known == wanted)
                             place = sent.to(place.device(), place.scalar_type(), /*non_blocking=*/false,
                                             /*copy=*/sent.is_cpu())
                                         .contiguous();
                         });
    // A map that was in 4 or 8 bits is whole from then on.
    model::visit_maps(untied_, *next, [&, &wanted = name](const std::string& path, model::Linear& map, auto, bool) {
      if (path + ".weight" == wanted) map.quantised = nullptr;
    });
  }
  if (tied && !own_head) next->lm_head = next->embedding;
  if (tied && own_head && next->lm_head.defined()) {
    // A checkpoint of a tied model may name both; they are one tensor, and the embedding's name is the model's.
    bool embedding = false;
    for (const auto& [name, value] : tensors) embedding = embedding || name == "model.embed_tokens.weight";
    if (embedding)
      next->lm_head = next->embedding;
    else
      next->embedding = next->lm_head;
  }
  put_in_force(from, next, name);
}

RLALGO_INLINE void WeightStore::replace(std::shared_ptr<const model::DecoderWeights> weights, const std::string& name) {
  const std::lock_guard one_at_a_time(changing_);
  const c10::NoGradGuard no_grad;
  Weights from;
  {
    const std::lock_guard lock(mutex_);
    from = base_weights_;
  }
  put_in_force(from, weights, name);
}

RLALGO_INLINE void WeightStore::put_in_force(const Weights& from, const Weights& next, const std::string& name) {
  std::map<std::string, Held> adapters;
  {
    const std::lock_guard lock(mutex_);
    adapters = adapters_;
  }
  const std::int64_t version = this->version() + 1;
  const auto handle = view(next, version);
  for (auto& [_, held] : adapters) {
    held.weights = rebased(*held.weights, *from, *next);
    held.handle = view(held.weights, version);
  }
  std::vector<inference::Forward::WeightsHandle> before;
  {
    const std::lock_guard lock(mutex_);
    before.push_back(std::exchange(base_, handle));
    base_weights_ = next;
    for (const auto& [_, held] : adapters_) before.push_back(held.handle);
    adapters_ = std::move(adapters);
    version_ = version;
    if (!name.empty()) remember_name(name);
  }
  for (const auto& old : before) forget(old);
}

RLALGO_INLINE WeightStore::Weights WeightStore::rebased(const model::DecoderWeights& adapted,
                                                        const model::DecoderWeights& from,
                                                        const model::DecoderWeights& to) const {
  std::map<std::string, std::pair<const void*, tensor::Tensor>> places;  // by name: where it was, what it is now
  model::visit_weights(untied_, from,
                       [&](const std::string& name, const tensor::Tensor& value, const auto&, model::WeightRole) {
                         places[name].first = value.defined() ? value.const_data_ptr() : nullptr;
                       });
  model::visit_weights(untied_, to,
                       [&](const std::string& name, const tensor::Tensor& value, const auto&, model::WeightRole) {
                         places[name].second = value;
                       });
  auto out = std::make_shared<model::DecoderWeights>(adapted);
  model::visit_weights(untied_, *out,
                       [&](const std::string& name, tensor::Tensor& value, const auto&, model::WeightRole) {
                         const auto& [was, now] = places.at(name);
                         if (value.defined() && value.const_data_ptr() == was) value = now;
                       });
  model::visit_maps(untied_, *out, [](const std::string&, model::Linear& map, auto, bool) {
    if (!model::is_stand_in(map.weight)) map.quantised = nullptr;
  });
  return out;
}

}  // namespace rlalgo::serve
