// The keys of the learning-rate schedule: lr_scheduler, its options, and those of axolotl's cosine.
//
// `lr_scheduler_kwargs` takes what transformers' schedule of that name takes (torch's OneCycleLR and ReduceLROnPlateau);
// rates among them become ratios of the peak. `metric_for_best_model` is read for reduce_lr_on_plateau alone.
//
// Errors (usage): [rlalgo.config.6] a word that is not allowed, or a final rate that is not below the peak; [.7] a
// schedule lacks an option that it needs; [.8] min_lr beside min_lr_rate; [.10] options for a schedule that has none.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline const std::string schedule_prefix = "lr_scheduler_kwargs.";

inline void refuse_schedule_lacks(Reader& reader, const RunConfig& config, const std::string& what,
                                  const std::string& example) {
  reader.refuse(7, {.what = "lr_scheduler: " + config.lr_scheduler + " has no " + what,
                    .expected = "lr_scheduler_kwargs: {" + example + "}",
                    .where = reader.section().find("lr_scheduler")->place.text()});
}

// min_lr (a rate) or min_lr_rate (a ratio).
inline void read_minimum(Reader& options, RunConfig& config) {
  std::optional<double> rate, ratio;
  options.read("min_lr", rate);
  options.read("min_lr_rate", ratio);
  if (rate && ratio)
    options.refuse(8, {.what = "min_lr and min_lr_rate are both set",
                       .where = options.section().find("min_lr")->place.text(),
                       .remedy = "remove one"});
  if (ratio)
    config.cosine_min_lr_ratio = ratio;
  else if (rate && config.learning_rate > 0)
    config.cosine_min_lr_ratio = *rate / config.learning_rate;
}

// A word that stands for a value of `out`.
template <class T>
void read_word(Reader& options, const std::string& key, T& out, const std::vector<std::pair<std::string, T>>& words) {
  std::vector<std::string> names;
  for (const auto& [name, value] : words) names.push_back(name);
  std::string word;
  const bool given = options.read_choice(key, word, names);
  options.record(key, out);
  if (!given) return;
  for (const auto& [name, value] : words)
    if (name == word) out = value;
}

inline void read_polynomial(Reader& options, RunConfig& config) {
  double end = 1e-7;
  const bool given = options.read("lr_end", end);
  options.read("power", config.schedule.power);
  if (config.learning_rate > 0 && end >= config.learning_rate)
    options.refuse(6, {.what = "the final rate of lr_scheduler: polynomial is not below learning_rate",
                       .found = given ? options.section().find("lr_end")->text : "lr_end 1e-7, the default",
                       .expected = "less than learning_rate",
                       .where = given ? options.section().find("lr_end")->place.text() : "lr_scheduler: polynomial"});
  options.record("lr_end", config.schedule.min_ratio);
  if (config.learning_rate > 0) config.schedule.min_ratio = end / config.learning_rate;
}

inline void read_stable_decay(Reader& options, RunConfig& config) {
  optim::StableDecayConfig& wsd = config.schedule.stable_decay;
  using Shape = optim::StableDecayConfig::Shape;
  const std::vector<std::pair<std::string, Shape>> shapes = {
      {"linear", Shape::linear}, {"cosine", Shape::cosine}, {"1-sqrt", Shape::one_minus_sqrt}};
  options.read("num_decay_steps", wsd.decay_steps);
  options.read("num_stable_steps", wsd.stable_steps);
  read_word(options, "warmup_type", wsd.warmup, shapes);
  read_word(options, "decay_type", wsd.decay, shapes);
  options.read("min_lr_ratio", config.schedule.min_ratio);
  options.read("num_cycles", config.schedule.cycles);
}

inline void read_one_cycle(Reader& options, RunConfig& config) {
  optim::OneCycleConfig& one = config.schedule.one_cycle;
  options.read("pct_start", one.rise_share);
  read_word<bool>(options, "anneal_strategy", one.straight, {{"cos", false}, {"linear", true}});
  options.read("cycle_momentum", one.cycle_momentum);
  options.read("base_momentum", one.base_momentum);
  options.read("max_momentum", one.max_momentum);
  options.read("div_factor", one.div_factor);
  options.read("final_div_factor", one.final_div_factor);
  options.read("three_phase", one.three_phases);
}

inline void read_plateau(Reader& options, RunConfig& config) {
  optim::PlateauConfig& plateau = config.schedule.plateau;
  read_word<bool>(options, "mode", plateau.grows, {{"min", false}, {"max", true}});
  options.read("factor", plateau.factor);
  options.read("patience", plateau.patience);
  options.read("threshold", plateau.threshold);
  read_word<bool>(options, "threshold_mode", plateau.absolute, {{"rel", false}, {"abs", true}});
  options.read("cooldown", plateau.cooldown);
  options.read("min_lr", plateau.min_rate);
  options.read("eps", plateau.epsilon);
}

// The options that the schedule has; false: it has none.
inline bool read_options(Reader& options, RunConfig& config) {
  const std::string& name = config.lr_scheduler;
  if (name == "polynomial") return read_polynomial(options, config), true;
  if (name == "warmup_stable_decay") return read_stable_decay(options, config), true;
  if (name == "one_cycle") return read_one_cycle(options, config), true;
  if (name == "reduce_lr_on_plateau") return read_plateau(options, config), true;
  if (name == "inverse_sqrt") return options.read("timescale", config.schedule.timescale), true;
  if (!name.starts_with("cosine")) return false;
  options.read("num_cycles", config.schedule.cycles);
  if (name.ends_with("_with_min_lr")) read_minimum(options, config);
  if (name == "cosine_warmup_with_min_lr") options.read("warmup_lr_rate", config.schedule.first_ratio);
  return true;
}

inline void read_schedule(Reader& reader, RunConfig& config) {
  read_name(reader, "lr_scheduler", config.lr_scheduler, schedulers());
  reader.read("cosine_min_lr_ratio", config.cosine_min_lr_ratio);
  reader.read("cosine_constant_lr_ratio", config.cosine_constant_lr_ratio);
  reader.read("lr_quadratic_warmup", config.lr_quadratic_warmup);
  if (config.lr_scheduler == "reduce_lr_on_plateau") reader.read("metric_for_best_model", config.metric_for_best_model);
  static const Node none = [] {
    Node node;
    node.kind = Kind::mapping;
    return node;
  }();
  const Node* section = reader.take("lr_scheduler_kwargs");
  Reader options(section != nullptr ? *section : none, schedule_prefix, reader.findings());
  if (reader.findings().refusals.distrusts("lr_scheduler")) return;  // whose options these are is not known
  if (!read_options(options, config) && !options.section().members.empty()) {
    const std::string what = "lr_scheduler_kwargs for lr_scheduler: " + config.lr_scheduler;
    return refuse_lacking(reader, "lr_scheduler_kwargs", what, *section, "remove them");
  }
  Refusals& refusals = reader.findings().refusals;
  if (!options.finish() || refusals.distrusts(schedule_prefix)) return;
  const bool unread = refusals.distrusts(schedule_prefix + "min_lr") ||
                      refusals.distrusts(schedule_prefix + "min_lr_rate") || refusals.distrusts("learning_rate");
  if (config.lr_scheduler.ends_with("_with_min_lr") && !config.cosine_min_lr_ratio && !unread)
    refuse_schedule_lacks(reader, config, "minimum", "min_lr_rate: 0.1");
  if (config.lr_scheduler == "warmup_stable_decay" && !options.given("num_decay_steps")) {
    refuse_schedule_lacks(reader, config, "decay", "num_decay_steps: 100");
    refusals.distrust(schedule_prefix + "num_decay_steps");
  }
}

}  // namespace rlalgo::config::detail
