// The language model of a training and how it lies on the ranks, loaded in two steps: what can be refused without weights comes first.
// And what every method does in between: rows are shown, inputs compared with those of a checkpoint, the plan printed, the trainer run.
//
// Errors (usage): [rlalgo.config.8] sync_ref_model with an adapter; those of assembly/language_model.hpp and run/resume.hpp.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/config/detail/carry_out.hpp>
#include <rlalgo/config/detail/overview_parts.hpp>
#include <rlalgo/config/detail/router_balance.hpp>
#include <rlalgo/config/detail/training.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/model_card.hpp>
#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/trainer_settings.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config::detail {

// What is wrong with the reference that is asked for, before anything is loaded.
inline void check_reference(const RunConfig& c, const assembly::ModelPlaces& places) {
  const bool adapter = c.lora || c.lora_model_dir || !places.adapter.empty();
  if (needs_reference(c) && c.preference.sync_ref_model && adapter)
    core::raise_usage("config", 8,
                      {.what = "trl.sync_ref_model does not go with an adapter: policy and reference share the base",
                       .where = c.place("trl.sync_ref_model"),
                       .remedy = "remove one of them"});
}

class RunModel {
 public:
  // Everything but the weights. What is given must outlive it; `task`: null to train.
  RunModel(const RunConfig& config, const TrainMessages& messages, OtherTask* task)
      : config_(config),
        messages_(messages),
        task_(task),
        named_(language_model_of(config)),
        places_(found()),
        text(assembly::load_text_half(named_, places_)),
        world(world_of(config)) {
    messages.note_all(text.notes);
  }
  RunModel(const RunModel&) = delete;

  [[nodiscard]] const assembly::LanguageModelConfig& named() const { return named_; }
  [[nodiscard]] const assembly::ModelPlaces& places() const { return places_; }

  // Whether the rows are all that was asked for; they are shown.
  [[nodiscard]] bool shows_rows_only(const assembly::Overview& overview) const {
    return detail::shows_rows_only(task_, messages_, overview);
  }

  // What a run learns from is that of the checkpoint that it goes on from, and the same on all ranks.
  void require_inputs(run::LoopConfig& loop, const data::Json& inputs) const {
    require_same_inputs(*world, inputs);
    loop.settings.update(inputs);
    if (!evaluates(task_)) run::check_resume(loop);
  }

  // The weights; the ranks meet.
  void load(TrainerSettings& settings) {
    text.card = model_card(config_, settings.loop.max_steps);
    text.decoder = assembly::load_decoder(named_, places_);
    if (task_ == nullptr) messages_.note_some(judged_bits());
    settings.router_aux_loss_coef = router_aux_loss_coef(config_, text.decoder->config());
    if (settings.router_aux_loss_coef != 0.0) settings.skip_zero_advantages = false;
    sharding = sharding_of(config_, world, text.decoder->device());
  }
  // From here on the policy lies on the ranks.
  void shard() {
    if (sharding == nullptr) return;
    sharding->hold(*text.decoder);
    text.files = sharding->files();
  }

  // The plan, printed before the first step; true: a dry run ends here. `reference`: what the policy is compared with, or null. `memory`: of a run
  // that generates.
  [[nodiscard]] bool plans(assembly::Overview& overview, const std::shared_ptr<model::Decoder>& reference = nullptr,
                           const assembly::GenerationMemory& memory = {}) const {
    const bool copied = reference != nullptr && text.decoder->adapter() == nullptr;
    return detail::plans(overview, config_, *text.decoder, copied, task_, messages_, memory);
  }

  // Trains, or evaluates.
  template <class Trainer>
  run::Outcome carry_out(Trainer trainer) const {
    return detail::carry_out(trainer, config_, *text.decoder, task_, messages_);
  }

 private:
  [[nodiscard]] assembly::ModelPlaces found() const {
    assembly::ModelPlaces out = assembly::find_model(named_.model, named_.tokenizer);
    check_reference(config_, out);
    return out;
  }
  [[nodiscard]] std::string judged_bits() const {
    std::optional<assembly::ShardedBase> sharded;
    if (config_.world != nullptr && config_.expert_parallel_size > 1)
      sharded = {"expert_parallel_size: " + std::to_string(config_.expert_parallel_size),
                 config_.place("expert_parallel_size"), "remove expert_parallel_size"};
    else if (config_.world != nullptr && config_.sharding.weights())
      sharded = {config_.sharding.layout.value_or(""), config_.place(config_.sharding.key)};
    return assembly::judge_bits(*text.decoder, config_.place("base_model"), sharded);
  }

  const RunConfig& config_;
  const TrainMessages& messages_;
  OtherTask* const task_;
  assembly::LanguageModelConfig named_;
  assembly::ModelPlaces places_;

 public:
  assembly::LanguageModel text;
  std::shared_ptr<distributed::World> world;
  std::shared_ptr<assembly::Sharding> sharding;  // null: every rank has everything
};

}  // namespace rlalgo::config::detail
