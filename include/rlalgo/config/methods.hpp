// The table of methods: one row for every word by which a configuration names a method, and what that word means.
//
//   key                             rows                  what a row decides
//   rl                              recipes()             where experience comes from, what is fixed, the defaults
//   trl.loss_type, rollouts         policy_objectives()   surrogate, reduction, scope of the entropy bonus
//   trl.importance_sampling_level   ratio_levels()        what one importance ratio belongs to
//   trl.advantage_estimator         estimators()          advantages of a group or a batch
//   trl.multi_objective_aggregation aggregations()        several rewards → one advantage
//   dpo_loss_type                   pair_objectives()     the objective of a pair
//   trl.loss_type, kto cpo simpo    preference_losses()   value function, or level and objective
//   ebft.mode                       matching_modes()      completions of prompts, or blocks of documents
//   ebft.advantage_estimator        matching_estimators() advantages of a group's alignment and diversity
//   ebft.embed_method               poolings()            which tokens are the feature of a text or a block
//
// Rows hold parts, not types: config/policy_gradient.hpp and config/preference.hpp turn a part into the type of loss/,
// advantage/ or aggregation/ that it names, and every other header of config/ asks a row, never for a name. A method is
// added as a door, a row and a page (docs/algorithms/); tests/config/doors_test.cpp proves door and row equal.
//
// Which keys a method reads is said in the rows of the keys (config/keys.hpp); config/method_of.hpp has the rows of these tables that a
// configuration chose.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/matching_methods.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/data/preference_row.hpp>

namespace rlalgo::config {

using Words = std::vector<std::string_view>;

// Parts, by the names of the types that they stand for.
enum class SurrogatePart { clipped_ratio, cispo, sapo, vespo };
enum class ReductionPart { sequence_mean, token_mean, fixed_length, global_token_count, length_weighted };
enum class LevelPart { token, sequence, sequence_token, completion };
enum class EstimatorPart { group_relative, leave_one_out, batch_whitened, batch_whitened_groups, pass_through };
enum class AggregationPart { sum_then_normalize, normalize_then_sum, sum_minus_kl };
enum class BonusScope { micro_batch, step };  // what divides an entropy bonus over a share of the tokens

enum class PreferenceFamilyLoss { direct, prospect, odds_ratio, contrastive };
enum class PairPart {
  sigmoid,
  hinge,
  ipo,
  exo_pair,
  nca_pair,
  robust,
  bco_pair,
  sppo_hard,
  aot,
  aot_unpaired,
  discopop,
  apo_zero,
  apo_down,
  sft,
  sigmoid_norm,
  margin_sigmoid
};
enum class Smoothing { unread, positive, below_half };  // what an objective asks of dpo_label_smoothing

// A loss of rollouts: trl.loss_type.
struct PolicyObjective {
  std::string_view name;
  std::string_view summary;
  std::string_view door;  // header in include/rlalgo/
  std::string_view page;  // in docs/algorithms/
  SurrogatePart surrogate;
  ReductionPart reduction;
  std::vector<LevelPart> levels;  // that its surrogate has a meaning with
  BonusScope bonus = BonusScope::micro_batch;
  bool idle_rows_are_free = true;  // rows of advantage 0 may be left out: its denominators are counts of the step
};

struct RatioLevel {
  std::string_view name;
  std::string_view summary;
  LevelPart part;
  std::string_view door = {};  // of the method that is known by this level, or none
  std::string_view page = {};
};

struct Estimator {
  std::string_view name;
  std::string_view summary;
  EstimatorPart part;
  std::string_view door = {};
  std::string_view page = {};
};

struct Aggregation {
  std::string_view name;
  std::string_view summary;
  AggregationPart part;
  bool normalises = false;  // every reward by itself: leaves nothing for another estimator than group_relative to do
};

// What trl.loss_type means for a preference recipe.
struct PreferenceLoss {
  std::string_view name;
  std::string_view summary;
  Words recipes;            // the values of rl whose loss it is; the first row of a recipe is its default
  bool mismatched = false;  // prospect: compares with mismatched completions
  bool mean = false;        // contrastive: the mean of a completion's log-probs, not their sum
  PairPart objective = PairPart::sigmoid;  // contrastive
  bool margin = false;                     // simpo_gamma is read
  bool likelihood = true;                  // cpo_alpha is read; else it is 0
};

// An objective of rl: dpo.
struct PairObjective {
  std::string_view name;
  PairPart part;
  Smoothing smoothing = Smoothing::unread;
  bool uses_scores = true;  // a divergence has a meaning
  bool per_pair = true;     // pairs can be weighted
};

struct Recipe {
  std::string_view name;
  std::string_view summary;
  std::string_view door;
  std::string_view page;
  bool generates = true;  // learns from its own completions; else from a dataset of preferences
  bool supported = true;

  // Defaults of keys
  double beta = 0.0;
  std::int64_t num_generations = 8;
  std::string_view loss_type = "dapo";
  std::string_view aggregation = "sum_then_normalize";

  // With completions: what the recipe is about, which no key changes
  std::optional<LevelPart> level = {};
  std::optional<EstimatorPart> estimator = {};
  std::optional<AggregationPart> aggregation_part = {};
  bool penalty_in_reward = false;  // the KL penalty is part of the reward: none in the loss
  bool plain = false;              // no entropy bonus, no correction for a server's log-probs
  bool matches_features = false;   // rewards are those of feature matching (section ebft), not functions

  // With preferences
  PreferenceFamilyLoss loss = PreferenceFamilyLoss::direct;
  data::PreferenceFamily family = data::PreferenceFamily::pairs;
  bool ends_with_id = false;  // the end of an answer is the tokenizer's id, not its text
  bool needs_reference = false;
  bool in_dataset_order = false;  // rows keep their neighbours
  bool takes_warmup_ratio = true;
  std::string_view pair_objective = {};  // the only dpo_loss_type
  std::string_view now_written = {};     // how the recipe is written today
};

// clang-format off
[[nodiscard]] inline const std::vector<PolicyObjective>& policy_objectives() {
  using enum ReductionPart;
  using Surrogate = SurrogatePart;
  static const std::vector<LevelPart> any = {LevelPart::token, LevelPart::sequence, LevelPart::sequence_token};
  static const std::vector<LevelPart> no_gradient_per_token = {LevelPart::token, LevelPart::sequence};
  static const std::vector<LevelPart> token = {LevelPart::token};
  static const std::vector<PolicyObjective> rows = {
    {"grpo", "clipped ratio, mean over the tokens of a completion, then over completions", "grpo.hpp", "grpo.md", Surrogate::clipped_ratio,
        sequence_mean, any, BonusScope::micro_batch, true},
    {"bnpo", "clipped ratio, mean over the tokens of a micro-batch", "bnpo.hpp", "bnpo.md", Surrogate::clipped_ratio, token_mean, any,
        BonusScope::micro_batch, false},
    {"dr_grpo", "clipped ratio, sum over tokens divided by max_completion_length", "dr_grpo.hpp", "dr_grpo.md", Surrogate::clipped_ratio,
        fixed_length, any, BonusScope::micro_batch, true},
    {"dapo", "clipped ratio, mean over the tokens of the step", "dapo.hpp", "dapo.md", Surrogate::clipped_ratio, global_token_count, any,
        BonusScope::step, true},
    {"cispo", "log-prob weighted by the capped ratio, mean over the tokens of the step", "cispo.hpp", "cispo.md", Surrogate::cispo,
        global_token_count, no_gradient_per_token, BonusScope::step, true},
    {"sapo", "soft gate on the ratio, mean over the tokens of a completion, then over completions", "sapo.hpp", "sapo.md", Surrogate::sapo,
        sequence_mean, no_gradient_per_token, BonusScope::micro_batch, true},
    {"luspo", "clipped ratio, completions weighted by their length", "luspo.hpp", "luspo.md", Surrogate::clipped_ratio, length_weighted,
        any, BonusScope::micro_batch, true},
    {"vespo", "log-prob weighted by a gamma-shaped function of the completion's ratio", "vespo.hpp", "vespo.md", Surrogate::vespo,
        global_token_count, token, BonusScope::step, true},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<RatioLevel>& ratio_levels() {
  static const std::vector<RatioLevel> rows = {
    {"token", "one ratio per token", LevelPart::token},
    {"sequence", "one ratio per completion: the geometric mean over its tokens", LevelPart::sequence, "gspo.hpp", "gspo.md"},
    {"sequence_token", "the ratio of a completion with a gradient per token", LevelPart::sequence_token},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<Estimator>& estimators() {
  static const std::vector<Estimator> rows = {
    {"group_relative", "difference to the mean of the group, scaled by scale_rewards", EstimatorPart::group_relative},
    {"leave_one_out", "difference to the mean of the others", EstimatorPart::leave_one_out, "rloo.hpp", "rloo.md"},
    {"reinforce_pp", "rewards whitened over the batch", EstimatorPart::batch_whitened, "reinforce_pp.hpp", "reinforce_pp.md"},
    {"reinforce_pp_baseline", "differences to the mean of the group whitened over the batch", EstimatorPart::batch_whitened_groups,
        "reinforce_pp.hpp", "reinforce_pp.md"},
    {"pass_through", "the rewards themselves", EstimatorPart::pass_through},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<Aggregation>& aggregations() {
  static const std::vector<Aggregation> rows = {
    {"sum_then_normalize", "advantages of the weighted sum of the rewards", AggregationPart::sum_then_normalize},
    {"normalize_then_sum", "each reward normalised by its group, weighted, summed, normalised over the batch",
        AggregationPart::normalize_then_sum, true},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<PairObjective>& pair_objectives() {
  static const std::vector<PairObjective> rows = {
    {"sigmoid", PairPart::sigmoid},
    {"hinge", PairPart::hinge},
    {"ipo", PairPart::ipo},
    {"exo_pair", PairPart::exo_pair, Smoothing::positive},
    {"nca_pair", PairPart::nca_pair, Smoothing::unread, false},
    {"robust", PairPart::robust, Smoothing::below_half},
    {"bco_pair", PairPart::bco_pair, Smoothing::unread, false},
    {"sppo_hard", PairPart::sppo_hard, Smoothing::unread, false},
    {"aot", PairPart::aot, Smoothing::below_half, false, false},
    {"aot_unpaired", PairPart::aot_unpaired, Smoothing::below_half, false, false},
    {"discopop", PairPart::discopop},
    {"apo_zero", PairPart::apo_zero, Smoothing::unread, false},
    {"apo_down", PairPart::apo_down, Smoothing::unread, false},
    {"sft", PairPart::sft},
    {"sigmoid_norm", PairPart::sigmoid_norm},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<PreferenceLoss>& preference_losses() {
  static const Words both = {"simpo", "cpo"};
  static const std::vector<PreferenceLoss> rows = {
    {.name = "kto", .summary = "value of prospect theory", .recipes = {"kto"}, .mismatched = true},
    {.name = "apo_zero_unpaired", .summary = "anchored at 0, no mismatched completions", .recipes = {"kto"}},
    {.name = "sigmoid", .summary = "logistic, on sums", .recipes = {"cpo"}, .objective = PairPart::margin_sigmoid},
    {.name = "hinge", .summary = "hinge, on sums", .recipes = {"cpo"}, .objective = PairPart::hinge},
    {.name = "ipo", .summary = "squared, on means", .recipes = {"cpo"}, .mean = true, .objective = PairPart::ipo},
    {.name = "simpo", .summary = "logistic with a margin, on means", .recipes = both, .mean = true, .objective = PairPart::margin_sigmoid,
        .margin = true},
    {.name = "alphapo", .summary = "simpo without the likelihood term, shaped by trl.alpha", .recipes = both, .mean = true,
        .objective = PairPart::margin_sigmoid, .margin = true, .likelihood = false},
  };
  return rows;
}

[[nodiscard]] inline const std::vector<Recipe>& recipes() {
  using Loss = PreferenceFamilyLoss;
  using data::PreferenceFamily;
  static const std::vector<Recipe> rows = {
    {.name = "grpo", .summary = "group-relative policy optimization and its relatives, by trl.loss_type", .door = "grpo.hpp", .page =
        "grpo.md"},
    {.name = "gdpo", .summary = "each reward normalised by its group before they are summed", .door = "gdpo.hpp", .page = "gdpo.md",
        .aggregation = "normalize_then_sum", .aggregation_part = AggregationPart::normalize_then_sum},
    {.name = "rloo", .summary = "REINFORCE with the other completions as baseline, KL penalty in the reward", .door = "rloo.hpp", .page =
        "rloo.md", .beta = 0.05, .num_generations = 2, .loss_type = "grpo", .level = LevelPart::completion,
        .estimator = EstimatorPart::leave_one_out, .aggregation_part = AggregationPart::sum_minus_kl, .penalty_in_reward = true,
        .plain = true},
    {.name = "dpo", .summary = "pairs, log-ratios to a reference", .door = "dpo.hpp", .page = "dpo.md", .generates = false, .beta = 0.1,
        .loss = Loss::direct, .needs_reference = true},
    {.name = "ipo", .summary = "pairs, a bounded target for their difference", .door = "ipo.hpp", .page = "ipo.md", .generates = false,
        .beta = 0.1, .loss = Loss::direct, .needs_reference = true, .pair_objective = "ipo", .now_written = "rl: dpo with dpo_loss_type: "
        "[ipo]"},
    {.name = "kto", .summary = "single answers marked good or bad", .door = "kto.hpp", .page = "kto.md", .generates = false, .beta = 0.1,
        .loss = Loss::prospect, .family = PreferenceFamily::unpaired, .needs_reference = true, .in_dataset_order = true},
    {.name = "orpo", .summary = "supervised training with an odds-ratio penalty, no reference", .door = "orpo.hpp", .page = "orpo.md",
        .generates = false, .beta = 0.1, .loss = Loss::odds_ratio, .family = PreferenceFamily::odds, .ends_with_id = true},
    {.name = "simpo", .summary = "pairs, mean log-probs with a margin, no reference", .door = "simpo.hpp", .page = "simpo.md",
        .generates = false, .beta = 0.1, .loss = Loss::contrastive, .ends_with_id = true, .takes_warmup_ratio = false},
    {.name = "cpo", .summary = "pairs, the policy's own log-probs and a likelihood term", .door = "cpo.hpp", .page = "cpo.md",
        .generates = false, .beta = 0.1, .loss = Loss::contrastive, .ends_with_id = true},
    {.name = "ebft", .summary = "completions, or blocks, whose features match those of the ground truth", .door = "ebft.hpp", .page =
        "ebft.md", .matches_features = true},
  };
  return rows;
}
// clang-format on

// The row of that name, or null.
template <class Row>
[[nodiscard]] const Row* find_row(const std::vector<Row>& rows, std::string_view name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

// The names of a table, as the reader wants them. `supported`: the member by which rows say whether they are; null: all are.
template <class Row>
[[nodiscard]] Names names_of(const std::vector<Row>& rows, bool Row::*supported = nullptr) {
  Names out;
  for (const Row& row : rows) {
    out.known.emplace_back(row.name);
    if (supported == nullptr || row.*supported) out.supported.emplace_back(row.name);
  }
  return out;
}

// The rows of preference_losses() that a recipe has; the first is its default.
[[nodiscard]] inline std::vector<PreferenceLoss> losses_of(const Recipe& recipe) {
  std::vector<PreferenceLoss> out;
  for (const PreferenceLoss& row : preference_losses())
    if (std::find(row.recipes.begin(), row.recipes.end(), recipe.name) != row.recipes.end()) out.push_back(row);
  return out;
}

}  // namespace rlalgo::config
