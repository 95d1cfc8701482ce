// The reference model of a preference run: the model as it is before training (a frozen copy, or the same tensors with
// the adapter off), its log-probs computed before training, or a copy that follows the policy. An adapter that training goes on from
// belongs to the model before training: its start is the reference, unless `adapter_start` is false, which asks for the bare base.
//
// Errors: those of sampler/precompute_reference.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/identity.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/model_inputs.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sampler/precompute_reference.hpp>
#include <rlalgo/trainer/offline.hpp>
#include <rlalgo/trainer/reference_sync.hpp>

namespace rlalgo::assembly {

struct Reference {
  std::shared_ptr<model::Policy> scorer = {};  // null where the rows bring their log-probs, or none is needed
  std::vector<std::shared_ptr<trainer::Companion>> companions = {};  // of a reference that follows the policy: the sync
  std::vector<std::string> notes = {};
};

struct ReferenceConfig {
  bool adapter_start = true;                                   // the reference of an adapter is what it begins as
  std::optional<trainer::ReferenceSync::Config> follows = {};  // the policy, in steps; unset: it stays as it is
  // Its log-probs are computed once, before training, and kept in `directory`.
  struct Precomputed {
    std::int64_t batch_size = 1;
    std::int64_t examples_per_step = 1, evaluation_examples_per_step = 1;
    bool mismatched = false;      // of mismatched completions, too
    std::int64_t max_length = 0;  // of those with their prompts
    std::optional<double> ld_alpha;
    std::filesystem::path directory;
    std::function<std::string()> identity;  // of the weights; reads their files
  };
  std::optional<Precomputed> precomputed = {};
};

// Everything that decides what the reference computes.
// `places`: of c.model.
[[nodiscard]] inline std::string reference_identity(const LanguageModelConfig& c, const ModelPlaces& places) {
  std::string out = weights_identity(c.model.directory());
  if (!places.adapter.empty()) out += weights_identity(places.base);
  if (c.adapter) out += weights_identity(c.adapter->directory());
  if (c.bfloat16) out += " bfloat16";
  if (const auto& bits = c.quantisation) {
    out += " " + std::string(model::name_of(bits->code)) + " " + std::to_string(bits->block) +
           (bits->nested ? " nested" : "") + (bits->experts ? " experts" : "") + " " +
           std::to_string(static_cast<int>(bits->products));
    for (const std::string& pattern : bits->skip) out += " -" + pattern;
  }
  return out;
}

namespace detail {

[[nodiscard]] inline bool bare_reference(const ReferenceConfig& c, const LanguageModel& model) {
  return model.decoder->adapter() != nullptr && !c.adapter_start;
}

}  // namespace detail

// The model that a policy is compared with. `model.decoder` is the policy before training, which `sharding` (or null) holds.
[[nodiscard]] inline std::shared_ptr<model::Decoder> frozen_reference(const LanguageModel& model,
                                                                      const ReferenceConfig& c = {},
                                                                      Sharding* sharding = nullptr) {
  if (detail::bare_reference(c, model)) return model.decoder->without_adapter();
  return sharding != nullptr ? sharding->reference(*model.decoder) : model.decoder->reference();
}

// `frozen`: null where the loss compares with none.
[[nodiscard]] inline Reference make_reference(const ReferenceConfig& c, const LanguageModel& model,
                                              std::shared_ptr<model::Decoder> frozen, PreferenceData& data,
                                              const RowProgress& progress = {}, const Sharding* sharding = nullptr) {
  Reference out;
  if (frozen == nullptr) return out;
  if (c.precomputed) {
    const ReferenceConfig::Precomputed& p = *c.precomputed;
    const std::string identity = p.identity() + (detail::bare_reference(c, model) ? "bare" : "");
    const auto compute = [&](const std::shared_ptr<data::AnswerSet>& set, std::int64_t per_step) {
      sampler::PrecomputeConfig settings{.batch_size = p.batch_size,
                                         .examples_per_step = per_step,
                                         .mismatched = p.mismatched,
                                         .max_length = p.max_length,
                                         .ld_alpha = p.ld_alpha,
                                         .directory = p.directory,
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
    compute(data.train, p.examples_per_step);
    if (data.evaluation) compute(data.evaluation, p.evaluation_examples_per_step);
    return out;
  }
  if (c.follows) out.companions.push_back(reference_sync(*c.follows, *model.decoder, *frozen, sharding));
  out.scorer = std::move(frozen);
  return out;
}

// Of a run that learns from preferences. What is given must outlive the trainer; `sharding` (or null) holds the policy.
[[nodiscard]] inline trainer::OfflineInputs offline_inputs(
    const LanguageModel& model, PreferenceData data, Reference reference,
    const std::shared_ptr<Sharding>& sharding = nullptr,
    const std::shared_ptr<distributed::World>& world = std::make_shared<distributed::World>()) {
  trainer::OfflineInputs out{
      .policy = model.decoder,
      .answers = std::move(data.train),
      .reference = std::move(reference.scorer),
      .companions = std::move(reference.companions),
      .evaluation = std::move(data.evaluation),
      .decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); }};
  set_model(out, model, world, sharding);
  return out;
}

}  // namespace rlalgo::assembly
