// Several pair objectives as one: Σ_k w_k·objective_k. MPO is Mixed<Sigmoid, BcoPair, ChosenLikelihood>.
//
// Source of MPO: Wang et al., arXiv 2411.10442. Weights are not normalised.
//
//   Mixed<O…>      known types; weights in its Config
//   AnyObjective   any number of objectives chosen at run time (YAML: dpo_loss_type, dpo_loss_weights)
//
// Shapes: [P] → [P].
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include <rlalgo/loss/pair_terms.hpp>

namespace rlalgo::loss {

template <PairObjective... Objectives>
class Mixed {
  static_assert(sizeof...(Objectives) > 0, "loss::Mixed<Objectives…> needs at least one objective");

 public:
  struct Config {
    std::tuple<typename Objectives::Config...> objectives{};
    std::array<double, sizeof...(Objectives)> weights = ones();
  };
  static constexpr bool uses_scores = (Objectives::uses_scores && ...);
  static constexpr bool per_pair = (Objectives::per_pair && ...);

  Mixed() : Mixed(Config{}) {}
  explicit Mixed(Config config)
      : objectives_(std::apply([](const auto&... c) { return std::tuple<Objectives...>(Objectives(c)...); },
                               config.objectives)),
        weights_(config.weights) {}

  Tensor operator()(const PairTerms& terms) const {
    return std::apply(
        [&](const auto&... objective) {
          std::size_t k = 0;
          Tensor sum;
          const auto add = [&](const Tensor& loss) {
            const Tensor weighted = loss.mul(weights_[k++]);
            sum = sum.defined() ? sum.add(weighted) : weighted;
          };
          (add(objective(terms)), ...);
          return sum;
        },
        objectives_);
  }

 private:
  static constexpr std::array<double, sizeof...(Objectives)> ones() {
    std::array<double, sizeof...(Objectives)> out{};
    out.fill(1.0);
    return out;
  }
  std::tuple<Objectives...> objectives_;
  std::array<double, sizeof...(Objectives)> weights_;
};

// The caller sees to it that only objectives that read scores meet a divergence, and only per-pair ones a weighting.
class AnyObjective {
 public:
  struct Term {
    std::function<Tensor(const PairTerms&)> objective;
    double weight = 1.0;
  };
  struct Config {
    std::vector<Term> terms;  // at least one
  };
  static constexpr bool uses_scores = true;
  static constexpr bool per_pair = true;

  AnyObjective() = default;
  explicit AnyObjective(Config config) : terms_(std::move(config.terms)) {}

  Tensor operator()(const PairTerms& terms) const {
    Tensor sum;
    for (const Term& term : terms_) {
      const Tensor weighted = term.objective(terms).mul(term.weight);
      sum = sum.defined() ? sum.add(weighted) : weighted;
    }
    return sum;
  }

 private:
  std::vector<Term> terms_;
};

}  // namespace rlalgo::loss
