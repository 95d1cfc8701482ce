#include <loss/scored_batch.hpp>

#include <rlalgo/loss/k3_kl.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::K3Kl;
using rlalgo::loss::PolicyTerms;
using rlalgo::loss::Unit;

const std::vector<double> k3 = {.0048374180, .0048374180, .0214027582, .0187307531, .0187307531, .0214027582, 0, 0};
}  // namespace

TEST_CASE("k3 is exp(f − x) − (f − x) − 1 on loss tokens, 0 elsewhere") {
  STATIC_REQUIRE(rlalgo::loss::KlPenalty<K3Kl>);
  const Scored s = two_rows();
  const Tensor ratio = (s.log_prob - s.old_log_prob).detach().exp();
  const PolicyTerms terms{s, Unit::token, s.log_prob, s.log_prob, ratio, s.mask, s.mask};
  rlalgo::loss::Metrics metrics;
  const Tensor zero = at::zeros({8}, at::kDouble);
  check_close(K3Kl({.beta = 1.0})(zero, terms, metrics), k3, 1e-9);
  CHECK(metrics.value("kl") == Approx(0.0149903098).margin(1e-9));
  check_close(K3Kl({.beta = 0.5})(zero + 7, terms, metrics) - 7,
              std::vector<double>{.0024187090, .0024187090, .0107013791, .0093653765, .0093653765, .0107013791, 0, 0},
              1e-9);
  // Corrected: times the ratio.
  rlalgo::loss::Metrics corrected;
  const Tensor times_ratio = K3Kl({.beta = 1.0, .bias_correction = true})(zero, terms, corrected);
  check_close(times_ratio.div(ratio), k3, 1e-9);
  CHECK(corrected.value("kl") == Approx(0.0188900266).margin(1e-9));
}

TEST_CASE("a ratio per row corrects every token of the row") {
  const Scored s = two_rows();
  const PolicyTerms terms{s, Unit::row, s.log_prob, s.log_prob, column({2, 3}), column({1, 1}), s.mask};
  rlalgo::loss::Metrics metrics;
  const Tensor k = K3Kl({.beta = 1.0, .bias_correction = true})(at::zeros({8}, at::kDouble), terms, metrics);
  check_close(k.div(column({2, 2, 2, 2, 3, 3, 3, 3})), k3, 1e-9);
}
