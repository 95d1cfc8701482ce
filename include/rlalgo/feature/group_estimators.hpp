// How the two terms of the rewards of one group become advantages.
//
//   r_j = al_j − dv_j,  al = c_al·alignment, dv = c_dv·diversity (matching.hpp; both doubled)
//
//   LeaveOutPairs  A_j = r_j − b_j,  b_j = (Σ al − al_j)/(n − 1) − (Σ dv − 2·dv_j)/(n − 2), the second term 0 for n ≤ 2
//   LeaveOneOut    A_j = r_j − (Σ r − r_j)/(n − 1)
//   GroupNorm      A_j = (r_j − mean r)/(std r + 1e-8), std with n − 1
//   Reward         A_j = r_j
//
// Source: "Energy-based fine-tuning", arXiv 2603.12248, appendix E, eq. 94 for the first. The similarity of samples i
// and j is part of both rewards: a baseline of j that contains r_i contains it as well, is not independent of sample j,
// and takes a share of (n − 2)/(n − 1) of its own diversity away, all of it at n = 2. LeaveOutPairs removes every term
// that touches j. Its advantages need not sum to 0. LeaveOneOut is axolotl's `rloo`.
// One sample: A = r, except that LeaveOneOut and GroupNorm have nothing to compare with and give 0.
// Shapes: al, dv [n] → A [n]. Host code, double precision, no state, no model.
#pragma once

#include <cmath>
#include <concepts>
#include <cstddef>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace rlalgo::feature {

// What makes advantages of the terms of one group.
template <class E>
concept GroupEstimator = requires(const E& estimator, std::span<const double> term) {
  { estimator(term, term) } -> std::same_as<std::vector<double>>;
};

namespace detail {

[[nodiscard]] inline double total(std::span<const double> values) {
  double out = 0.0;
  for (const double value : values) out += value;
  return out;
}

[[nodiscard]] inline std::vector<double> difference(std::span<const double> a, std::span<const double> b) {
  std::vector<double> out(a.size());
  for (std::size_t j = 0; j < a.size(); ++j) out[j] = a[j] - b[j];
  return out;
}

}  // namespace detail

struct Reward {
  std::vector<double> operator()(std::span<const double> al, std::span<const double> dv) const {
    return detail::difference(al, dv);
  }
};

struct LeaveOutPairs {
  std::vector<double> operator()(std::span<const double> al, std::span<const double> dv) const {
    std::vector<double> out = detail::difference(al, dv);
    const std::size_t n = out.size();
    if (n < 2) return out;
    const double aligned = detail::total(al), alike = detail::total(dv);
    for (std::size_t j = 0; j < n; ++j) {
      out[j] -= (aligned - al[j]) / static_cast<double>(n - 1);
      if (n > 2) out[j] += (alike - 2.0 * dv[j]) / static_cast<double>(n - 2);
    }
    return out;
  }
};

struct LeaveOneOut {
  std::vector<double> operator()(std::span<const double> al, std::span<const double> dv) const {
    std::vector<double> out = detail::difference(al, dv);
    const double sum = detail::total(out);
    for (double& r : out) r = out.size() < 2 ? 0.0 : r - (sum - r) / static_cast<double>(out.size() - 1);
    return out;
  }
};

struct GroupNorm {
  std::vector<double> operator()(std::span<const double> al, std::span<const double> dv) const {
    std::vector<double> out = detail::difference(al, dv);
    const auto n = static_cast<double>(out.size());
    const double mean = detail::total(out) / n;
    double squares = 0.0;
    for (double& r : out) {
      r -= mean;
      squares += r * r;
    }
    const double deviation = out.size() < 2 ? 0.0 : std::sqrt(squares / (n - 1.0));
    for (double& r : out) r /= deviation + 1e-8;
    return out;
  }
};

// One of any type, for programs that choose theirs at run time.
class AnyGroupEstimator {
 public:
  AnyGroupEstimator() : call_(LeaveOutPairs()) {}
  template <GroupEstimator E>
  requires(!std::same_as<E, AnyGroupEstimator>) explicit AnyGroupEstimator(E estimator) : call_(std::move(estimator)) {}
  std::vector<double> operator()(std::span<const double> al, std::span<const double> dv) const { return call_(al, dv); }

 private:
  std::function<std::vector<double>(std::span<const double>, std::span<const double>)> call_;
};

static_assert(GroupEstimator<LeaveOutPairs> && GroupEstimator<LeaveOneOut> && GroupEstimator<GroupNorm> &&
              GroupEstimator<Reward> && GroupEstimator<AnyGroupEstimator>);

}  // namespace rlalgo::feature
