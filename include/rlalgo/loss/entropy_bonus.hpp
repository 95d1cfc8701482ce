// A reward for staying undecided: any policy-gradient loss minus the mean entropy of its tokens, times a coefficient.
//
//   loss = L − coef·h,   h = Σ H_t·E_t / Σ E_t,   H_t = −Σ_v p_v·log p_v in nats at the sampling temperature
//
// E: the loss tokens, or with `share` < 1 the `share` of them with the highest entropy (loss/top_entropy.hpp), as in
// the surrogate. The sum over the micro-batches of a step is the mean over the step where E is all loss tokens. With a
// share, the denominator is chosen by Scope: `step` divides by all loss tokens of the step (the bonus of
// GlobalTokenCount reductions), `micro_batch` by the chosen tokens of the micro-batch and by the number of
// micro-batches (the others).
//
// Source: TRL's entropy_coef and top_entropy_quantile (GRPOTrainer). The adaptive coefficient is a controller outside
// of the loss (EntropyCoefficient::adaptive).
// Metrics: policy_loss, the loss without the bonus; entropy_coef is the coefficient's owner's to report;
// entropy_bonus/entropy, the mean of H over E.
// Departure: with several micro-batches of different lengths TRL averages their means; here h is the mean over the
// step.
#pragma once

#include <limits>
#include <memory>
#include <utility>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/loss/top_entropy.hpp>
#include <rlalgo/tensor/masked.hpp>

namespace rlalgo::loss {

// The coefficient of an entropy bonus: fixed, or steered towards a target entropy.
//
// Adaptive (TRL's use_adaptive_entropy): after each optimizer step with mean entropy h the coefficient grows by `step`
// while h ≤ target and shrinks by `step` otherwise, within [minimum, maximum]; the bonus of the next step is paid only
// if h ≤ target, and not at all in the first step.
class EntropyCoefficient {
 public:
  struct Adaptive {
    double minimum = 0.0;
    double maximum = 1.0;
    double step = 0.005;
    double target = 0.2;  // nats
  };

  explicit EntropyCoefficient(double fixed) : value_(fixed) {}
  EntropyCoefficient(double initial, Adaptive adaptive) : value_(initial), adaptive_(adaptive), is_adaptive_(true) {}

  [[nodiscard]] double value() const { return value_; }
  [[nodiscard]] double last_entropy() const { return last_entropy_; }
  [[nodiscard]] bool is_adaptive() const { return is_adaptive_; }
  // What the step being trained multiplies the entropy with.
  [[nodiscard]] double applied() const { return !is_adaptive_ || last_entropy_ <= adaptive_.target ? value_ : 0.0; }

  // After an optimizer step whose tokens had the mean entropy `entropy`, in nats.
  void observe(double entropy) {
    if (!is_adaptive_) return;
    value_ = entropy <= adaptive_.target ? std::min(value_ + adaptive_.step, adaptive_.maximum)
                                         : std::max(value_ - adaptive_.step, adaptive_.minimum);
    last_entropy_ = entropy;
  }

  void restore(double value, double last_entropy) {
    value_ = value;
    last_entropy_ = last_entropy;
  }

 private:
  double value_;
  Adaptive adaptive_{};
  bool is_adaptive_ = false;
  double last_entropy_ = std::numeric_limits<double>::infinity();
};

template <Loss L>
class EntropyBonus {
 public:
  enum class Scope { step, micro_batch };
  struct Config {
    typename L::Config objective{};
    std::shared_ptr<const EntropyCoefficient> coefficient = std::make_shared<EntropyCoefficient>(0.01);
    double share = 1.0;  // of the tokens, those of highest entropy
    Scope scope = Scope::step;
  };

  static constexpr Needs needs = L::needs | Needs{.entropy = true};
  static constexpr RowKind rows = L::rows;
  static constexpr Hooks hooks{.corrects_sampling = true};

  explicit EntropyBonus(Config config) : objective_(config.objective), config_(std::move(config)) {}
  [[nodiscard]] bool corrects_sampling() const { return loss::corrects_sampling(objective_); }

  Result operator()(const Scored& scored, const Counts& counts) const {
    Result result = objective_(scored, counts);
    result.metrics.mean("policy_loss", result.value.detach().to(at::kDouble).mul(counts.micro_batches), 1.0);
    const Tensor chosen = config_.share < 1.0 ? top_entropy(scored, config_.share) : scored.mask;  // [N]
    const Tensor sum = tensor::masked(scored.entropy, chosen).sum();
    const Tensor tokens = chosen.sum();
    const double coefficient = config_.coefficient->applied();
    if (config_.share >= 1.0 || config_.scope == Scope::step) {
      result.value = result.value.sub(sum, coefficient / std::max(counts.tokens, 1.0));
    } else {
      const Tensor denominator = tokens.to(at::kDouble).clamp_min(1.0).mul(counts.micro_batches);
      result.value =
          result.value.addcmul(sum, denominator.new_full({}, coefficient).div(denominator).to(sum.scalar_type()), -1.0);
    }
    result.metrics.mean("entropy_bonus/entropy", sum, tokens);
    return result;
  }

 private:
  L objective_;
  Config config_;
};

}  // namespace rlalgo::loss
