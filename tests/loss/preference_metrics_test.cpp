#include <loss/pair_batch.hpp>

#include <rlalgo/loss/preference_metrics.hpp>

using namespace pair_batch;
using namespace rlalgo;

TEST_CASE("token metrics are absent where the scorer did not compute them") {
  loss::Metrics metrics;
  loss::add_token_metrics(batch(pairs({p1})), metrics);
  CHECK(metrics.read().empty());
}

TEST_CASE("token metrics skip masked tokens, whatever these hold") {
  Scored s = batch({{-2, -2, 2}, {-3, -3, 1}});
  s.mean_logit = at::tensor({std::nan(""), 4.0, 2.0}, at::kDouble);
  s.greedy = at::tensor({1., 0., 1.}, at::kDouble);
  s.mask = at::tensor({0., 1., 1.}, at::kDouble);
  loss::Metrics metrics;
  loss::add_token_metrics(s, metrics);
  CHECK(metrics.value("logits/chosen") == 4.0);
  CHECK(metrics.value("logits/rejected") == 2.0);
  CHECK(metrics.value("mean_token_accuracy") == 0.0);
}

TEST_CASE("pair metrics merge to those of the whole") {
  const auto column = [](std::vector<double> v) { return at::tensor(v, at::kDouble); };
  loss::Metrics whole, parts;
  loss::add_pair_metrics(column({1, 2, 3}), column({2, 1, 3}), column({-1, -2, -3}), column({-4, -5, -6}), whole);
  loss::add_pair_metrics(column({1}), column({2}), column({-1}), column({-4}), parts);
  loss::add_pair_metrics(column({2, 3}), column({1, 3}), column({-2, -3}), column({-5, -6}), parts);
  for (const auto& [name, number] : whole.values()) CHECK(parts.value(name) == Approx(number));
  CHECK(whole.value("rewards/accuracies") == Approx(1.0 / 3));
  CHECK(whole.value("rewards/margins") == Approx(0.0).margin(1e-12));
  CHECK(whole.value("logps/rejected") == Approx(-5));
}
