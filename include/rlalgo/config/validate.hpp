// What must hold between the values of a configuration before anything is loaded. Every rule is judged; what breaks one is kept
// (config/refusals.hpp).
//
// Errors (usage): [rlalgo.config.6] a value out of range; [.7] a required key is missing; [.8] two keys that exclude
// each other; [.11] a batch geometry that does not divide, with the smallest change that does; [.14] a key that has
// nothing to work on, such as eval_steps without evaluation data.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/config/method_keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::config {

namespace detail {

// A number as it would be typed.
inline std::string spelled(double value) {
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, end);
}

class Validator {
 public:
  Validator(const RunConfig& config, Refusals& refusals) : config_(config), refusals_(refusals) {}

  void range(const std::string& key, double value, bool holds, const std::string& expected) const {
    if (!holds || std::isnan(value)) out_of_range(key, spelled(value), expected);
  }
  // Counts stay below 10^9, so that products of two of them cannot overflow. False: it is out of range.
  bool count(const std::string& key, std::int64_t value, std::int64_t least) const {
    if (value >= least && value <= most) return true;
    out_of_range(key, std::to_string(value),
                 value < least ? std::to_string(least) + " or more" : "at most " + std::to_string(most));
    return false;
  }
  void at_least(const std::string& key, double value, double least) const {
    range(key, value, value >= least && std::isfinite(value), spelled(least) + " or more");
  }
  void not_both(const std::string& one, const std::string& other, const std::string& remedy) const {
    if (!config_.was_set(one) || !config_.was_set(other)) return;
    refuse(8, {.what = one + " and " + other + " are both set",
               .where = config_.place(one) + " and " + config_.place(other),
               .remedy = remedy});
  }

  void optimization() const {
    const RunConfig& c = config_;
    if (c.eval_batch_size) count("eval_batch_size", *c.eval_batch_size, 1);
    range("num_epochs", c.num_epochs, c.num_epochs > 0 && c.num_epochs <= most, "more than 0");
    if (c.max_steps) count("max_steps", *c.max_steps, 1);
    at_least("learning_rate", c.learning_rate, 0);
    at_least("weight_decay", c.weight_decay, 0);
    range("adam_beta1", c.adam_beta1, c.adam_beta1 >= 0 && c.adam_beta1 < 1, "from 0 up to, not including, 1");
    range("adam_beta2", c.adam_beta2, c.adam_beta2 >= 0 && c.adam_beta2 < 1, "from 0 up to, not including, 1");
    range("adam_epsilon", c.adam_epsilon, c.adam_epsilon > 0 && std::isfinite(c.adam_epsilon), "more than 0");
    at_least("max_grad_norm", c.max_grad_norm, 0);
    not_both("warmup_steps", "warmup_ratio", "remove one");
    if (c.warmup_steps) count("warmup_steps", *c.warmup_steps, 0);
    if (c.warmup_ratio) fraction("warmup_ratio", *c.warmup_ratio);
    if (c.cosine_min_lr_ratio) fraction("cosine_min_lr_ratio", *c.cosine_min_lr_ratio);
    if (c.cosine_constant_lr_ratio) fraction("cosine_constant_lr_ratio", *c.cosine_constant_lr_ratio);
  }

  // The options of the schedule, and what it follows.
  void schedule() const {
    const RunConfig& c = config_;
    const optim::ScheduleConfig& s = c.schedule;
    const auto key = [](const char* name) { return std::string("lr_scheduler_kwargs.") + name; };
    const auto share = [&](const char* name, double value) { fraction(key(name), value); };
    const auto above = [&](const char* name, double value) {
      range(key(name), value, value > 0 && std::isfinite(value), "more than 0");
    };
    if (s.cycles) above("num_cycles", *s.cycles);
    if (s.first_ratio) share("warmup_lr_rate", *s.first_ratio);
    above("power", s.power);
    count(key("timescale"), s.timescale, 0);
    fraction(c.lr_scheduler == "polynomial" ? key("lr_end") : key("min_lr_ratio"), s.min_ratio);
    if (s.one_cycle.rise_share) share("pct_start", *s.one_cycle.rise_share);
    above("div_factor", s.one_cycle.div_factor);
    above("final_div_factor", s.one_cycle.final_div_factor);
    for (const auto& [name, value] :
         {std::pair{"base_momentum", s.one_cycle.base_momentum}, std::pair{"max_momentum", s.one_cycle.max_momentum},
          std::pair{"factor", s.plateau.factor}})
      range(key(name), value, value >= 0 && value < 1, "from 0 up to, not including, 1");
    count(key("patience"), s.plateau.patience, 0);
    count(key("cooldown"), s.plateau.cooldown, 0);
    at_least(key("threshold"), s.plateau.threshold, 0);
    at_least(key("min_lr"), s.plateau.min_rate, 0);
    at_least(key("eps"), s.plateau.epsilon, 0);
    const bool phases = c.lr_scheduler == "warmup_stable_decay";
    if (phases) count(key("num_decay_steps"), s.stable_decay.decay_steps, 1);
    if (s.stable_decay.stable_steps) count(key("num_stable_steps"), *s.stable_decay.stable_steps, 0);
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
    if (c.logging_steps) count("logging_steps", *c.logging_steps, 1);
    count("save_total_limit", c.save_total_limit, 1);
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
    range("val_set_size", c.val_set_size, c.val_set_size >= 0 && c.val_set_size < 1,
          "a fraction from 0 up to, not including, 1");
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
    for (const double weight : t.reward_weights)
      range("trl.reward_weights", weight, std::abs(weight) <= std::numeric_limits<float>::max(),
            "finite numbers up to 3.4e38");
    range("trl.reward_timeout", t.reward_timeout, t.reward_timeout > 0 && std::isfinite(t.reward_timeout),
          "more than 0 seconds");
    count("trl.reward_num_workers", t.reward_num_workers, 1);
    range("trl.reward_num_workers", static_cast<double>(t.reward_num_workers), t.reward_num_workers <= 256,
          "at most 256");
    count("trl.reward_max_retries", t.reward_max_retries, 0);
    range("trl.reward_max_retries", static_cast<double>(t.reward_max_retries), t.reward_max_retries <= 100,
          "at most 100");
    count("trl.max_completion_length", t.max_completion_length, 1);
    if (t.max_tool_calling_iterations) count("trl.max_tool_calling_iterations", *t.max_tool_calling_iterations, 0);
    count("trl.max_turns", t.max_turns, 0);
    range("trl.environment_timeout", t.environment_timeout,
          t.environment_timeout > 0 && std::isfinite(t.environment_timeout), "more than 0 seconds");
    if (t.num_generations_eval) count("trl.num_generations_eval", *t.num_generations_eval, 1);
    const bool greedy = matches_features(config_) && t.temperature == 0;  // log-probs are then those at 1
    range("trl.temperature", t.temperature, (t.temperature > 0 || greedy) && std::isfinite(t.temperature),
          "more than 0 (log-probs are divided by it)");
    range("trl.top_p", t.top_p, t.top_p > 0 && t.top_p <= 1, "more than 0, at most 1 (1 = off)");
    count("trl.top_k", t.top_k, 0);
    range("trl.min_p", t.min_p, t.min_p >= 0 && t.min_p <= 1, "from 0 (off) to 1");
    range("trl.repetition_penalty", t.repetition_penalty,
          t.repetition_penalty > 0 && std::isfinite(t.repetition_penalty), "more than 0 (1 = off)");
  }

  void loss() const {
    const TrlConfig& t = config_.trl;
    const std::string beta_key = config_.was_set("trl.beta") ? "trl.beta" : "rl_beta";
    at_least(beta_key, config_.beta, 0);
    method_ranges();
    ratio_level();
    entropy_bonus();
    if (!t.sync_ref_model) return;
    if (config_.beta == 0.0)
      synced_reference_conflict("needs a KL penalty: with beta 0 there is no reference",
                                "set trl.beta above 0, or remove trl.sync_ref_model");
    synced_reference(config_.lora || config_.lora_model_dir, t.ref_model_sync_steps, t.ref_model_mixup_alpha);
  }

  void entropy_bonus() const {
    const TrlConfig& t = config_.trl;
    if (!t.use_adaptive_entropy) return;
    range("trl.entropy_coef_min", t.entropy_coef_min,
          t.entropy_coef_min <= t.entropy_coef_max && std::isfinite(t.entropy_coef_min),
          "at most entropy_coef_max = " + spelled(t.entropy_coef_max));
    range("trl.entropy_coef_max", t.entropy_coef_max, std::isfinite(t.entropy_coef_max), "a finite number");
    range("trl.entropy_coef_delta", t.entropy_coef_delta,
          t.entropy_coef_delta > 0 && std::isfinite(t.entropy_coef_delta), "more than 0");
    range("trl.entropy_target", t.entropy_target, t.entropy_target >= 0 && std::isfinite(t.entropy_target),
          "0 nats or more");
  }

  // Keys of a reference that follows the policy, where there is one.
  void synced_reference(bool adapter, std::int64_t steps, double mixup) const {
    if (adapter)
      synced_reference_conflict("does not go with an adapter: its reference is the base model", "remove one of them");
    count("trl.ref_model_sync_steps", steps, 1);
    range("trl.ref_model_mixup_alpha", mixup, mixup >= 0 && mixup <= 1, "from 0 to 1");
  }

  void generation_server() const {
    const TrlConfig& t = config_.trl;
    if (t.serves())
      range("trl.vllm_server_port", static_cast<double>(t.vllm_server_port),
            t.vllm_server_port >= 0 && t.vllm_server_port < 65536, "from 1 to 65535, or 0 for one that is free");
    if (!t.generates_elsewhere()) return;
    range("trl.vllm_server_port", static_cast<double>(t.vllm_server_port),
          t.vllm_server_port > 0 && t.vllm_server_port < 65536, "from 1 to 65535");
    range("trl.vllm_group_port", static_cast<double>(t.vllm_group_port),
          t.vllm_group_port > 0 && t.vllm_group_port < 65536, "from 1 to 65535");
    range("trl.vllm_server_timeout", t.vllm_server_timeout,
          t.vllm_server_timeout > 0 && std::isfinite(t.vllm_server_timeout), "more than 0 seconds");
    range("trl.request_timeout", t.request_timeout, t.request_timeout > 0 && std::isfinite(t.request_timeout),
          "more than 0 seconds");
  }

  // Only the generation batch has to be divisible: a group may straddle micro-batches.
  void geometry() const {
    const RunConfig& c = config_;
    const TrlConfig& t = c.trl;
    bool counted = count("micro_batch_size", c.micro_batch_size, 1);
    counted = count("gradient_accumulation_steps", c.gradient_accumulation_steps, 1) && counted;
    count("trl.num_iterations", t.num_iterations, 1);
    if (t.num_generations >= fewest_generations(config_)) {
      counted = count("trl.num_generations", t.num_generations, 1) && counted;
    } else {
      counted = false;
      out_of_range("trl.num_generations", std::to_string(t.num_generations),
                   "2 or more: the completions of a group are compared with each other");
    }
    not_both("trl.generation_batch_size", "trl.steps_per_generation",
             "remove one: generation_batch_size = micro_batch_size × steps_per_generation");
    if (!counted) return;
    const std::int64_t b = c.micro_batch_size;
    const std::int64_t unit = std::lcm(b, t.num_generations);
    const auto next = [&](std::int64_t n) { return (n + unit - 1) / unit * unit; };
    if (t.generation_batch_size) {
      if (count("trl.generation_batch_size", *t.generation_batch_size, 1) && *t.generation_batch_size % unit != 0)
        indivisible("trl.generation_batch_size", std::to_string(*t.generation_batch_size),
                    "a multiple of micro_batch_size (" + std::to_string(b) + ") and of trl.num_generations (" +
                        std::to_string(t.num_generations) + ")",
                    "the next that works is " + std::to_string(next(*t.generation_batch_size)));
      return;
    }
    if (t.steps_per_generation && !count("trl.steps_per_generation", *t.steps_per_generation, 1)) return;
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
    method_ranges();
    for (const double layer : e.feature_layers)
      range("ebft.feature_layers", layer, layer >= 0 && layer <= 1, "relative depths from 0 to 1");
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
    if (!strided) return;
    count("micro_batch_size", config_.micro_batch_size, 1);
    count("gradient_accumulation_steps", config_.gradient_accumulation_steps, 1);
    count("sequence_len", e.sequence_len, 1);
  }

  // The range that each key of a method has by itself.
  void method_ranges() const {
    for (const MethodKey& key : method_keys()) {
      if (key.value == nullptr) continue;
      if (const std::optional<double> value = key.value(config_))
        range(std::string(key.name), *value, key.range.holds(*value), std::string(key.range.expected));
    }
  }

  // Keys of one recipe that another does not have.
  void recipe() const {
    const Recipe& recipe = recipe_of(config_);
    for (const MethodKey& key : refused_keys(recipe))
      if (config_.was_set(std::string(key.name)))
        refuse(8, {.what = std::string(key.name) + " does not go with rl: " + config_.rl,
                   .where = config_.place(std::string(key.name)),
                   .remedy = "remove the key, or set rl: " + std::string(readers_of(key.name, recipe).front())});
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
    const auto rank = [&](const std::string& key, std::int64_t value) {
      if (value < 1 || value > model::largest_rank)
        out_of_range(
            key, std::to_string(value),
            "1 to " + std::to_string(model::largest_rank) + ": a rank beyond the sides of a matrix adds nothing");
    };
    if (config_.was_set("lora_r")) rank("lora_r", config_.lora->r);
    for (const auto& [pattern, value] : config_.lora->rank_pattern) rank("lora_rank_pattern", value);
  }

 private:
  static constexpr std::int64_t most = 1000000000;

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
    if (per_epoch) count(name + "s_per_epoch", *per_epoch, 1);
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
  rules.data();
  rules.adapter();
  // Of what makes the completions nothing is known where the section that says it could not be read.
  const bool trains_alone = is_preference(config) || is_strided(config) || refusals.distrusts("ebft.");
  if (matches_features(config) && !refusals.distrusts("ebft.")) rules.feature_matching();
  if (!trains_alone) {
    rules.rollouts();
    rules.geometry();
    rules.loss();
    rules.generation_server();
    rules.recipe();
    rules.aggregation();
    rules.estimator();
  }
  rules.optimization();
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
