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

#include <rlalgo/config/detail/read_rows.hpp>
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

inline void read_polynomial(Reader& options, RunConfig& config) {
  double end = 1e-7;
  const bool given = options.read("lr_end", end);
  if (config.learning_rate > 0 && end >= config.learning_rate)
    options.refuse(6, {.what = "the final rate of lr_scheduler: polynomial is not below learning_rate",
                       .found = given ? options.section().find("lr_end")->text : "lr_end 1e-7, the default",
                       .expected = "less than learning_rate",
                       .where = given ? options.section().find("lr_end")->place.text() : "lr_scheduler: polynomial"});
  options.record("lr_end", config.schedule.min_ratio);
  if (config.learning_rate > 0) config.schedule.min_ratio = end / config.learning_rate;
}

// The options that the schedule has; false: it has none.
inline bool read_options(Reader& options, RunConfig& config) {
  const std::string& name = config.lr_scheduler;
  const Keys rows = schedule_keys(config);
  read_rows(options, rows);
  if (name == "polynomial") read_polynomial(options, config);
  if (name.ends_with("_with_min_lr")) read_minimum(options, config);
  return !rows.empty();
}

inline void read_schedule(Reader& reader, RunConfig& config) {
  for (const Key& row : rate_keys(config)) read_row(reader, row);
  for (const Key& row : rate_keys(config))
    if (row.name == "metric_for_best_model") read_row(reader, row);
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
