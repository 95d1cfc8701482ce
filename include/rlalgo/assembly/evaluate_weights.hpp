// An evaluation with the weights of a checkpoint (whose files are verified, as for a resume) or of a model's directory.
//
// What they must share with the trainer's model: parameters by name and shape, the architecture of its
// config.json, and for an adapter or a reference the base model's weights. Other settings may differ, and are named.
//
// Errors: [rlalgo.config.29] the weights are of another model; those of run/checkpoint.hpp and Trainer::load_weights().
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/resume.hpp>
#include <rlalgo/run/step.hpp>
#include <rlalgo/run/trainer_state.hpp>

namespace rlalgo::assembly {

namespace detail {

[[noreturn]] inline void raise_other_model(const std::filesystem::path& weights, const std::string& found,
                                           const std::string& expected) {
  core::raise("config", 29,
              {.what = "the weights are of another model",
               .found = found,
               .expected = expected,
               .where = weights.string(),
               .remedy = "evaluate with base_model and adapter as the weights were trained"});
}

// What tensors' names and shapes do not tell.
inline void require_architecture(const std::filesystem::path& weights, const model::DecoderConfig& own) {
  // An adapter's is that of the base that it names, where it is here.
  std::filesystem::path described = weights;
  if (!std::filesystem::exists(weights / "config.json") && model::is_adapter_directory(weights)) {
    const std::string name = model::adapter_base_model(weights);
    described = name;
    if (!os::is_directory(described) && data::is_hub_id(name))
      described = data::find_in_hub_cache(data::HubKind::models, name).value_or("");
  }
  if (!std::filesystem::exists(described / "config.json")) return;
  const model::DecoderConfig other = model::read_hf_config(described).decoder;
  const auto head = [](const model::DecoderConfig& c) {
    return std::to_string(c.layers) + " layers, " + std::to_string(c.heads) + "/" + std::to_string(c.kv_heads) +
           " heads of " + std::to_string(c.head_dim) + ", " + c.model_type;
  };
  if (head(own) != head(other)) raise_other_model(weights, head(other), head(own));
  const auto details = [](const model::DecoderConfig& c) {
    return std::tuple(c.vocab_size, c.hidden_size, c.norm, c.tied_embeddings, c.ropes, c.specs);
  };
  if (details(own) != details(other))
    raise_other_model(weights, "other positions, norms or vocabulary in its config.json", "those of base_model");
}

// An adapter of the same tensors may still be another one: its scale is in its configuration.
inline void require_adapter(const std::filesystem::path& weights, const model::Decoder& decoder) {
  if (decoder.adapter() == nullptr || !model::is_adapter_directory(weights)) return;
  const data::Json own = model::adapter_config_json(decoder.adapter()->config, "");
  const data::Json other = model::adapter_config_json(model::read_adapter_config(weights), "");
  for (const char* key : {"r", "lora_alpha", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora",
                          "modules_to_save", "target_parameters"})
    if (own.at(key) != other.at(key))
      raise_other_model(weights, std::string(key) + ": " + other.at(key).dump(), own.at(key).dump());
  std::set<std::string> names;
  for (const auto& [name, value] : model::adapter_tensors(decoder)) names.insert(name);
  const model::CheckpointFiles files(weights);
  for (const auto& [name, place] : files.places())
    if (name.find(".lora_") != std::string::npos && !names.contains(name))
      raise_other_model(weights, "tensor " + name, "the modules that lora_target_modules names");
}

// The base below an adapter, or the reference: the run's own note of its weights.
inline void require_base(const run::LoadedCheckpoint& checkpoint, const run::Json& settings) {
  const run::Json& saved = checkpoint.state["settings"];
  for (const char* key : {"weights of base_model", "weights of lora_model_dir"})
    if (saved.contains(key) && settings.contains(key) && saved[key] != settings[key])
      raise_other_model(checkpoint.path, std::string(key) + " " + saved[key].dump(), settings[key].dump());
}

inline void tell_differences(const run::LoadedCheckpoint& checkpoint, const run::Json& settings,
                             const run::ResumeRules& rules, const std::function<void(const std::string&)>& note) {
  if (!note) return;
  for (const run::Difference& difference : run::differences(checkpoint.state["settings"], settings))
    if (!rules.free.contains(difference.key) && !rules.extended.contains(difference.key))
      note("evaluated with another setting than it was trained with: " + difference.text);
}

// Step and epoch of a finished run's output_dir, as far as it says.
inline void read_progress(const std::filesystem::path& weights, run::Record& record) {
  const std::filesystem::path file = weights / run::trainer_state_file;
  if (!std::filesystem::exists(file)) return;
  const run::Json state = run::detail::read_json(file);
  if (!state.is_object()) return;
  if (const auto step = state.find("global_step"); step != state.end() && step->is_number_integer())
    record.step = step->get<std::int64_t>();
  if (const auto epoch = state.find("epoch"); epoch != state.end() && epoch->is_number())
    record.epoch = epoch->get<double>();
}

}  // namespace detail

// Of the trainer's evaluation rows. `weights`: a directory; empty: those that the trainer begins with. `rules`: of settings that may
// differ without a word.
template <class Trainer>
run::Record evaluate_weights(Trainer& trainer, const model::Decoder& decoder, const std::filesystem::path& weights,
                             const run::ResumeRules& rules = {},
                             const std::function<void(const std::string&)>& note = {}) {
  run::Record record;
  if (!weights.empty()) {
    detail::require_architecture(weights, decoder.config());
    detail::require_adapter(weights, decoder);
    if (std::filesystem::exists(weights / run::state_file)) {
      const run::LoadedCheckpoint checkpoint = run::read_checkpoint(weights);
      detail::require_base(checkpoint, trainer.config().loop.settings);
      detail::tell_differences(checkpoint, trainer.config().loop.settings, rules, note);
      trainer.load_weights(weights, &checkpoint.state["owner"]);
      record.step = checkpoint.step;
      record.epoch = checkpoint.state["epoch"].template get<double>();
    } else {
      if (note && trainer.has_companions())
        note("a synced reference and an adaptive coefficient are in checkpoints only: they are as at the start");
      trainer.load_weights(weights);
      detail::read_progress(weights, record);
    }
  }
  const os::Stopwatch watch;
  const core::Metrics metrics = trainer.evaluate();
  return run::evaluation_record(record.step, record.epoch, metrics, watch.seconds());
}

}  // namespace rlalgo::assembly
