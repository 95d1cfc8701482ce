#include <loss/scored_batch.hpp>

#include <limits>

#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/fixed_length.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/k3_kl.hpp>
#include <rlalgo/loss/length_weighted.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/token_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>

namespace {
using namespace scored_batch;
using namespace rlalgo::loss;

template <class L, class R, class K = NoKl>
using Clipped = PolicyGradient<ClippedRatio, L, K, R>;

template <class L>
L with_length_8(typename L::Config config = {}) {
  if constexpr (requires { config.reduction.max_completion_length; }) config.reduction.max_completion_length = 8;
  return L(config);
}

// Value and gradient on the batch of two rows, to 10 digits. Reference: TRL (grpo_trainer.py) in float64.
template <class L>
void check_golden(double value, const std::vector<double>& slopes, const typename L::Config& config = {}) {
  const Scored s = two_rows();
  const Result result = with_length_8<L>(config)(s, counts_of(s));
  CHECK(result.value.item<double>() == Approx(value).margin(1e-9).epsilon(0));
  if (!slopes.empty()) check_close(gradient(result.value, s), slopes, 1e-9);
}
}  // namespace

TEST_CASE("every reduction and ratio level of the clipped surrogate gives TRL's value and gradient") {
  check_golden<Clipped<TokenRatio, SequenceMean>>(
      -0.3759373179, {0, -0.1696570159, -0.2072195471, 0, 0.2699717615, 0.1809674836, 0, 0});
  check_golden<Clipped<SequenceRatio, SequenceMean>>(-0.4579316328, {0, 0, 0, 0, 0.2210341836, 0.2210341836, 0, 0});
  check_golden<Clipped<TokenRatio, TokenMean>>(-0.8018759206,
                                               {0, -0.2262093545, -0.2762927295, 0, 0.1799811743, 0.1206449891, 0, 0});
  check_golden<Clipped<SequenceRatio, TokenMean>>(-0.9052877552, {0, 0, 0, 0, 0.1473561224, 0.1473561224, 0, 0});
  check_golden<Clipped<TokenRatio, GlobalTokenCount>>(
      -0.8018759206, {0, -0.2262093545, -0.2762927295, 0, 0.1799811743, 0.1206449891, 0, 0});
  check_golden<Clipped<SequenceRatio, GlobalTokenCount>>(-0.9052877552, {0, 0, 0, 0, 0.1473561224, 0.1473561224, 0, 0});
  check_golden<Clipped<TokenRatio, FixedLength>>(
      -0.3007034702, {0, -0.0848285079, -0.1036097736, 0, 0.0674929404, 0.0452418709, 0, 0});
  check_golden<Clipped<SequenceRatio, FixedLength>>(-0.3394829082, {0, 0, 0, 0, 0.0552585459, 0.0552585459, 0, 0});
  check_golden<Clipped<SequenceRatio, LengthWeighted>>(-2.7158632655, {0, 0, 0, 0, 0.4420683672, 0.4420683672, 0, 0});
  // A token ratio with TRL 1.16's masked sum: −4.8112555237 / 2.
  check_golden<Clipped<TokenRatio, LengthWeighted>>(
      -2.4056277618, {0, -0.6786280635, -0.8288781886, 0, 0.5399435230, 0.3619349672, 0, 0});
}

TEST_CASE("separate bounds and the bound on the unclipped branch give TRL's value and gradient") {
  const ClippedRatio::Config bounds{.epsilon_low = 0.2, .epsilon_high = 0.28, .delta = 1.3};
  check_golden<Clipped<TokenRatio, SequenceMean>>(
      -0.4159090794, {0, -0.1696570159, -0.2072195471, 0, 0, 0.1809674836, 0, 0}, {.surrogate = bounds});
  check_golden<Clipped<SequenceRatio, SequenceMean>>(
      -0.4971736699, {-0.2348105093, -0.2348105093, -0.2348105093, -0.2348105093, 0.2210341836, 0.2210341836, 0, 0},
      {.surrogate = bounds});
  check_golden<Clipped<TokenRatio, GlobalTokenCount>>(
      -0.8485237616, {0, -0.2262093545, -0.2762927295, 0, 0, 0.1206449891, 0, 0}, {.surrogate = bounds});
  check_golden<Clipped<SequenceRatio, GlobalTokenCount>>(
      -0.9576104714, {-0.3130806790, -0.3130806790, -0.3130806790, -0.3130806790, 0.1473561224, 0.1473561224, 0, 0},
      {.surrogate = bounds});
}

TEST_CASE("the KL penalty, plain and corrected, gives TRL's value and gradient") {
  const K3Kl::Config plain{.beta = 0.04}, corrected{.beta = 0.04, .bias_correction = true};
  check_golden<Clipped<TokenRatio, SequenceMean, K3Kl>>(
      -0.3752869410, {0.0004758129, -0.1691812030, -0.2083265609, 0.0009063462, 0.2717844540, 0.1787534560, 0, 0},
      {.kl = plain});
  check_golden<Clipped<TokenRatio, SequenceMean, K3Kl>>(
      -0.3751473677, {0.0006749294, -0.1692045972, -0.2083247181, 0.0018221188, 0.2726714791, 0.1791578088, 0, 0},
      {.kl = corrected});
  check_golden<Clipped<SequenceRatio, SequenceMean, K3Kl>>(-0.4572812559, {}, {.kl = plain});
  check_golden<Clipped<SequenceRatio, SequenceMean, K3Kl>>(
      -0.4571762083, {0.0006738415, 0.0006738415, -0.0013083684, 0.0012130081, 0.2232592906, 0.2188090767, 0, 0},
      {.kl = corrected});
  check_golden<Clipped<TokenRatio, GlobalTokenCount, K3Kl>>(-0.8012763082, {}, {.kl = plain});
  check_golden<Clipped<TokenRatio, GlobalTokenCount, K3Kl>>(
      -0.8011203195, {0.0008999059, -0.2256061296, -0.2777662907, 0.0024294917, 0.1817809861, 0.1194385392, 0, 0},
      {.kl = corrected});
  check_golden<Clipped<SequenceRatio, GlobalTokenCount, K3Kl>>(-0.9046881428, {}, {.kl = plain});
  check_golden<Clipped<SequenceRatio, GlobalTokenCount, K3Kl>>(-0.9045762184, {}, {.kl = corrected});
  check_golden<Clipped<SequenceRatio, LengthWeighted, K3Kl>>(
      -2.7140644284, {0.0019032516, 0.0019032516, -0.0044280552, 0.0036253849, 0.4456937522, 0.4376403121, 0, 0},
      {.kl = plain});
}

TEST_CASE("denominators are counts of the whole step: two micro-batches on two ranks") {
  const Scored s = two_rows();
  // Four micro-batches of two rows; 20 tokens in all. TRL's ranks are averaged, ours are summed: × 2.
  const Counts counts{.rows = 8, .tokens = 20, .micro_batches = 4};
  const auto value = [&](const auto& loss) { return 2 * loss(s, counts).value.template item<double>(); };
  CHECK(value(Clipped<TokenRatio, SequenceMean>({})) == Approx(-0.1879686589).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<TokenRatio, TokenMean>({})) == Approx(-0.4009379603).margin(1e-9).epsilon(0));
  CHECK(value(with_length_8<Clipped<TokenRatio, FixedLength>>()) == Approx(-0.1503517351).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<TokenRatio, GlobalTokenCount>({})) == Approx(-0.4811255524).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<SequenceRatio, LengthWeighted>({})) == Approx(-1.3579316328).margin(1e-9).epsilon(0));
  // A window of 12 tokens on one rank.
  CHECK(Clipped<TokenRatio, GlobalTokenCount>({})(s, {.rows = 4, .tokens = 12, .micro_batches = 2})
            .value.item<double>() == Approx(-0.4009379603).margin(1e-9).epsilon(0));
}

TEST_CASE("a fully masked row adds nothing but still counts as a row") {
  Scored s = two_rows();
  s.mask = column({1, 1, 1, 1, 0, 0, 0, 0});
  s.row_length = column({4, 0});
  const auto value = [&](const auto& loss) {
    const Result result = loss(s, counts_of(s));
    check_close(gradient(result.value, s).slice(0, 4), {0, 0, 0, 0}, 0.0);
    return result.value.template item<double>();
  };
  CHECK(value(Clipped<TokenRatio, SequenceMean>({})) == Approx(-0.8268765630).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<TokenRatio, TokenMean>({})) == Approx(-1.6537531260).margin(1e-9).epsilon(0));
  CHECK(value(with_length_8<Clipped<TokenRatio, FixedLength>>()) == Approx(-0.4134382815).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<TokenRatio, GlobalTokenCount>({})) == Approx(-1.6537531260).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<SequenceRatio, SequenceMean>({})) == Approx(-0.9).margin(1e-9).epsilon(0));
}

TEST_CASE("without old log-probs the ratio is 1 and carries the gradient") {
  Scored s = two_rows();
  s.old_log_prob = Tensor();
  const auto value = [&](const auto& loss) { return loss(s, counts_of(s)).value.template item<double>(); };
  CHECK(value(Clipped<TokenRatio, SequenceMean>({})) == Approx(-0.35).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<TokenRatio, TokenMean>({})) == Approx(-0.7333333333).margin(1e-9).epsilon(0));
  CHECK(value(with_length_8<Clipped<TokenRatio, FixedLength>>()) == Approx(-0.275).margin(1e-9).epsilon(0));
  CHECK(value(Clipped<SequenceRatio, LengthWeighted>({})) == Approx(-2.2).margin(1e-9).epsilon(0));
  // ∂/∂x = −A·m/(2·n)
  const Result result = Clipped<TokenRatio, SequenceMean>({})(s, counts_of(s));
  check_close(gradient(result.value, s), {-0.1875, -0.1875, -0.1875, -0.1875, 0.2, 0.2, 0, 0}, 1e-12);
  CHECK(result.metrics.value("clip_ratio/region_mean") == 0.0);
}

TEST_CASE("metrics are TRL's token-weighted means and per-completion extremes") {
  const Scored s = two_rows();
  const auto check = [&](const auto& loss, double low, double high, double region, double low_min, double high_max) {
    const auto metrics = loss(s, counts_of(s)).metrics;
    CHECK(metrics.value("clip_ratio/low_mean") == Approx(low));
    CHECK(metrics.value("clip_ratio/high_mean") == Approx(high));
    CHECK(metrics.value("clip_ratio/region_mean") == Approx(region));
    CHECK(metrics.value("clip_ratio/low_min") == Approx(low_min));
    CHECK(metrics.value("clip_ratio/high_max") == Approx(high_max));
    CHECK(metrics.value("entropy") == Approx(1.0166666667));
    return metrics;
  };
  check(Clipped<TokenRatio, SequenceMean>({}), 0, 1.0 / 3, 1.0 / 3, 0, 0.5);
  check(Clipped<SequenceRatio, SequenceMean>({}), 0, 0.5, 0.5, 0, 1);
  const auto kl = [&](bool correct) {
    return Clipped<TokenRatio, SequenceMean, K3Kl>({.kl = {.beta = 0.04, .bias_correction = correct}})(s, counts_of(s))
        .metrics.value("kl");
  };
  CHECK(kl(false) == Approx(0.0149903098).margin(1e-9));
  CHECK(kl(true) == Approx(0.0188900266).margin(1e-9));
  Scored without = s;
  without.entropy = Tensor();
  CHECK(std::isnan(Clipped<TokenRatio, SequenceMean>({})(without, counts_of(s)).metrics.value("entropy")));
}

namespace {
template <class L>
void check_invariances(const typename L::Config& config = {}) {
  const Scored s = six_rows();
  const L loss(config);
  const Counts counts = counts_of(s, 3);
  const Result whole = loss(s, counts);
  const Tensor whole_gradient = gradient(whole.value, s);

  // Finite differences.
  CHECK(
      whole_gradient.allclose(numeric_gradient([&](const Scored& b) { return loss(b, counts).value; }, s), 1e-6, 1e-8));

  // Any split into micro-batches, any order of rows: the same loss, gradient and metrics.
  for (const std::vector<std::vector<std::int64_t>>& parts :
       {std::vector<std::vector<std::int64_t>>{{0, 1}, {2, 3}, {4, 5}},
        {{0}, {1, 2, 3, 4}, {5}},
        {{5, 3, 1}, {4}, {2, 0}}}) {
    rlalgo::loss::Metrics metrics;
    Tensor total = at::zeros({}, at::kDouble);
    for (const auto& rows : parts) {
      const Result part = loss(take(s, rows), counts);
      total = total + part.value;
      metrics.merge(part.metrics);
    }
    CHECK(total.item<double>() == Approx(whole.value.item<double>()).epsilon(1e-13));
    CHECK(gradient(total, s).allclose(whole_gradient, 1e-13, 1e-14));
    REQUIRE(metrics.values().size() == whole.metrics.values().size());
    for (const auto& [name, value] : whole.metrics.values()) {
      INFO(name);
      CHECK(metrics.value(name) == Approx(value).epsilon(1e-13));
    }
  }
  // Tokens without loss get exactly nothing, and what they hold does not matter.
  CHECK(whole_gradient.masked_select(s.mask.eq(0)).eq(0).all().item<bool>());
  Scored poisoned = s;
  const double infinity = std::numeric_limits<double>::infinity();
  poisoned.log_prob = s.log_prob.detach().masked_fill(s.mask.eq(0), -infinity).requires_grad_();
  poisoned.old_log_prob = s.old_log_prob.masked_fill(s.mask.eq(0), std::numeric_limits<double>::quiet_NaN());
  poisoned.reference_log_prob = s.reference_log_prob.masked_fill(s.mask.eq(0), infinity);
  poisoned.entropy = s.entropy.masked_fill(s.mask.eq(0), std::numeric_limits<double>::quiet_NaN());
  const Result result = loss(poisoned, counts);
  CHECK(result.value.item<double>() == whole.value.item<double>());
  CHECK(gradient(result.value, poisoned).equal(whole_gradient));
  CHECK(result.metrics.value("entropy") == whole.metrics.value("entropy"));

  // Advantage 0: no policy gradient.
  if constexpr (!L::needs.reference_log_prob) {
    Scored zero = s;
    zero.advantage = at::zeros_like(s.advantage);
    const Result none = loss(zero, counts);
    CHECK(none.value.item<double>() == 0.0);
    CHECK(gradient(none.value, s).eq(0).all().item<bool>());
  }
}
}  // namespace

TEST_CASE("losses are invariant under splits and order, blind to masked tokens, and their gradients are exact") {
  const ClippedRatio::Config bounds{.epsilon_low = 0.1, .epsilon_high = 0.3, .delta = 1.6};
  SECTION("grpo") { check_invariances<Clipped<TokenRatio, SequenceMean>>(); }
  SECTION("grpo with kl") {
    check_invariances<Clipped<TokenRatio, SequenceMean, K3Kl>>(
        {.surrogate = bounds, .kl = {.beta = 0.3, .bias_correction = true}});
  }
  SECTION("gspo") { check_invariances<Clipped<SequenceRatio, SequenceMean>>({.surrogate = bounds}); }
  SECTION("gspo with kl") {
    check_invariances<Clipped<SequenceRatio, GlobalTokenCount, K3Kl>>({.kl = {.beta = 0.3, .bias_correction = true}});
  }
  SECTION("dr_grpo") {
    check_invariances<Clipped<TokenRatio, FixedLength>>({.reduction = {.max_completion_length = 9}});
  }
  SECTION("dapo") { check_invariances<Clipped<TokenRatio, GlobalTokenCount>>({.surrogate = bounds}); }
  SECTION("luspo") { check_invariances<Clipped<SequenceRatio, LengthWeighted>>(); }
}

TEST_CASE("the token mean of micro-batches depends on the split, by definition") {
  const Scored s = six_rows();
  const Clipped<TokenRatio, TokenMean> loss({});
  const auto parts = [&](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
    const Counts counts = counts_of(s, 2);
    return (loss(take(s, a), counts).value + loss(take(s, b), counts).value).item<double>();
  };
  CHECK(parts({0, 4}, {1, 2, 3, 5}) != Approx(parts({0}, {1, 2, 3, 4, 5})).epsilon(1e-3));
  CHECK(loss(s, counts_of(s, 1)).value.item<double>() ==
        Approx((Clipped<TokenRatio, GlobalTokenCount>({})(s, counts_of(s)).value.item<double>())).epsilon(1e-13));
}

TEST_CASE("a batch without tokens has loss 0") {
  Scored s = take(six_rows(), {1});
  const Result result = Clipped<TokenRatio, GlobalTokenCount>({})(s, counts_of(s));
  CHECK(result.value.item<double>() == 0.0);
  CHECK(std::isnan(result.metrics.value("clip_ratio/low_min")));
  CHECK(std::isnan(result.metrics.value("clip_ratio/low_mean")));
}

TEST_CASE("needs follow from the parts") {
  STATIC_REQUIRE(Loss<Clipped<TokenRatio, SequenceMean>>);
  STATIC_REQUIRE(Clipped<TokenRatio, SequenceMean>::needs.old_log_prob);
  STATIC_REQUIRE_FALSE(Clipped<TokenRatio, SequenceMean>::needs.reference_log_prob);
  STATIC_REQUIRE(Clipped<TokenRatio, SequenceMean, K3Kl>::needs.reference_log_prob);
  STATIC_REQUIRE_FALSE(Clipped<TokenRatio, SequenceMean, K3Kl>::needs.sampling_log_prob);
}

TEST_CASE("a batch without advantages or reference log-probs is refused by number") {
  using Catch::Matchers::Contains;
  Scored s = two_rows();
  s.reference_log_prob = Tensor();
  CHECK_THROWS_WITH((Clipped<TokenRatio, SequenceMean, K3Kl>({})(s, counts_of(s))), Contains("[rlalgo.loss.2]"));
  s.advantage = Tensor();
  CHECK_THROWS_WITH((Clipped<TokenRatio, SequenceMean>({})(s, counts_of(s))), Contains("[rlalgo.loss.1]"));
}
