#include <support/catch.hpp>

#include <ATen/ops/tensor.h>

#include <rlalgo/trainer/collate.hpp>

using namespace rlalgo;

namespace {
std::vector<double> values(const at::Tensor& t) {
  const at::Tensor d = t.to(at::kDouble).contiguous();
  return {d.const_data_ptr<double>(), d.const_data_ptr<double>() + d.numel()};
}
}  // namespace

TEST_CASE("rows become flat columns in order, masks and lengths agree") {
  data::Rollout a, b, empty;
  a.completion_ids = {5, 6};
  a.advantage = 1.5;
  a.old_log_probs = {-1.0F, -2.0F};
  b.completion_ids = {7, 8, 9};
  b.loss_mask = {1, 0, 1};
  b.advantage = -0.5;
  b.old_log_probs = {-3.0F, -4.0F, -5.0F};
  std::vector<data::Rollout*> rows = {&a, &empty, &b};
  const model::Scores scores{at::tensor({-0.1, -0.2, -0.3, -0.4, -0.5}, at::kDouble), {}};
  const loss::Scored scored = trainer::collate(rows, scores, {.old_log_prob = true, .reference_log_prob = true});
  CHECK(values(scored.row) == std::vector<double>{0, 0, 2, 2, 2});
  CHECK(values(scored.mask) == std::vector<double>{1, 1, 1, 0, 1});
  CHECK(values(scored.row_length) == std::vector<double>{2, 0, 2});
  CHECK(values(scored.advantage) == std::vector<double>{1.5, 0, -0.5});
  CHECK(values(scored.old_log_prob) == std::vector<double>{-1, -2, -3, -4, -5});
  CHECK_FALSE(scored.reference_log_prob.defined());  // the rows have none
  CHECK_FALSE(scored.sampling_log_prob.defined());   // not needed

  const std::vector<std::vector<data::Rollout*>> parts = {{&a, &empty}, {&b}};
  const loss::Counts counts = trainer::count(parts);
  CHECK(counts.rows == 3);
  CHECK(counts.tokens == 4);
  CHECK(counts.micro_batches == 2);
}

TEST_CASE("old log-probs are remembered once, others are stored whenever they are scored") {
  data::Rollout a, b;
  a.completion_ids = {1};
  b.completion_ids = {2, 3};
  b.old_log_probs = {-7.0F, -8.0F};
  std::vector<data::Rollout*> rows = {&a, &b};
  const at::Tensor log_prob = at::tensor({-0.5, -1.5, -2.5}, at::kDouble);
  trainer::remember_old(rows, log_prob);
  CHECK(a.old_log_probs == std::vector<float>{-0.5F});
  CHECK(b.old_log_probs == std::vector<float>{-7.0F, -8.0F});
  trainer::store(
      rows, log_prob, [](data::Rollout & r) -> auto& { return r.reference_log_probs; });
  CHECK(b.reference_log_probs == std::vector<float>{-1.5F, -2.5F});
}
