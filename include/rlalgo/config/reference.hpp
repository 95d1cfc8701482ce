// The reference model of a preference run: the model as it is before training (a frozen copy, or the same tensors with
// the adapter off), its log-probs computed before training, or a copy that follows the policy. A continued adapter
// (lora_model_dir) belongs to the model before training: its start is the reference, unless rl_adapter_ref_model is
// false, which asks for the bare base.
//
// Errors (usage): [rlalgo.config.8] sync_ref_model with an adapter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/sharding.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sampler/precompute_reference.hpp>
#include <rlalgo/trainer/reference_sync.hpp>

namespace rlalgo::config {

struct Reference {
  std::shared_ptr<model::Policy> scorer;  // null where the rows bring their log-probs, or none is needed
  std::vector<std::shared_ptr<trainer::Companion>> companions;  // with trl.sync_ref_model: the sync
  std::vector<std::string> notes;
};

// Everything that decides what the reference computes.
[[nodiscard]] inline std::string reference_identity(const RunConfig& c, const LanguageModel& model) {
  std::string out = weights_identity(resolve_model(c.base_model, c.place("base_model"), c.model_revision.value_or("")));
  if (model.base_model != c.base_model) out += weights_identity(resolve_model(model.base_model, c.place("base_model")));
  if (c.lora_model_dir) out += weights_identity(resolve_model(*c.lora_model_dir, c.place("lora_model_dir")));
  if (c.bfloat16) out += " bfloat16";
  if (const auto bits = c.quantisation()) {
    out += " " + std::string(model::name_of(bits->code)) + " " + std::to_string(bits->block) +
           (bits->nested ? " nested" : "") + (bits->experts ? " experts" : "") + " " +
           std::to_string(static_cast<int>(bits->products));
    for (const std::string& pattern : bits->skip) out += " -" + pattern;
  }
  return out;
}

// What is wrong with the reference that is asked for, before anything is loaded.
inline void check_reference(const RunConfig& c, const ModelPlaces& places) {
  const bool adapter = c.lora || c.lora_model_dir || !places.adapter.empty();
  if (needs_reference(c) && c.preference.sync_ref_model && adapter)
    core::raise_usage("config", 8,
                      {.what = "trl.sync_ref_model does not go with an adapter: policy and reference share the base",
                       .where = c.place("trl.sync_ref_model"),
                       .remedy = "remove one of them"});
}

[[nodiscard]] inline bool bare_reference(const RunConfig& c, const LanguageModel& model) {
  return model.decoder->adapter() != nullptr && !c.preference.rl_adapter_ref_model.value_or(true);
}

// The model that a policy is compared with; null where none is needed. `model.decoder` is the policy before training, which
// `sharding` (or null) holds.
[[nodiscard]] inline std::shared_ptr<model::Decoder> frozen_reference(const RunConfig& c, const LanguageModel& model,
                                                                      Sharding* sharding) {
  if (!needs_reference(c)) return nullptr;
  if (bare_reference(c, model)) return model.decoder->without_adapter();
  return sharding != nullptr ? sharding->reference(*model.decoder) : model.decoder->reference();
}

[[nodiscard]] inline Reference make_reference(const RunConfig& c, const LanguageModel& model,
                                              std::shared_ptr<model::Decoder> frozen, PreferenceData& data,
                                              const RowProgress& progress = {}, const Sharding* sharding = nullptr) {
  Reference out;
  if (frozen == nullptr) return out;
  const PreferenceConfig& p = c.preference;
  const std::shared_ptr<model::Decoder>& policy = model.decoder;
  const bool bare = bare_reference(c, model);
  if (p.precompute_ref_log_probs) {
    const bool mismatched = needs_mismatched(c);
    const std::string identity = reference_identity(c, model) + (bare ? "bare" : "");  // reads the weights' files
    const std::int64_t batch = p.precompute_ref_batch_size.value_or(c.micro_batch_size);
    const auto compute = [&](const std::shared_ptr<data::AnswerSet>& set, std::int64_t per_step) {
      sampler::PrecomputeConfig settings{.batch_size = batch,
                                         .examples_per_step = per_step,
                                         .mismatched = mismatched,
                                         .ld_alpha = p.ld_alpha,
                                         .directory = p.dataset_prepared_path.value_or("last_run_prepared"),
                                         .model_identity = identity};
      settings.progress = [&](std::int64_t examples) {
        os::stop_if_interrupted();
        if (progress) progress("reference log-probs", examples);
      };
      const bool cached = set->per_example() == 2
                              ? sampler::precompute_reference<loss::RowKind::pairs>(*frozen, set, settings)
                              : sampler::precompute_reference<loss::RowKind::unpaired>(*frozen, set, settings);
      out.notes.push_back("reference log-probs of " + std::to_string(set->examples()) + " examples " +
                          (cached ? "read from " : "computed and kept in ") + settings.directory.string());
    };
    compute(data.train, c.micro_batch_size * c.gradient_accumulation_steps);
    if (data.evaluation) compute(data.evaluation, c.eval_batch_size.value_or(c.micro_batch_size));
    return out;
  }
  if (p.sync_ref_model)
    out.companions.push_back(reference_sync({.every = p.ref_model_sync_steps, .mixup = p.ref_model_mixup_alpha},
                                            *policy, *frozen, sharding));
  out.scorer = std::move(frozen);
  return out;
}

}  // namespace rlalgo::config
