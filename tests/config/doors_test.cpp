// Every method by its door and by its row of config/methods.hpp: the same loss, gradient and metrics, and the same
// advantages, on random batches in double precision.
#include <support/catch.hpp>

#include <cstdint>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>

#include <rlalgo/bnpo.hpp>
#include <rlalgo/cispo.hpp>
#include <rlalgo/config/policy_gradient.hpp>
#include <rlalgo/config/preference.hpp>
#include <rlalgo/cpo.hpp>
#include <rlalgo/dapo.hpp>
#include <rlalgo/dpo.hpp>
#include <rlalgo/dr_grpo.hpp>
#include <rlalgo/ebft.hpp>
#include <rlalgo/gdpo.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/gspo.hpp>
#include <rlalgo/ipo.hpp>
#include <rlalgo/kto.hpp>
#include <rlalgo/luspo.hpp>
#include <rlalgo/orpo.hpp>
#include <rlalgo/reinforce_pp.hpp>
#include <rlalgo/rloo.hpp>
#include <rlalgo/sapo.hpp>
#include <rlalgo/simpo.hpp>
#include <rlalgo/strided_ebft.hpp>
#include <rlalgo/vespo.hpp>

using namespace rlalgo;

namespace {

constexpr std::int64_t length_limit = 9;

// The doors that a test of this file compared.
std::set<std::string>& compared() {
  static std::set<std::string> doors;
  return doors;
}

// Eight rows of one to seven tokens, the second a prompt's second completion or a pair's rejected answer; every column
// that a loss may read.
struct RandomBatch {
  loss::Scored scored;
  loss::Counts counts;

  explicit RandomBatch(unsigned seed) : random(seed) {
    std::vector<double> mask, likelihood;
    std::vector<std::int64_t> row;
    std::vector<double> lengths(rows, 0.0), advantage, desirable;
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t length = 1 + static_cast<std::int64_t>(random() % 7);
      for (std::int64_t t = 0; t < length; ++t) {
        const double carries = t == 0 || random() % 5 != 0 ? 1.0 : 0.0;
        mask.push_back(carries);
        row.push_back(r);
        lengths[static_cast<std::size_t>(r)] += carries;
        likelihood.push_back(r % 2 == 0 ? carries : 0.0);
      }
      advantage.push_back(number(-2.0, 2.0));
      desirable.push_back(r % 2 == 0 ? 1.0 : 0.0);
    }
    const std::size_t tokens = mask.size();
    scored.log_prob = column(tokens, -3.0, -0.01).requires_grad_(true);
    scored.old_log_prob = column(tokens, -3.0, -0.01);
    scored.reference_log_prob = column(tokens, -3.0, -0.01);
    scored.sampling_log_prob = column(tokens, -3.0, -0.01);
    scored.entropy = column(tokens, 0.0, 3.0);
    scored.mean_logit = column(tokens, -1.0, 1.0);
    scored.greedy = column(tokens, 0.0, 1.0).round();
    scored.collision = column(tokens, -2.0, -0.1);
    scored.mask = at::tensor(mask, at::kDouble);
    scored.likelihood_mask = at::tensor(likelihood, at::kDouble);
    scored.row = at::tensor(row, at::kLong);
    scored.row_length = at::tensor(lengths, at::kDouble);
    scored.advantage = at::tensor(advantage, at::kDouble);
    scored.desirable = at::tensor(desirable, at::kDouble);
    counts.rows = static_cast<double>(rows);
    counts.micro_batches = 1;
    for (std::size_t i = 0; i < tokens; ++i) {
      counts.tokens += mask[i];
      counts.likelihood_tokens += likelihood[i];
    }
    counts.desirable = rows / 2.0;
    counts.mismatched_log_ratio = 1.7;
  }

 private:
  static constexpr std::int64_t rows = 8;
  double number(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); }
  at::Tensor column(std::size_t n, double low, double high) {
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(number(low, high));
    return at::tensor(values, at::kDouble);
  }
  std::mt19937 random;
};

struct Outcome {
  double value = 0;
  std::vector<double> gradient;
  std::vector<std::pair<std::string, double>> metrics;
};

template <class L>
Outcome outcome_of(const L& loss, unsigned seed) {
  const RandomBatch batch(seed);
  const loss::Result result = loss(batch.scored, batch.counts);
  result.value.backward();
  Outcome out{.value = result.value.template item<double>(), .gradient = {}, .metrics = {}};
  const at::Tensor gradient = batch.scored.log_prob.grad();
  for (std::int64_t i = 0; i < gradient.numel(); ++i) out.gradient.push_back(gradient[i].template item<double>());
  for (const auto& [name, value] : result.metrics.values()) out.metrics.emplace_back(name, value);
  return out;
}

void check_same(const Outcome& door, const Outcome& row) {
  CHECK(door.value == row.value);
  CHECK(door.gradient == row.gradient);
  REQUIRE(door.metrics.size() == row.metrics.size());
  for (std::size_t i = 0; i < door.metrics.size(); ++i) {
    INFO(door.metrics[i].first);
    CHECK(door.metrics[i].first == row.metrics[i].first);
    CHECK((door.metrics[i].second == row.metrics[i].second ||
           (std::isnan(door.metrics[i].second) && std::isnan(row.metrics[i].second))));
  }
}

config::RunConfig run_of(const std::string& rl, const std::string& loss_type = "") {
  config::RunConfig run;
  const config::Recipe& recipe = *config::find_row(config::recipes(), rl);
  run.rl = rl;
  run.beta = recipe.beta;
  run.trl.multi_objective_aggregation = recipe.aggregation;
  run.trl.loss_type = loss_type.empty() ? std::string(recipe.loss_type) : loss_type;
  run.trl.max_completion_length = length_limit;
  if (!recipe.pair_objective.empty()) run.preference.dpo_loss_type = {std::string(recipe.pair_objective)};
  return run;
}

// One instantiation of the whole table for all doors.
Outcome policy_gradient_row(const config::RunConfig& run, unsigned seed) {
  return config::with_policy_gradient(run, config::entropy_coefficient(run),
                                      [&](const auto& loss) { return outcome_of(loss, seed); });
}
Outcome preference_row(const config::RunConfig& run, unsigned seed) {
  return config::with_preference_loss(run, [&](const auto& loss) { return outcome_of(loss, seed); });
}

template <class L, class Change>
void compare_policy_gradient(const char* door, const config::RunConfig& run, Change&& change) {
  INFO(door);
  compared().insert(door);
  typename L::Config settings{};
  change(settings);
  for (unsigned seed = 1; seed <= 5; ++seed) check_same(outcome_of(L(settings), seed), policy_gradient_row(run, seed));
}

// The door without a KL penalty and with one.
template <class Plain, class Penalized, class Change>
void compare_both(const char* door, config::RunConfig run, Change&& change) {
  compare_policy_gradient<Plain>(door, run, change);
  run.beta = 0.04;
  compare_policy_gradient<Penalized>(door, run, [&](auto& settings) {
    change(settings);
    settings.kl = {.beta = 0.04};
  });
}

template <class L, class Change>
void compare_preference(const char* door, const config::RunConfig& run, Change&& change) {
  INFO(door);
  compared().insert(door);
  typename L::Config settings{};
  settings.beta = run.beta;
  change(settings);
  for (unsigned seed = 1; seed <= 5; ++seed) check_same(outcome_of(L(settings), seed), preference_row(run, seed));
}

// Advantages of two rewards over three groups of four.
template <class G, class A>
std::vector<double> advantages(const G& aggregation, const A& estimator) {
  core::RewardTable rewards({"a", "b"}, {1.0, 0.5}, 12);
  core::Groups groups;
  std::mt19937 random(3);
  for (std::size_t i = 0; i < 12; ++i)
    for (std::size_t k = 0; k < 2; ++k) rewards(i, k) = static_cast<double>(random() % 1000) / 250.0 - 2.0;
  for (int g = 0; g < 3; ++g) groups.append(4);
  const std::vector<double> divergence = {0.1, 0.2, -0.3, 0.4, 0.5, 0.1, 0.0, -0.2, 0.3, 0.2, 0.1, -0.1};
  return aggregation::aggregate(aggregation, estimator, rewards, groups,
                                aggregation::needs_divergence(aggregation) ? std::span<const double>(divergence)
                                                                           : std::span<const double>())
      .advantage;
}

template <class G, class A>
void check_advantages(const config::RunConfig& run, const G& aggregation, const A& estimator) {
  INFO(run.rl);
  CHECK(advantages(config::reward_aggregation(run), config::estimator(run)) == advantages(aggregation, estimator));
}

const auto as_is = [](auto&) {};

}  // namespace

void compare_grpo_family() {
  const auto clip = [](auto& settings) { settings.surrogate = {.epsilon_low = 0.1, .epsilon_high = 0.3}; };
  const auto clipped = [](config::RunConfig run) {
    run.trl.epsilon = 0.1;
    run.trl.epsilon_high = 0.3;
    return run;
  };
  compare_both<Grpo::Loss, BasicGrpo<loss::K3Kl>::Loss>("grpo.hpp", clipped(run_of("grpo", "grpo")), clip);
  compare_both<Bnpo::Loss, BasicBnpo<loss::K3Kl>::Loss>("bnpo.hpp", clipped(run_of("grpo", "bnpo")), clip);
  compare_both<Dapo::Loss, BasicDapo<loss::K3Kl>::Loss>("dapo.hpp", clipped(run_of("grpo", "dapo")), clip);
  compare_both<DrGrpo::Loss, BasicDrGrpo<loss::K3Kl>::Loss>(
      "dr_grpo.hpp", clipped(run_of("grpo", "dr_grpo")), [&](auto& settings) {
        clip(settings);
        settings.reduction = {.max_completion_length = length_limit};
      });
  config::RunConfig sequence = clipped(run_of("grpo", "grpo"));
  sequence.trl.importance_sampling_level = "sequence";
  compare_both<Gspo::Loss, BasicGspo<loss::K3Kl>::Loss>("gspo.hpp", sequence, clip);
  sequence.trl.loss_type = "luspo";
  compare_both<Luspo::Loss, BasicLuspo<loss::K3Kl>::Loss>("luspo.hpp", sequence, clip);
  compare_both<ReinforcePp::Loss, BasicReinforcePp<loss::K3Kl>::Loss>("reinforce_pp.hpp",
                                                                      clipped(run_of("grpo", "dapo")), clip);
  compare_both<Gdpo::Loss, BasicGdpo<loss::K3Kl>::Loss>("gdpo.hpp", clipped(run_of("gdpo", "grpo")), clip);
}

TEST_CASE("doors of the GRPO family are the rows of trl.loss_type") { compare_grpo_family(); }

void compare_own_surrogates() {
  config::RunConfig cispo = run_of("grpo", "cispo");
  cispo.trl.epsilon_high = Cispo::Config{}.cap.epsilon_high;
  compare_both<Cispo::Loss, BasicCispo<loss::K3Kl>::Loss>(
      "cispo.hpp", cispo, [](auto& settings) { settings.surrogate = Cispo::Config{}.cap; });
  config::RunConfig sapo = run_of("grpo", "sapo");
  sapo.trl.sapo_temperature_pos = Sapo::Config{}.gate.temperature_positive;
  sapo.trl.sapo_temperature_neg = Sapo::Config{}.gate.temperature_negative;
  compare_both<Sapo::Loss, BasicSapo<loss::K3Kl>::Loss>("sapo.hpp", sapo, as_is);
  compare_both<Vespo::Loss, BasicVespo<loss::K3Kl>::Loss>("vespo.hpp", run_of("grpo", "vespo"), as_is);
  compare_policy_gradient<Rloo::Loss>("rloo.hpp", run_of("rloo"), as_is);
}

TEST_CASE("doors with a surrogate of their own are its row, the paper's constants written as keys") {
  compare_own_surrogates();
}

void compare_feature_matching() {
  config::RunConfig run = run_of("ebft");
  run.ebft.rl_coef = 0.7;
  run.ebft.ce_coef = 0.3;
  compared().insert("ebft.hpp");
  const Ebft::Loss::Config weights{.policy = 0.7, .cross_entropy = 0.3, .prefix = "ebft/"};
  for (unsigned seed = 1; seed <= 5; ++seed)
    check_same(outcome_of(Ebft::Loss(weights, Dapo::Loss({.surrogate = config::clipped_ratio(run)})), seed),
               policy_gradient_row(run, seed));
  // config/detail/train_strided.hpp calls this door itself.
  CHECK(config::find_row(config::matching_modes(), "strided")->door == "strided_ebft.hpp");
  compared().insert("strided_ebft.hpp");
}

TEST_CASE("ebft.hpp is the row of rl: ebft") {
  compare_feature_matching();
  config::RunConfig run = run_of("ebft");
  CHECK(advantages(config::reward_aggregation(run), config::estimator(run)) ==
        advantages(feature::MatchingAdvantage<>(), advantage::PassThrough()));
  run.ebft.advantage_estimator = "group_norm";
  CHECK(advantages(config::reward_aggregation(run), config::estimator(run)) ==
        advantages(feature::MatchingAdvantage<feature::GroupNorm>(), advantage::PassThrough()));
  run.given["trl.scale_rewards"] = {};
  check_advantages(run, aggregation::SumThenNormalize(), advantage::GroupRelative<>());
  run.given["ebft.advantage_estimator"] = {};
  CHECK(advantages(config::reward_aggregation(run), config::estimator(run)) ==
        advantages(feature::MatchingAdvantage<feature::GroupNorm>(), advantage::PassThrough()));
}

TEST_CASE("the second argument of a door is trl.importance_sampling_level") {
  config::RunConfig run = run_of("grpo", "dapo");
  run.trl.importance_sampling_level = "sequence_token";
  compare_policy_gradient<BasicDapo<loss::NoKl, loss::SequenceTokenRatio>::Loss>("dapo.hpp", run, as_is);
  run.trl.importance_sampling_level = "sequence";
  compare_policy_gradient<BasicDapo<loss::NoKl, loss::SequenceRatio>::Loss>("dapo.hpp", run, as_is);
}

TEST_CASE("estimators and aggregations of doors are those of the rows") {
  const aggregation::SumThenNormalize sum;
  check_advantages(run_of("grpo"), sum, advantage::GroupRelative<>(Grpo::Config{}.advantage));
  config::RunConfig unscaled = run_of("grpo", "dr_grpo");
  unscaled.trl.scale_rewards = "none";
  check_advantages(unscaled, sum, advantage::GroupRelative<advantage::Scale::none>());
  check_advantages(run_of("gdpo"), aggregation::NormalizeThenSum(), advantage::GroupRelative<>());
  config::RunConfig rloo = run_of("rloo");
  rloo.trl.reward_clip_range = {-1.0, 1.0};
  check_advantages(rloo, aggregation::SumMinusKl({.beta = 0.05, .range = std::pair(-1.0, 1.0)}),
                   advantage::LeaveOneOut(Rloo::Config{}.advantage));
  config::RunConfig whitened = run_of("grpo");
  whitened.trl.advantage_estimator = "reinforce_pp_baseline";
  check_advantages(whitened, sum, advantage::BatchWhitened(ReinforcePp::Config{}.advantage));
  whitened.trl.advantage_estimator = "reinforce_pp";
  check_advantages(whitened, sum, advantage::BatchWhitened({.group_baseline = false}));
  whitened.trl.advantage_estimator = "leave_one_out";
  check_advantages(whitened, sum, advantage::LeaveOneOut());
  whitened.trl.advantage_estimator = "pass_through";
  check_advantages(whitened, sum, advantage::PassThrough());
}

void compare_preference_recipes() {
  compare_preference<Dpo::Loss>("dpo.hpp", run_of("dpo"), as_is);
  compare_preference<Ipo::Loss>("ipo.hpp", run_of("ipo"), as_is);
  compare_preference<Orpo::Loss>("orpo.hpp", run_of("orpo"), as_is);
  compare_preference<Cpo::Loss>("cpo.hpp", run_of("cpo"), as_is);
  config::RunConfig simpo = run_of("simpo");
  simpo.beta = 2.0;
  simpo.preference.simpo_gamma = 0.5;
  simpo.preference.cpo_alpha = 0.0;
  compare_preference<SimPo::Loss>("simpo.hpp", simpo, [](auto& settings) { settings = SimPo::Config{}; });
  config::RunConfig kto = run_of("kto");
  kto.preference.kto_undesirable_weight = 0.7;
  const auto weights = [](auto& settings) { settings.undesirable_weight = 0.7; };
  compare_preference<Kto::Loss>("kto.hpp", kto, weights);
  kto.preference.loss_type = "apo_zero_unpaired";
  compare_preference<typename BasicKto<loss::ApoZeroUnpaired>::Loss>("kto.hpp", kto, weights);
}

TEST_CASE("doors of preference methods are the rows of rl") { compare_preference_recipes(); }

namespace {

template <class O>
void compare_objective(const char* name, typename O::Config objective = {}) {
  INFO(name);
  config::RunConfig run = run_of("dpo");
  run.preference.dpo_loss_type = {name};
  run.preference.dpo_label_smoothing = 0.1;
  const config::PairObjective row = config::pair_objectives_of(run).front();
  CHECK(row.uses_scores == O::uses_scores);
  CHECK(row.per_pair == O::per_pair);
  compare_preference<typename BasicDpo<O>::Loss>("dpo.hpp", run,
                                                 [&](auto& settings) { settings.objective = objective; });
}

}  // namespace

TEST_CASE("objectives of dpo.hpp are the rows of dpo_loss_type") {
  compare_objective<loss::Sigmoid>("sigmoid");
  compare_objective<loss::Hinge>("hinge");
  compare_objective<loss::Ipo>("ipo");
  compare_objective<loss::ExoPair>("exo_pair", {.label_smoothing = 0.1});
  compare_objective<loss::NcaPair>("nca_pair");
  compare_objective<loss::Robust>("robust", {.label_smoothing = 0.1});
  compare_objective<loss::BcoPair>("bco_pair");
  compare_objective<loss::SppoHard>("sppo_hard");
  compare_objective<loss::Aot>("aot", {.label_smoothing = 0.1});
  compare_objective<loss::AotUnpaired>("aot_unpaired", {.label_smoothing = 0.1});
  compare_objective<loss::DiscoPop>("discopop", {.tau = 0.05});
  compare_objective<loss::ApoZero>("apo_zero");
  compare_objective<loss::ApoDown>("apo_down");
  compare_objective<loss::ChosenLikelihood>("sft");
  compare_objective<loss::SigmoidNorm>("sigmoid_norm");

  config::RunConfig weighted = run_of("dpo");
  weighted.preference.dpo_use_weighting = true;
  compare_preference<typename BasicDpo<loss::Sigmoid, loss::ReverseKl, loss::PolicyWeighted>::Loss>("dpo.hpp", weighted,
                                                                                                    as_is);
  config::RunConfig divergent = run_of("dpo");
  divergent.preference.f_divergence_type = "js_divergence";
  compare_preference<typename BasicDpo<loss::Sigmoid, loss::JensenShannon>::Loss>("dpo.hpp", divergent, as_is);
}

TEST_CASE("levels and objectives of cpo.hpp are the rows of trl.loss_type") {
  const auto named = [](const char* name) {
    config::RunConfig run = run_of("cpo");
    run.preference.loss_type = name;
    return run;
  };
  compare_preference<typename BasicCpo<loss::Hinge>::Loss>("cpo.hpp", named("hinge"), as_is);
  compare_preference<typename BasicCpo<loss::Ipo, loss::MeanLogProb>::Loss>("cpo.hpp", named("ipo"), as_is);
  compare_preference<SimPo::Loss>("cpo.hpp", named("simpo"), [](auto& settings) { settings.objective.gamma = 0.5; });
  config::RunConfig alpha = named("alphapo");
  alpha.preference.alpha = 0.25;
  compare_preference<SimPo::Loss>("cpo.hpp", alpha, [](auto& settings) {
    settings.objective.gamma = 0.5;
    settings.likelihood_weight = 0.0;
    settings.shape = 0.25;
  });
}

TEST_CASE("no door was left out") {
  namespace fs = std::filesystem;
  std::set<std::string> doors;
  for (const auto& entry : fs::directory_iterator(fs::path(support::test_dir).parent_path() / "include/rlalgo"))
    if (entry.is_regular_file() && entry.path().filename() != "rlalgo.hpp")
      doors.insert(entry.path().filename().string());
  compare_grpo_family();
  compare_own_surrogates();
  compare_preference_recipes();
  compare_feature_matching();
  CHECK(compared() == doors);
}
