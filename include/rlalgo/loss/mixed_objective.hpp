// Several pair objectives as one: Σ_k w_k·objective_k. MPO is Mixed<Sigmoid, BcoPair, ChosenLikelihood>.
//
// Source of MPO: Wang et al., arXiv 2411.10442. Weights are not normalised.
//
//   Mixed<O…>      known types; weights in its Config
//   AnyObjective   any number of objectives chosen at run time (YAML: dpo_loss_type, dpo_loss_weights)
//
// Shapes: [P] → [P].
#pragma once

#include <algorithm>
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

// The terms know what their types said of scores and pairs; who composes them asks.
class AnyObjective {
 public:
  struct Term {
    template <PairObjective O>
    Term(O part, double w = 1.0)
        : objective(std::move(part)), weight(w), uses_scores(O::uses_scores), per_pair(O::per_pair) {}

    std::function<Tensor(const PairTerms&)> objective;
    double weight;
    bool uses_scores;
    bool per_pair;
  };
  struct Config {
    std::vector<Term> terms{};  // at least one
  };
  static constexpr bool uses_scores = true;  // it may; whether it does, all_use_scores() says
  static constexpr bool per_pair = true;     // likewise all_per_pair()
  static constexpr Hooks hooks{.all_use_scores = true, .all_per_pair = true};

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

  [[nodiscard]] bool all_use_scores() const {
    return std::all_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.uses_scores; });
  }
  [[nodiscard]] bool all_per_pair() const {
    return std::all_of(terms_.begin(), terms_.end(), [](const Term& t) { return t.per_pair; });
  }

 private:
  std::vector<Term> terms_;
};

}  // namespace rlalgo::loss
