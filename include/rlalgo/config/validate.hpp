// What must hold between the values of a configuration before anything is loaded. Every rule is judged; what breaks one is kept
// (config/refusals.hpp).
//
// Errors (usage): [rlalgo.config.6] a value out of range; [.7] a required key is missing; [.8] two keys that exclude
// each other; [.11] a batch geometry that does not divide, with the smallest change that does; [.14] a key that has
// nothing to work on, such as eval_steps without evaluation data.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::config {

namespace detail {

class Validator {
 public:
  Validator(const RunConfig& config, Refusals& refusals) : config_(config), refusals_(refusals) {}

  void range(const std::string& key, double value, bool holds, const std::string& expected) const {
    if (!holds || std::isnan(value)) out_of_range(key, spelled(value), expected);
  }
  void not_both(const std::string& one, const std::string& other, const std::string& remedy) const {
    if (!config_.was_set(one) || !config_.was_set(other)) return;
    refuse(8, {.what = one + " and " + other + " are both set",
               .where = config_.place(one) + " and " + config_.place(other),
               .remedy = remedy});
  }

  // What the schedule follows.
  void schedule() const {
    const RunConfig& c = config_;
    not_both("warmup_steps", "warmup_ratio", "remove one");
    if (c.lr_scheduler == "polynomial") fraction("lr_scheduler_kwargs.lr_end", c.schedule.min_ratio);
    if (c.lr_scheduler != "reduce_lr_on_plateau") return;
    if (c.val_set_size <= 0 && c.test_datasets.empty())
      refuse(14, {.what = "lr_scheduler: reduce_lr_on_plateau follows evaluations, and there is nothing to evaluate on",
                  .where = c.place("lr_scheduler"),
                  .remedy = "set val_set_size (a fraction such as 0.05) or test_datasets"});
    if (c.eval_strategy == "no")
      refuse(8, {.what = "lr_scheduler: reduce_lr_on_plateau does not go with eval_strategy: no",
                 .where = c.place("eval_strategy"),
                 .remedy = "set eval_strategy: epoch or steps, or take another schedule"});
  }

  void cadence() const {
    const RunConfig& c = config_;
    not_both("save_steps", "saves_per_epoch", "remove one");
    not_both("eval_steps", "evals_per_epoch", "remove one");
    interval("save", c.save_steps, c.save_strategy, c.saves_per_epoch);
    interval("eval", c.eval_steps, c.eval_strategy, c.evals_per_epoch);
  }

  void data() const {
    const RunConfig& c = config_;
    if (c.datasets.empty() && !c.nemo_gym.enabled && !c.trl.prompts_itself())
      refuse(7,
             {.what = "datasets is empty", .expected = "datasets: [{path: rows.jsonl}]", .where = c.place("datasets")});
    if (c.val_set_size > 0 && !c.test_datasets.empty()) not_both("val_set_size", "test_datasets", "remove one");
  }

  void rollouts() const {
    const TrlConfig& t = config_.trl;
    if (t.reward_funcs.empty() && !t.has_environment() && !matches_features(config_))
      refuse(7, {.what = "trl.reward_funcs is empty",
                 .expected = "at least one function, such as rewards.correct",
                 .where = config_.place("trl.reward_funcs")});
    if (t.rollout_func && t.has_turns())
      refuse(8, {.what = "trl.rollout_func does not go with " +
                         std::string(t.has_environment() ? "trl.environment_factory" : "trl.tools"),
                 .where = config_.place("trl.rollout_func"),
                 .remedy = "a rollout function plays its own environments: remove one of the two"});
    if (!t.reward_weights.empty() && t.reward_weights.size() != t.reward_funcs.size())
      refuse(8, {.what = "trl.reward_weights does not match trl.reward_funcs",
                 .found = std::to_string(t.reward_weights.size()) + " weights for " +
                          std::to_string(t.reward_funcs.size()) + " functions",
                 .where = config_.place("trl.reward_weights"),
                 .remedy = "give one weight per function"});
  }

  void loss() const {
    const TrlConfig& t = config_.trl;
    const std::string beta_key = config_.was_set("trl.beta") ? "trl.beta" : "rl_beta";
    range(beta_key, config_.beta, config_.beta >= 0 && std::isfinite(config_.beta), "0 or more");
    ratio_level();
    entropy_bonus();
    if (!t.sync_ref_model) return;
    if (config_.beta == 0.0)
      synced_reference_conflict("needs a KL penalty: with beta 0 there is no reference",
                                "set trl.beta above 0, or remove trl.sync_ref_model");
    synced_reference(config_.lora || config_.lora_model_dir);
  }

  void entropy_bonus() const {
    const TrlConfig& t = config_.trl;
    if (!t.use_adaptive_entropy) return;
    range("trl.entropy_coef_min", t.entropy_coef_min,
          t.entropy_coef_min <= t.entropy_coef_max && std::isfinite(t.entropy_coef_min),
          "at most entropy_coef_max = " + spelled(t.entropy_coef_max));
  }

  // A reference that follows the policy.
  void synced_reference(bool adapter) const {
    if (adapter)
      synced_reference_conflict("does not go with an adapter: its reference is the base model", "remove one of them");
  }

  // Only the generation batch has to be divisible: a group may straddle micro-batches.
  void geometry() const {
    const RunConfig& c = config_;
    const TrlConfig& t = c.trl;
    bool counted = true;
    for (const char* key : {"micro_batch_size", "gradient_accumulation_steps", "trl.num_generations"})
      counted = counted && !refusals_.distrusts(key);
    not_both("trl.generation_batch_size", "trl.steps_per_generation",
             "remove one: generation_batch_size = micro_batch_size × steps_per_generation");
    if (!counted) return;
    const std::int64_t b = c.micro_batch_size;
    const std::int64_t unit = std::lcm(b, t.num_generations);
    const auto next = [&](std::int64_t n) { return (n + unit - 1) / unit * unit; };
    if (t.generation_batch_size) {
      if (!refusals_.distrusts("trl.generation_batch_size") && *t.generation_batch_size % unit != 0)
        indivisible("trl.generation_batch_size", std::to_string(*t.generation_batch_size),
                    "a multiple of micro_batch_size (" + std::to_string(b) + ") and of trl.num_generations (" +
                        std::to_string(t.num_generations) + ")",
                    "the next that works is " + std::to_string(next(*t.generation_batch_size)));
      return;
    }
    if (refusals_.distrusts("trl.steps_per_generation")) return;
    const std::string key = t.steps_per_generation ? "trl.steps_per_generation" : "gradient_accumulation_steps";
    const std::int64_t steps = t.steps_per_generation.value_or(c.gradient_accumulation_steps);
    if (b * steps % t.num_generations == 0) return;
    indivisible(c.was_set("trl.num_generations") ? "trl.num_generations" : key,
                "micro_batch_size " + std::to_string(b) + " × " + key + " " + std::to_string(steps) + " = " +
                    std::to_string(b * steps) + " completions",
                "a multiple of trl.num_generations (" + std::to_string(t.num_generations) + ")",
                "set " + key + ": " + std::to_string(next(b * steps) / b) +
                    " (the next that works), or change trl.num_generations");
  }

  // The section ebft.
  void feature_matching() const {
    const EbftConfig& e = config_.ebft;
    if (e.feature_layers.empty()) range("ebft.feature_layers", 0, false, "one relative depth or more");
    const bool strided = is_strided(config_);
    for (const char* key : {"trl.reward_funcs", "trl.environment_factory", "trl.tools", "trl.rollout_func"})
      if (config_.was_set(key) && (strided || !config_.trl.reward_funcs.empty()))
        refuse(8, {.what = std::string(key) + " does not go with rl: ebft" + (strided ? " of mode strided" : "") +
                           ": features are its reward",
                   .where = config_.place(key),
                   .remedy = "remove the key, or set rl: grpo"});
    const PoolingRow& pooling = pooling_of(config_);
    if (strided && !pooling.blocks)
      refuse(8, {.what = "ebft.embed_method: " + e.embed_method + " has no meaning for blocks",
                 .expected = "last_token or mean_pooling",
                 .where = config_.place("ebft.embed_method"),
                 .remedy = "choose one, or ebft.mode: structured"});
    const std::int64_t samples = strided ? e.n_samples_per_prompt : config_.trl.num_generations;
    if (samples == 1 && matching_estimator_of(config_).compares) {
      refuse(8,
             {.what = "one sample has nothing to be compared with: ebft.advantage_estimator: " + e.advantage_estimator,
              .where = config_.place(strided ? "ebft.n_samples_per_prompt" : "trl.num_generations"),
              .remedy = "set ebft.advantage_estimator: reinforce, or more samples"});
      refusals_.distrust("trl.num_generations");
    }
  }

  // The range that each key has by itself.
  void ranges(const Keys& rows) const {
    for (const Key& row : rows) {
      if (!row.ranged || row.target.json == nullptr || !row.stands_for.empty()) continue;
      const data::Json value = row.target.json(row.target.at);
      for (const data::Json& number : value.is_array() ? value : data::Json::array({value}))
        if (number.is_number() && !row.range.holds(number.get<double>()))
          out_of_range(written(row, rows), number.is_number_float() ? spelled(number.get<double>()) : number.dump(),
                       row.range.text(number.get<double>()));
    }
  }

  // Keys of one recipe that another does not have.
  void recipe() const {
    const Recipe& recipe = recipe_of(config_);
    for (const std::string& key : refused_keys(recipe))
      if (config_.was_set(key))
        refuse(8, {.what = key + " does not go with rl: " + config_.rl,
                   .where = config_.place(key),
                   .remedy = "remove the key, or set rl: " + readers_of(key, recipe).front()});
  }

  // Rewards that are normalised one by one leave nothing for another estimator to do.
  void estimator() const {
    const Estimator& estimator = estimator_of(config_);
    if (!reads(estimator, "trl.normalize_advantages") && config_.was_set("trl.normalize_advantages"))
      refuse(8, {.what = "trl.normalize_advantages is of leave-one-out advantages",
                 .where = config_.place("trl.normalize_advantages"),
                 .remedy = "remove it, or set rl: rloo, or trl.advantage_estimator: leave_one_out"});
    if (reads(estimator, "trl.scale_rewards")) return;
    const Aggregation* aggregation = find_row(aggregations(), config_.trl.multi_objective_aggregation);
    const char* other = aggregation != nullptr && aggregation->normalises ? "trl.multi_objective_aggregation"
                        : config_.was_set("trl.scale_rewards")            ? "trl.scale_rewards"
                                                                          : nullptr;
    if (other != nullptr)
      refuse(8, {.what = "trl.advantage_estimator: " + std::string(estimator.name) + " does not go with " + other,
                 .where = config_.place("trl.advantage_estimator"),
                 .remedy = "remove one of them"});
  }

  // A recipe that is about its aggregation has no other.
  void aggregation() const {
    const Recipe& recipe = recipe_of(config_);
    const std::string& given = config_.trl.multi_objective_aggregation;
    if (!recipe.aggregation_part || given == recipe.aggregation) return;
    refuse(8, {.what = "rl: " + config_.rl + " is trl.multi_objective_aggregation: " + std::string(recipe.aggregation),
               .found = given,
               .where = config_.place("trl.multi_objective_aggregation"),
               .remedy = "remove the key, or set rl: grpo"});
  }

  // A rank beyond the smaller side of a matrix adds nothing; no matrix of the models that are read is larger.
  void adapter() const {
    if (!config_.lora) return;
    for (const auto& [pattern, value] : config_.lora->rank_pattern)
      if (value < 1 || value > model::largest_rank)
        out_of_range(
            "lora_rank_pattern", std::to_string(value),
            "1 to " + std::to_string(model::largest_rank) + ": a rank beyond the sides of a matrix adds nothing");
  }

 private:
  static constexpr std::int64_t most = 1000000000;

  // The spelling of a key that the file has.
  [[nodiscard]] std::string written(const Key& row, const Keys& rows) const {
    std::string name(row.name);
    for (const Key& other : rows)
      if (other.stands_for == row.name && config_.was_set(std::string(other.name)) && !config_.was_set(name))
        return std::string(other.name);
    return name;
  }

  // What hangs on the value is not judged.
  void out_of_range(const std::string& key, const std::string& found, const std::string& expected) const {
    refuse(6, {.what = "the value of " + key + " is out of range",
               .found = found,
               .expected = expected,
               .where = config_.place(key)});
    refusals_.distrust(key);
  }

  void synced_reference_conflict(const char* what, const char* remedy) const {
    refuse(8, {.what = std::string("trl.sync_ref_model ") + what,
               .where = config_.place("trl.sync_ref_model"),
               .remedy = remedy});
  }

  void fraction(const std::string& key, double value) const {
    range(key, value, value >= 0 && value <= 1, "from 0 to 1");
  }

  void indivisible(const std::string& key, const std::string& found, const std::string& expected,
                   const std::string& remedy) const {
    refuse(11, {.what = "the generation batch does not divide into groups",
                .found = found,
                .expected = expected,
                .where = config_.place(key),
                .remedy = remedy});
  }

  // Score-function surrogates weigh by the ratio of a token, or of none.
  void ratio_level() const {
    const PolicyObjective& objective = objective_of(config_);
    const LevelPart level = level_of(config_);
    if (recipe_of(config_).level) return;
    if (std::find(objective.levels.begin(), objective.levels.end(), level) != objective.levels.end()) return;
    refuse(8, {.what = "trl.loss_type: " + std::string(objective.name) +
                       " does not go with trl.importance_sampling_level: " + config_.trl.importance_sampling_level,
               .where = config_.place("trl.importance_sampling_level"),
               .remedy = "remove trl.importance_sampling_level"});
  }

  // save_steps/save_strategy/saves_per_epoch, or the same for eval.
  void interval(const std::string& name, const std::optional<double>& steps, const std::optional<std::string>& strategy,
                const std::optional<std::int64_t>& per_epoch) const {
    if (steps)
      range(name + "_steps", *steps, *steps > 0 && *steps <= most && (*steps < 1 || std::floor(*steps) == *steps),
            "a whole number of steps, or a fraction of all steps below 1");
    if (strategy && *strategy != "steps") {
      for (const auto& [key, set] :
           {std::pair{name + "_steps", steps.has_value()}, std::pair{name + "s_per_epoch", per_epoch.has_value()}})
        if (set)
          refuse(8, {.what = key + " does not go with " + name + "_strategy: " + *strategy,
                     .where = config_.place(key),
                     .remedy = "remove one of them"});
    }
  }

  void refuse(int number, const core::ErrorText& text) const { refusals_.add(number, text); }

  const RunConfig& config_;
  Refusals& refusals_;
};

}  // namespace detail

inline void validate(const RunConfig& config, Refusals& refusals) {
  const detail::Validator rules(config, refusals);
  RunConfig bound = config;
  rules.ranges(keys_of(bound));
  rules.data();
  rules.adapter();
  // Of what makes the completions nothing is known where the section that says it could not be read.
  const bool trains_alone = is_preference(config) || is_strided(config) || refusals.distrusts("ebft.");
  if (matches_features(config) && !refusals.distrusts("ebft.")) rules.feature_matching();
  if (!trains_alone) {
    rules.rollouts();
    rules.geometry();
    rules.loss();
    rules.recipe();
    rules.aggregation();
    rules.estimator();
  }
  rules.schedule();
  rules.cadence();
}

// Raises what `config` is refused for.
inline void validate(const RunConfig& config) {
  Refusals refusals(config.file);
  validate(config, refusals);
  refusals.raise();
}

// The geometry of a valid configuration.
[[nodiscard]] inline sampler::Geometry geometry_of(const RunConfig& config) {
  return sampler::Geometry::resolve({.micro_batch_size = config.micro_batch_size,
                                     .gradient_accumulation_steps = config.gradient_accumulation_steps,
                                     .steps_per_generation = 1,
                                     .num_iterations = config.trl.num_iterations,
                                     .num_generations = config.trl.num_generations},
                                    config.trl.steps_per_generation.value_or(0),
                                    config.trl.generation_batch_size.value_or(0), 1);
}

}  // namespace rlalgo::config
