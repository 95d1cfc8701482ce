#include <loss/pair_batch.hpp>

#include <rlalgo/loss/prospect.hpp>

using namespace pair_batch;
using namespace rlalgo::loss;

namespace {

const std::vector<double> labels = {1, 0, 1, 0};
const std::vector<Row> rows = {{-10, -11, 4}, {-12, -11.5, 3}, {-8, -8.5, 2}, {-20, -18, 6}};  // r = 1, −.5, .5, −2

template <class V = KahnemanTversky>
Result run(const Scored& s, typename Prospect<V>::Config config, double mismatched) {
  Counts counts = counts_of(s);
  counts.mismatched_log_ratio = mismatched;
  return Prospect<V>(config)(s, counts);
}

}  // namespace

TEST_CASE("kto: golden cases K1 to K4 and their metrics (60-digit arithmetic)") {
  const Scored s = batch(rows, labels);
  const Result k1 = run(s, {.beta = 0.1}, 0.9);  // z = 0.9/4
  check_relative(k1.value.item<double>(), 0.475061602910);
  CHECK(k1.metrics.value("kl") == Approx(0.225));
  CHECK(k1.metrics.value("rewards/chosen") == Approx(0.075));
  CHECK(k1.metrics.value("rewards/rejected") == Approx(-0.125));
  CHECK(k1.metrics.value("rewards/margins") == Approx(0.2));
  CHECK(k1.metrics.value("logps/chosen") == Approx(-9));
  CHECK(k1.metrics.value("logps/rejected") == Approx(-16));
  check_relative(run(s, {.beta = 0.1, .undesirable_weight = 1.33}, 0.9).value.item<double>(), 0.551496721558);
  const Result k3 = run(s, {.beta = 0.5}, -1.4);  // the mean is clamped at 0
  check_relative(k3.value.item<double>(), 0.380532272099);
  CHECK(k3.metrics.value("kl") == 0.0);
  rlalgo::loss::Metrics both = k1.metrics;
  both.merge(k3.metrics);
  CHECK(both.value("kl") == Approx(0.1125));  // a mean, also over the steps between two logs
  const Scored extreme = batch({{500, 0, 4}, {500, 0, 3}, {-500, 0, 2}, {-500, 0, 6}}, labels);
  check_relative(run(extreme, {.beta = 0.1}, 0).value.item<double>(), 0.5);
}

TEST_CASE("apo_zero_unpaired: golden cases A1 and A2") {
  check_relative(run<ApoZeroUnpaired>(batch(rows, labels), {.beta = 0.1}, 0.9).value.item<double>(), 0.475048005560);
  const Scored extreme = batch({{500, 0, 4}, {500, 0, 3}, {-500, 0, 2}, {-500, 0, 6}}, labels);
  check_relative(run<ApoZeroUnpaired>(extreme, {.beta = 0.1}, 0).value.item<double>(), 0.5);
  CHECK_FALSE(Prospect<ApoZeroUnpaired>::needs.mismatched);
  CHECK(Prospect<>::needs.mismatched);
}

TEST_CASE("kto: gradients, and the same for any split and order") {
  struct WithMismatch {
    Prospect<> loss{{.beta = 0.2, .desirable_weight = 0.8, .undesirable_weight = 1.33}};
    Result operator()(const Scored& s, Counts counts) const {
      counts.mismatched_log_ratio = 0.9;  // of the step, known before any part
      return loss(s, counts);
    }
  };
  check_gradient(WithMismatch(), batch(rows, labels));
  check_invariance(WithMismatch(), batch(rows, labels), 1);
}

TEST_CASE("kto: a class that is absent has no metrics") {
  const Scored s = batch({rows[0], rows[2]}, {1, 1});
  const Result r = run(s, {.beta = 0.1}, 0);
  CHECK(std::isnan(r.metrics.value("rewards/rejected")));
  CHECK(std::isnan(r.metrics.value("rewards/margins")));
  CHECK(r.metrics.value("rewards/chosen") == Approx(0.075));
}

TEST_CASE("kto: a weight of 0 is 0") {
  const Scored s = batch({rows[1]}, {0});
  CHECK(run(s, {.beta = 0.1, .undesirable_weight = 0.0}, 0).value.item<double>() == 0.0);
}
