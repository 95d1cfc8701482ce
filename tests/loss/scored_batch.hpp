// Scored batches for the tests of losses: a small one with known numbers, a random one, and what can be done to them.
#pragma once

#include <cstdint>
#include <vector>

#include <support/catch.hpp>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/loss/concept.hpp>

namespace scored_batch {

using at::Tensor;
using rlalgo::loss::Counts;
using rlalgo::loss::Result;
using rlalgo::loss::Scored;

inline Tensor column(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

// Two completions of 4 and 2 tokens; the second holds two more tokens that carry no loss. `log_prob` is a leaf.
inline Scored two_rows() {
  return {.log_prob = column({-1.0, -0.5, -2.0, -0.3, -0.7, -1.2, -3.0, -4.0}).requires_grad_(),
          .entropy = column({1.1, 0.4, 2.0, 0.2, 0.9, 1.5, 3.0, 3.0}),
          .old_log_prob = column({-1.3, -0.4, -2.1, -0.9, -1.0, -1.1, -3.5, -3.0}),
          .reference_log_prob = column({-1.1, -0.6, -1.8, -0.5, -0.9, -1.0, -2.0, -2.0}),
          .sampling_log_prob = column({-1.2, -0.6, -2.0, -2.1, -1.4, -0.9, -1.0, -1.0}),
          .mask = column({1, 1, 1, 1, 1, 1, 0, 0}),
          .row = at::tensor({0, 0, 0, 0, 1, 1, 1, 1}, at::kLong),
          .row_length = column({4, 2}),
          .advantage = column({1.5, -0.8})};
}

inline Counts counts_of(const Scored& s, double micro_batches = 1) {
  return {.rows = static_cast<double>(s.row_length.size(0)),
          .tokens = s.mask.sum().item<double>(),
          .micro_batches = micro_batches};
}

// Six completions of different lengths, among them an empty one and one whose tokens are all masked.
inline Scored six_rows() {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(11);
  const std::vector<std::int64_t> lengths = {5, 0, 3, 1, 7, 4};
  const std::int64_t masked_row = 2;
  std::vector<std::int64_t> row;
  std::vector<double> mask;
  for (std::size_t r = 0; r < lengths.size(); ++r)
    for (std::int64_t t = 0; t < lengths[r]; ++t) {
      row.push_back(static_cast<std::int64_t>(r));
      mask.push_back(static_cast<std::int64_t>(r) != masked_row && t != 2 ? 1.0 : 0.0);
    }
  const auto n = static_cast<std::int64_t>(row.size()), rows = static_cast<std::int64_t>(lengths.size());
  const auto draw = [&](std::int64_t size) { return at::randn({size}, generator, at::kDouble); };
  Scored s{.log_prob = draw(n).sub(2).requires_grad_(),
           .entropy = draw(n).abs(),
           .old_log_prob = {},
           .reference_log_prob = {},
           .sampling_log_prob = {},
           .mask = column(mask),
           .row = at::tensor(row, at::kLong),
           .row_length = {},
           .advantage = draw(rows)};
  s.old_log_prob = s.log_prob.detach() + 0.3 * draw(n);
  s.reference_log_prob = s.log_prob.detach() + 0.5 * draw(n);
  s.row_length = at::zeros({rows}, at::kDouble).index_add(0, s.row, s.mask);
  return s;
}

// The rows `chosen` of a batch, in that order, as a batch of their own; gradients flow back to the whole.
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
  return {.log_prob = pick(s.log_prob),
          .entropy = pick(s.entropy),
          .old_log_prob = pick(s.old_log_prob),
          .reference_log_prob = pick(s.reference_log_prob),
          .sampling_log_prob = pick(s.sampling_log_prob),
          .mask = pick(s.mask),
          .row = at::tensor(row, at::kLong),
          .row_length = s.row_length.index_select(0, rows),
          .advantage = s.advantage.index_select(0, rows)};
}

// ∂value/∂(s.log_prob); leaves no gradient behind.
inline Tensor gradient(const Tensor& value, const Scored& s) {
  s.log_prob.mutable_grad() = Tensor();
  value.backward();
  const Tensor out = s.log_prob.grad().clone();
  s.log_prob.mutable_grad() = Tensor();
  return out;
}

inline void check_close(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  REQUIRE(actual.numel() == static_cast<std::int64_t>(expected.size()));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("entry " << i);
    CHECK(actual[static_cast<std::int64_t>(i)].item<double>() == Approx(expected[i]).margin(tolerance).epsilon(0));
  }
}

// Central differences of `value(s)` in every log-prob, with the other columns held.
template <class F>
Tensor numeric_gradient(const F& value, const Scored& s, double step = 1e-6) {
  const c10::NoGradGuard no_grad;
  Tensor x = s.log_prob.detach();  // shares memory
  Tensor out = at::zeros_like(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double at = x[i].item<double>();
    x[i] = at + step;
    const double up = value(s).template item<double>();
    x[i] = at - step;
    out[i] = (up - value(s).template item<double>()) / (2 * step);
    x[i] = at;
  }
  return out;
}

}  // namespace scored_batch
