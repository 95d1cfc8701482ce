// f-divergences: how a log-ratio r = log π/ρ becomes the score s that a preference objective compares.
//
//   ReverseKl        s = r
//   ForwardKl        s = 1 − e^{−r}
//   JensenShannon    s = log 2 + log σ(r)
//   AlphaDivergence  s = (e^{(α−1)r} − 1)/(α−1);  |α − 1| < 1e-6: r
//
// Source: Wang et al., "Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence
// Constraints", arXiv 2309.16240; s = f'(e^r) with its constant, as TRL 1.16 (1.8 drops the constants, which cancel in
// every difference s_w − s_l).
// Shapes: [P] → [P], f64. The exponent of AlphaDivergence is capped at 80, so that no score is infinite.
#pragma once

#include <cmath>
#include <concepts>
#include <functional>
#include <numbers>
#include <utility>

#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

template <class T>
concept Divergence = requires(const T& divergence, const Tensor& log_ratio) {
  typename T::Config;
  requires std::constructible_from<T, typename T::Config>;
  { divergence(log_ratio) } -> std::same_as<Tensor>;
};

struct ReverseKl {
  struct Config {};
  ReverseKl() = default;
  explicit ReverseKl(Config) {}
  Tensor operator()(const Tensor& r) const { return r; }
};

struct ForwardKl {
  struct Config {};
  ForwardKl() = default;
  explicit ForwardKl(Config) {}
  Tensor operator()(const Tensor& r) const { return r.neg().exp().neg().add(1.0); }
};

struct JensenShannon {
  struct Config {};
  JensenShannon() = default;
  explicit JensenShannon(Config) {}
  Tensor operator()(const Tensor& r) const { return detail::log_logistic(r).add(std::numbers::ln2); }
};

class AlphaDivergence {
 public:
  struct Config {
    double alpha = 0.5;
  };
  AlphaDivergence() : AlphaDivergence(Config{}) {}
  explicit AlphaDivergence(Config config) : alpha_(config.alpha) {}
  Tensor operator()(const Tensor& r) const {
    const double power = alpha_ - 1.0;
    if (std::abs(power) < 1e-6) return r;
    return r.mul(power).clamp_max(80.0).exp().sub(1.0).div(power);
  }

 private:
  double alpha_;
};

// A divergence chosen at run time.
class AnyDivergence {
 public:
  struct Config {
    std::function<Tensor(const Tensor&)> score = {};  // empty: reverse KL, the log-ratio itself
  };
  AnyDivergence() : AnyDivergence(Config{}) {}
  explicit AnyDivergence(Config config) : score_(std::move(config.score)) {}
  template <Divergence D>
  requires(!std::same_as<D, AnyDivergence>) explicit AnyDivergence(D divergence) {
    if constexpr (!std::same_as<D, ReverseKl>) score_ = std::move(divergence);
  }
  Tensor operator()(const Tensor& r) const { return score_ ? score_(r) : r; }
  static constexpr Hooks hooks{.is_reverse_kl = true};
  [[nodiscard]] bool is_reverse_kl() const noexcept { return !score_; }
  [[nodiscard]] Config config() const { return {score_}; }

 private:
  std::function<Tensor(const Tensor&)> score_;
};

}  // namespace rlalgo::loss
