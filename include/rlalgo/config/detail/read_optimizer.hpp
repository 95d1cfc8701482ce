// optimizer, and optim_args: the arguments of its class under their names there, as a section or as "name=value,name=value".
//
//   muon        momentum, nesterov, ns_steps
//   adafactor   eps: [of squares, of the scale], clip_threshold, decay_rate, beta1, scale_parameter
//
// Others take adam_beta1, adam_beta2, adam_epsilon and weight_decay, which are keys of their own.
//
// Errors (usage): [rlalgo.config.10] an optimizer that this build has not, or an argument that an optimizer does not take; [.6] a value
// out of range; [.8] a schedule that moves a momentum that the optimizer has not.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/run_config.hpp>

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

inline void read_optimizer_arguments(Reader& reader, RunConfig& config) {
  const UpdateRule rule = optimizer_named(config.optimizer).rule;
  const Node* node = reader.take("optim_args");
  if (node == nullptr) return;
  if (rule != UpdateRule::muon && rule != UpdateRule::adafactor) {
    if (node->kind == Kind::mapping && node->members.empty()) return;
    refuse_lacking(reader, "optim_args", "optim_args of " + config.optimizer, *node,
                   rule == UpdateRule::lion ? "use adam_beta1, adam_beta2 and weight_decay"
                                            : "use adam_beta1, adam_beta2, adam_epsilon and weight_decay");
    return;
  }
  Node section = *node;
  if (node->kind == Kind::string && !reader.judge("optim_args", [&] { section = arguments_of_text(*node); })) return;
  Reader nested(section, "optim_args.", reader.findings());
  if (rule == UpdateRule::muon)
    read_rows(nested, muon_keys(config.muon));
  else
    read_adafactor(nested, config.adafactor);
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

// After the schedule was read.
inline void check_moved_momentum(const RunConfig& config, Refusals& refusals) {
  if (config.lr_scheduler != "one_cycle" || !config.schedule.one_cycle.cycle_momentum ||
      optimizer_named(config.optimizer).rule != UpdateRule::adafactor || config.adafactor.beta1)
    return;
  refusals.add(8, {.what = "lr_scheduler: one_cycle moves a momentum, and adafactor has none",
                   .where = config.place("lr_scheduler"),
                   .remedy = "set lr_scheduler_kwargs: {cycle_momentum: false}, or optim_args: {beta1: 0.9}"});
}

}  // namespace rlalgo::config::detail
