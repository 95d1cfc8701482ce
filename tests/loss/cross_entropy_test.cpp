#include <loss/scored_batch.hpp>

#include <rlalgo/loss/cross_entropy.hpp>

namespace {
using namespace scored_batch;
using rlalgo::loss::CrossEntropy;
}  // namespace

TEST_CASE("cross-entropy is the negative log-likelihood per token of the step") {
  STATIC_REQUIRE(rlalgo::loss::Loss<CrossEntropy>);
  STATIC_REQUIRE_FALSE(CrossEntropy::needs.old_log_prob);
  const Scored s = two_rows();
  // (1 + .5 + 2 + .3 + .7 + 1.2) / 6
  const Result result = CrossEntropy()(s, counts_of(s));
  CHECK(result.value.item<double>() == Approx(5.7 / 6).epsilon(1e-14));
  check_close(gradient(result.value, s),
              std::vector<double>{-1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, -1.0 / 6, 0, 0}, 1e-14);
  CHECK(result.metrics.value("entropy") == Approx(6.1 / 6));
}

TEST_CASE("cross-entropy is the same for any split, without advantages too") {
  Scored s = six_rows();
  const Counts counts = counts_of(s, 2);
  const Result whole = CrossEntropy()(s, counts);
  const Result a = CrossEntropy()(take(s, {0, 1, 5}), counts), b = CrossEntropy()(take(s, {4, 3, 2}), counts);
  CHECK((a.value + b.value).item<double>() == Approx(whole.value.item<double>()).epsilon(1e-13));
  s.advantage = Tensor();
  CHECK(CrossEntropy()(s, counts).value.item<double>() == whole.value.item<double>());
}
