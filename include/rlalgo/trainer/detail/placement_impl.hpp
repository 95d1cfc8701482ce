// Definitions of placement.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/run/step.hpp>
#include <rlalgo/trainer/led_run.hpp>
#include <rlalgo/trainer/placement.hpp>
#include <rlalgo/trainer/streaming.hpp>

namespace rlalgo::trainer {

namespace detail {

inline constexpr const char* pieces_key = "pieces";

// The parameter that a tensor of a state belongs to: the longest of those names that it begins with.
inline const std::pair<const std::string, ParameterRange>* owner_of(const std::string& name,
                                                                    const ParameterRanges& parts) {
  for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1))
    if (const auto found = parts.find(name.substr(0, dot)); found != parts.end()) return &*found;
  return nullptr;
}

[[noreturn]] inline void raise_no_state(const std::filesystem::path& directory, const std::string& found) {
  core::raise("trainer", 42,
              {.what = "the checkpoint lacks a part of the optimizer's state",
               .found = found,
               .where = directory.string(),
               .remedy = "resume with the model and the optimizer that the run was started with"});
}

// One file of a state, and which elements of parameters it has.
struct StatePart {
  std::unique_ptr<model::SafetensorsFile> file;
  ParameterRanges parts;  // empty: whole parameters
};

inline std::vector<StatePart> state_parts(const std::filesystem::path& directory) {
  std::vector<StatePart> out;
  std::set<std::filesystem::path> names;
  for (const auto& item : std::filesystem::directory_iterator(directory)) {
    const std::string name = item.path().filename().string();
    if (name == optimizer_file || (name.starts_with("optimizer-") && name.ends_with(".safetensors")))
      names.insert(item.path());
  }
  for (const std::filesystem::path& name : names) {
    StatePart part{std::make_unique<model::SafetensorsFile>(name), {}};
    if (const auto found = part.file->metadata().find(pieces_key); found != part.file->metadata().end()) {
      const run::Json pieces = run::Json::parse(found->second);
      for (const auto& [parameter, range] : pieces.items())
        part.parts[parameter] = {range.at(0).get<std::int64_t>(), range.at(1).get<std::int64_t>()};
    }
    out.push_back(std::move(part));
  }
  return out;
}

}  // namespace detail

RLALGO_INLINE void write_optimizer_part(const std::filesystem::path& file, const Placement::State& state,
                                        const ParameterRanges& parts) {
  run::Json pieces = run::Json::object();
  for (const auto& [name, range] : parts) pieces[name] = {range.begin, range.end};
  model::write_safetensors(file, state, {{"format", "pt"}, {detail::pieces_key, pieces.dump()}});
}

RLALGO_INLINE std::map<std::string, tensor::Tensor> read_optimizer_parts(const std::filesystem::path& directory,
                                                                         const Placement::State& own,
                                                                         const ParameterRanges& parts) {
  const c10::NoGradGuard no_grad;
  const std::vector<detail::StatePart> files = detail::state_parts(directory);
  std::map<std::string, tensor::Tensor> out;
  for (const auto& [name, like] : own) {
    const auto* owner = detail::owner_of(name, parts);
    if (owner == nullptr) detail::raise_no_state(directory, name + " belongs to no parameter");
    const auto [begin, end] = owner->second;
    const bool scalar = like.dim() == 0;
    tensor::Tensor target = tensor::empty(like.sizes(), like.options().requires_grad(false));
    std::int64_t filled = 0;
    for (const detail::StatePart& part : files) {
      if (filled == (scalar ? 1 : end - begin)) break;
      const auto entry = part.file->entries().find(name);
      if (entry == part.file->entries().end()) continue;
      const tensor::Tensor stored = part.file->map(name);
      if (stored.scalar_type() != like.scalar_type()) detail::raise_no_state(directory, name + " of another type");
      if (scalar) {
        target.copy_(stored);
        filled = 1;
        break;
      }
      ParameterRange theirs{0, stored.numel()};
      if (const auto found = part.parts.find(owner->first); found != part.parts.end()) theirs = found->second;
      const std::int64_t from = std::max(begin, theirs.begin), to = std::min(end, theirs.end);
      if (from >= to) continue;
      if (theirs.end - theirs.begin != stored.numel()) detail::raise_no_state(directory, name + " of another size");
      target.view({-1})
          .narrow(0, from - begin, to - from)
          .copy_(stored.view({-1}).narrow(0, from - theirs.begin, to - from));
      filled += to - from;
    }
    if (filled != (scalar ? 1 : end - begin)) detail::raise_no_state(directory, "not all of " + name);
    out.emplace(name, std::move(target));
  }
  return out;
}

RLALGO_INLINE void read_parameters(const std::filesystem::path& directory,
                                   const std::map<std::string, std::vector<std::int64_t>>& shapes,
                                   const std::function<void(const std::string&, const tensor::Tensor&)>& see) {
  const c10::NoGradGuard no_grad;
  const model::CheckpointFiles files(directory);
  const char* remedy = "name a checkpoint of this model: base_model and adapter as the run had them";
  for (const auto& [name, shape] : shapes) {
    const auto found = files.places().find(name);
    if (found == files.places().end())
      core::raise("trainer", 21,
                  {.what = "the checkpoint lacks a trained parameter",
                   .found = "no tensor " + name,
                   .where = directory.string(),
                   .remedy = remedy});
    if (found->second.entry->shape != shape)
      core::raise("trainer", 25,
                  {.what = "the checkpoint has a parameter of another shape",
                   .found = name + " " + run::Json(found->second.entry->shape).dump(),
                   .expected = run::Json(shape).dump(),
                   .where = directory.string(),
                   .remedy = remedy});
  }
  for (const auto& [name, shape] : shapes) see(name, files.map(name));
}

RLALGO_INLINE void Placement::save_optimizer(const std::filesystem::path& directory, const State& state) {
  model::write_safetensors(directory / optimizer_file, state);
}

RLALGO_INLINE std::map<std::string, tensor::Tensor> Placement::load_optimizer(const std::filesystem::path& directory,
                                                                              const State& own) {
  if (std::filesystem::exists(directory / optimizer_file)) return model::read_safetensors(directory / optimizer_file);
  ParameterRanges whole;
  for (const model::Parameter& p : parameters()) whole[p.name] = {0, p.value.numel()};
  return read_optimizer_parts(directory, own, whole);
}

RLALGO_INLINE void WholePlacement::require_same_start() { trainer::require_same_start(*world_, parameters_); }

RLALGO_INLINE WholePlacement::WholePlacement(model::Policy& policy, std::shared_ptr<distributed::World> world)
    : WholePlacement(policy.parameters(), std::move(world)) {
  if (world_->size() == 1) return;
  const auto gate = policy.gate();
  if (gate != nullptr && std::dynamic_pointer_cast<distributed::GradientSums>(gate) == nullptr) return;
  const at::Device device = parameters_.empty() ? at::Device(at::kCPU) : parameters_.front().value.device();
  for (const model::Parameter& p : parameters_)
    if (p.value.device() != device) return;
  if (!policy.set_gate(nullptr)) return;
  std::vector<int> ranks(static_cast<std::size_t>(world_->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  sums_ = std::make_shared<distributed::GradientSums>(parameters_, world_->convene(ranks, device));
  policy.set_gate(sums_);
}

RLALGO_INLINE std::vector<tensor::Tensor> WholePlacement::reduced(double factor) {
  scale_gradients(parameters_, factor);
  if (sums_ == nullptr) return summed_gradients(*world_, parameters_);
  world_->barrier("sum of gradients");
  return sums_->finish();
}

RLALGO_INLINE double WholePlacement::reduce_gradients(double max_norm, double factor) {
  std::vector<tensor::Tensor> gradients = reduced(factor);
  return optim::clip_grad_norm(gradients, max_norm);
}

RLALGO_INLINE optim::DeviceClip Placement::reduce_on_device(double /*max_norm*/, double /*factor*/,
                                                            std::span<const tensor::Tensor> /*losses*/) {
  core::raise("trainer", 44,
              {.what = "gradients that lie so cannot be clipped without the host",
               .remedy = "ask clips_on_device(), or call reduce_gradients()"});
}

RLALGO_INLINE bool WholePlacement::clips_on_device() const {
  return !parameters_.empty() && std::all_of(parameters_.begin(), parameters_.end(), [&](const model::Parameter& p) {
    const at::Device device = p.value.device();
    return !device.is_cpu() && device == parameters_.front().value.device();
  });
}

RLALGO_INLINE optim::DeviceClip WholePlacement::reduce_on_device(double max_norm, double factor,
                                                                 std::span<const tensor::Tensor> losses) {
  std::vector<tensor::Tensor> gradients = reduced(factor);
  // Nothing was differentiated: as a gradient of zeros.
  if (gradients.empty())
    gradients.push_back(tensor::zeros({1}, parameters_.front().value.options().requires_grad(false)));
  return optim::device_clip(gradients, max_norm, losses);
}

RLALGO_INLINE std::vector<std::pair<std::string, double>> WholePlacement::seconds() {
  if (sums_ == nullptr) return {};
  const double busy = sums_->busy(), waited = sums_->waited();
  return {{"sums", busy - std::exchange(busy_, busy)}, {"sums_wait", waited - std::exchange(waited_, waited)}};
}

RLALGO_INLINE void WholePlacement::load_weights(const std::filesystem::path& directory) {
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::map<std::string, tensor::Tensor> values;
  for (const model::Parameter& p : parameters_) {
    shapes[p.name] = p.value.sizes().vec();
    values[p.name] = p.value;
  }
  read_parameters(directory, shapes, [&](const std::string& name, const tensor::Tensor& stored) {
    values.at(name).detach().copy_(stored);
  });
}

}  // namespace rlalgo::trainer
