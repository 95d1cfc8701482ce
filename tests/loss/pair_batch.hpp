// Batches of preference pairs for the tests of losses: from sums and lengths, and what can be done to them.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include <support/catch.hpp>

#include <ATen/ATen.h>
#include <loss/scored_batch.hpp>

#include <rlalgo/loss/pair_terms.hpp>

namespace pair_batch {

using at::Tensor;
using rlalgo::loss::Counts;
using rlalgo::loss::Result;
using rlalgo::loss::Scored;

// A completion: sums under policy and reference, and its number of tokens, over which the sums are spread unevenly.
struct Row {
  double policy, reference;
  std::int64_t tokens;
};

// Rows in turn chosen, rejected; or rows with labels.
inline Scored batch(const std::vector<Row>& rows, std::vector<double> desirable = {}) {
  std::vector<double> log_prob, reference, lengths, likelihood;
  std::vector<std::int64_t> row;
  if (desirable.empty())
    for (std::size_t i = 0; i < rows.size(); ++i) desirable.push_back(i % 2 == 0 ? 1 : 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    const double n = static_cast<double>(r.tokens), weights = n * (n + 1) / 2;
    for (std::int64_t t = 1; t <= r.tokens; ++t) {
      log_prob.push_back(r.policy * static_cast<double>(t) / weights);
      reference.push_back(r.reference / n);
      row.push_back(static_cast<std::int64_t>(i));
      likelihood.push_back(desirable[i]);
    }
    lengths.push_back(n);
  }
  Scored s;
  s.log_prob = at::tensor(log_prob, at::kDouble).requires_grad_();
  s.reference_log_prob = at::tensor(reference, at::kDouble);
  s.mask = at::ones({static_cast<std::int64_t>(row.size())}, at::kDouble);
  s.likelihood_mask = at::tensor(likelihood, at::kDouble);
  s.row = at::tensor(row, at::kLong);
  s.row_length = at::tensor(lengths, at::kDouble);
  s.desirable = at::tensor(desirable, at::kDouble);
  return s;
}

inline Counts counts_of(const Scored& s) {
  return {.rows = static_cast<double>(s.row_length.numel()),
          .tokens = s.mask.sum().item<double>(),
          .micro_batches = 1,
          .likelihood_tokens = s.likelihood_mask.sum().item<double>(),
          .desirable = s.desirable.sum().item<double>()};
}

// The rows `chosen` of a batch, in that order; gradients flow back to the whole.
inline Scored take(const Scored& s, const std::vector<std::int64_t>& chosen) {
  std::vector<std::int64_t> tokens, row;
  for (std::size_t r = 0; r < chosen.size(); ++r)
    for (std::int64_t t = 0; t < s.row.numel(); ++t)
      if (s.row[t].item<std::int64_t>() == chosen[r]) {
        tokens.push_back(t);
        row.push_back(static_cast<std::int64_t>(r));
      }
  const Tensor index = at::tensor(tokens, at::kLong), rows = at::tensor(chosen, at::kLong);
  const auto pick = [&](const Tensor& x) { return x.defined() ? x.index_select(0, index) : x; };
  const auto pick_row = [&](const Tensor& x) { return x.defined() ? x.index_select(0, rows) : x; };
  Scored out;
  out.log_prob = pick(s.log_prob);
  out.entropy = pick(s.entropy);
  out.reference_log_prob = pick(s.reference_log_prob);
  out.mask = pick(s.mask);
  out.likelihood_mask = pick(s.likelihood_mask);
  out.collision = pick(s.collision);
  out.mean_logit = pick(s.mean_logit);
  out.greedy = pick(s.greedy);
  out.row = at::tensor(row, at::kLong);
  out.row_length = pick_row(s.row_length);
  out.desirable = pick_row(s.desirable);
  out.reference_row_log_prob = pick_row(s.reference_row_log_prob);
  return out;
}

// Pairs of the golden tables.
inline const Row p1[] = {{-12, -13, 4}, {-15, -14, 6}};
inline const Row p2[] = {{-20.5, -19, 5}, {-18.25, -19.5, 7}};
inline const Row wide[] = {{-40, -340, 10}, {-600, -400, 20}};    // X+
inline const Row narrow[] = {{-600, -400, 20}, {-40, -340, 10}};  // X−
inline const Row third[] = {{-8, -9.5, 4}, {-9, -12, 3}};

inline std::vector<Row> pairs(std::initializer_list<const Row*> list) {
  std::vector<Row> out;
  for (const Row* p : list) out.insert(out.end(), {p[0], p[1]});
  return out;
}

// The loss of `loss` alone on `rows`, and its slopes in the row sums.
template <class L>
double value(const L& loss, const std::vector<Row>& rows) {
  const Scored s = batch(rows);
  return loss(s, counts_of(s)).value.template item<double>();
}
template <class L>
std::vector<double> slopes(const L& loss, const std::vector<Row>& rows) {
  const Scored s = batch(rows);
  const Tensor gradient = scored_batch::gradient(loss(s, counts_of(s)).value, s);
  std::vector<double> out;  // every token of a row has the slope of the row's sum
  std::int64_t at = 0;
  for (const Row& r : rows) {
    out.push_back(gradient[at].item<double>());
    at += r.tokens;
  }
  return out;
}

inline void check_relative(double actual, double expected, double tolerance = 1e-9) {
  CHECK(actual == Approx(expected).epsilon(tolerance).margin(1e-30));
}

// Value and gradient of a step are those of the whole batch, whatever the order of pairs and the split.
template <class L>
void check_invariance(const L& loss, const Scored& s, std::int64_t unit = 2) {
  const Counts counts = counts_of(s);
  const Result whole = loss(s, counts);
  const Tensor expected = scored_batch::gradient(whole.value, s);
  const std::int64_t examples = s.row_length.numel() / unit;
  for (std::int64_t part = 1; part <= examples; ++part) {
    s.log_prob.mutable_grad() = Tensor();
    double total = 0;
    rlalgo::loss::Metrics metrics;
    for (std::int64_t begin = examples; begin > 0; begin -= std::min(part, begin)) {  // last examples first
      std::vector<std::int64_t> rows;
      for (std::int64_t e = std::max<std::int64_t>(begin - part, 0); e < begin; ++e)
        for (std::int64_t k = 0; k < unit; ++k) rows.push_back(e * unit + k);
      const Result piece = loss(take(s, rows), counts);
      piece.value.backward();
      total += piece.value.template item<double>();
      metrics.merge(piece.metrics);
    }
    CHECK(total == Approx(whole.value.template item<double>()).epsilon(1e-12));
    CHECK(at::allclose(s.log_prob.grad(), expected, 1e-10, 1e-12));
    for (const auto& [name, number] : whole.metrics.values()) {
      INFO(name);
      CHECK(metrics.value(name) == Approx(number).epsilon(1e-10).margin(1e-12));
    }
  }
  s.log_prob.mutable_grad() = Tensor();
}

// Against central differences, and nothing of it leaks into masked tokens.
template <class L>
void check_gradient(const L& loss, const Scored& s, double tolerance = 2e-6) {
  const Counts counts = counts_of(s);
  const Tensor exact = scored_batch::gradient(loss(s, counts).value, s);
  const Tensor numeric =
      scored_batch::numeric_gradient([&](const Scored& x) { return loss(x, counts).value; }, s, 1e-5);
  CHECK(at::allclose(exact, numeric, tolerance, tolerance));
}

}  // namespace pair_batch
