// optimizer, and optim_args: the arguments of its class under their names there, as a section or as "name=value,name=value".
//
//   muon        momentum, nesterov, ns_steps
//   adafactor   eps: [of squares, of the scale], clip_threshold, decay_rate, beta1, scale_parameter
//   sgd         momentum, dampening, nesterov
//   adagrad     lr_decay, eps
//   rmsprop     momentum, alpha, eps, centered
//
// Others take adam_beta1, adam_beta2, adam_epsilon and weight_decay, which are keys of their own.
//
// Errors (usage): [rlalgo.config.10] an optimizer that this build has not, or an argument that an optimizer does not take; [.6] a value
// out of range; [.8] a schedule that moves a momentum that the optimizer has not, nesterov without a momentum, groups of parameters
// that exclude each other; [.14] LoRA+ without an adapter.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/model/lora_config.hpp>

namespace rlalgo::config::detail {

// "a=1,b=2" as a section.
[[nodiscard]] inline Node arguments_of_text(const Node& node) {
  Node out;
  out.kind = Kind::mapping;
  out.place = node.place;
  std::string text = node.text;
  std::erase(text, ' ');
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, end - begin);
    const std::size_t equals = one.find('=');
    if (equals == std::string::npos || equals == 0)
      raise_type("optim_args", node, "a section, or name=value with commas between them");
    Node value;
    value.kind = Kind::string;
    value.text = one.substr(equals + 1);
    value.place = node.place;
    out.members.push_back({one.substr(0, equals), node.place, std::move(value)});
    begin = end + 1;
  }
  return out;
}

// Of optim_args.
[[nodiscard]] inline std::span<const Reason> lacking_adafactor_keys() {
  static constexpr Reason reasons[] = {{"relative_step", "the rate is the schedule's: learning_rate and lr_scheduler"},
                                       {"warmup_init", "the rate is the schedule's: warmup_steps"}};
  return reasons;
}

inline void read_adafactor(Reader& reader, AdafactorArguments& adafactor) {
  std::vector<double> eps;
  reader.record("eps[0]", adafactor.epsilon_square);
  reader.record("eps[1]", adafactor.epsilon_scale);
  if (reader.read("eps", eps))
    reader.judge("eps", [&] {
      if (eps.size() != 2 || !above(0).holds(eps[0]) || !above(0).holds(eps[1]))
        raise_range("optim_args.eps", *reader.section().find("eps"), "two numbers above 0: [1e-30, 1e-3]");
      adafactor.epsilon_square = eps[0];
      adafactor.epsilon_scale = eps[1];
    });
  read_rows(reader, adafactor_keys(adafactor));
  apply_lacking(reader, lacking_adafactor_keys());
}

// Of optim_args: what transformers passes on there without effect.
[[nodiscard]] inline std::span<const Reason> lacking_decay_keys() {
  static constexpr Reason reasons[] = {
      {"weight_decay", "write the key weight_decay: groups of parameters have that one, whatever stands here"}};
  return reasons;
}

inline void judge_nesterov(Reader& reader, const SgdArguments& sgd) {
  if (!sgd.nesterov || (sgd.momentum > 0 && sgd.dampening == 0)) return;
  reader.refuse(8, {.what = "optim_args.nesterov needs a momentum, and no dampening",
                    .found = "momentum " + spelled(sgd.momentum) + ", dampening " + spelled(sgd.dampening),
                    .where = reader.section().find("nesterov")->place.text(),
                    .remedy = "set optim_args: {momentum: 0.9, nesterov: true}"});
}

inline void read_optimizer_arguments(Reader& reader, RunConfig& config) {
  const UpdateRule rule = optimizer_named(config.optimizer).rule;
  const Node* node = reader.take("optim_args");
  if (node == nullptr) return;
  const Keys rows = optimizer_argument_keys(config, rule);
  if (rows.empty()) {
    if (node->kind == Kind::mapping && node->members.empty()) return;
    refuse_lacking(reader, "optim_args", "optim_args of " + config.optimizer, *node,
                   rule == UpdateRule::lion ? "use adam_beta1, adam_beta2 and weight_decay"
                                            : "use adam_beta1, adam_beta2, adam_epsilon and weight_decay");
    return;
  }
  Node section = *node;
  if (node->kind == Kind::string && !reader.judge("optim_args", [&] { section = arguments_of_text(*node); })) return;
  Reader nested(section, "optim_args.", reader.findings());
  if (rule == UpdateRule::adafactor) {
    read_adafactor(nested, config.adafactor);
  } else {
    read_rows(nested, rows);
    if (rule != UpdateRule::muon) apply_lacking(nested, lacking_decay_keys());
    if (rule == UpdateRule::sgd) judge_nesterov(nested, config.sgd);
  }
  nested.finish();
}

inline void read_optimizer(Reader& reader, RunConfig& config) {
  if (const Node* node = reader.section().find("optimizer");
      node != nullptr && node->text.starts_with("schedule_free_")) {
    reader.recognise("optimizer");
    reader.recognise("optim_args");
    refuse_lacking(reader, "optimizer", "optimizer " + node->text, *node,
                   "it trains on one point and is evaluated and saved at an average of all of them, without a "
                   "schedule: take adamw_torch_fused with an lr_scheduler");
    return;
  }
  read_name(reader, "optimizer", config.optimizer, optimizers());
  if (const OptimizerName row = optimizer_named(config.optimizer); row.smaller)
    reader.findings().warnings.push_back(
        "optimizer " + config.optimizer + " trains as " + (row.rule == UpdateRule::lion ? "Lion" : "AdamW") +
        " with a full float32 state" + (row.rule == UpdateRule::lion ? "" : "; adamw_8bit has moments in 8 bits"));
  if (reader.findings().refusals.distrusts("optimizer"))
    reader.recognise("optim_args");  // whose arguments these are is not known
  else
    read_optimizer_arguments(reader, config);
}

// Says which keys of groups have no effect beside others; after the adapter and the rate were read.
inline void say_idle_groups(Reader& reader, const RunConfig& config) {
  const RateGroupsConfig& g = config.groups;
  const auto say = [&](const char* key, const std::string& reason) {
    if (const Node* node = reader.section().find(key); node != nullptr && is_on(*node))
      reader.findings().warnings.push_back(std::string(key) + " (" + node->place.text() + ") has no effect: " + reason);
  };
  apply_idle(reader, "loraplus_lr_embedding",
             g.loraplus_lr_ratio ? "no matrix of an adapter stands on an embedding" : "loraplus_lr_ratio is not set");
  if (g.loraplus_lr_ratio) {
    say("embedding_lr", "loraplus_lr_ratio makes the groups");
    say("embedding_lr_scale", "loraplus_lr_ratio makes the groups");
    if (config.weight_decay > 0) say("weight_decay", "with loraplus_lr_ratio nothing decays, as in axolotl and PEFT");
    return;
  }
  if (g.embedding_lr_scale) say("embedding_lr", "embedding_lr_scale is there");
  if (!config.lora || config.lora_model_dir) return;
  for (const char* path : {"model.embed_tokens", "lm_head"})
    if (model::is_saved_module(*config.lora, path) || model::is_lora_target(*config.lora, path)) return;
  for (const char* key : {"embedding_lr", "embedding_lr_scale"})
    say(key, "neither embed_tokens nor lm_head is trained: name them in lora_modules_to_save");
}

inline void read_groups(Reader& reader, RunConfig& config) {
  const Keys rows = rate_group_keys(config.groups);
  read_rows(reader, rows);
  say_idle_groups(reader, config);
  const RateGroupsConfig& g = config.groups;
  const auto place = [&](const char* key) { return reader.section().find(key)->place.text(); };
  if (g.loraplus_lr_ratio && !g.lr_groups.empty())
    reader.refuse(8, {.what = "loraplus_lr_ratio and lr_groups are both set",
                      .where = place("loraplus_lr_ratio") + " and " + place("lr_groups"),
                      .remedy = "remove one: lr_groups may name lora_B"});
  if (g.loraplus_lr_ratio && !config.lora)
    reader.refuse(14, {.what = "loraplus_lr_ratio has no adapter whose matrices B it could be of",
                       .where = place("loraplus_lr_ratio"),
                       .remedy = "set adapter: lora"});
  const char* rate = !g.lr_groups.empty() ? "lr_groups" : g.embedding_lr ? "embedding_lr" : nullptr;
  if (rate != nullptr && config.learning_rate == 0.0 && reader.given("learning_rate"))
    reader.refuse(8, {.what = std::string(rate) + " needs a learning_rate above 0: the schedule moves both alike",
                      .where = place(rate),
                      .remedy = "set learning_rate, and name what is trained in unfrozen_parameters"});
}

// After the schedule was read.
inline void check_moved_momentum(const RunConfig& config, Refusals& refusals) {
  const UpdateRule rule = optimizer_named(config.optimizer).rule;
  const bool none = rule == UpdateRule::adagrad || (rule == UpdateRule::adafactor && !config.adafactor.beta1);
  if (!moves_momentum(config) || !none) return;
  refusals.add(8, {.what = "lr_scheduler: one_cycle moves a momentum, and " + config.optimizer + " has none",
                   .where = config.place("lr_scheduler"),
                   .remedy = std::string("set lr_scheduler_kwargs: {cycle_momentum: false}") +
                             (rule == UpdateRule::adafactor ? ", or optim_args: {beta1: 0.9}" : "")});
}

}  // namespace rlalgo::config::detail
