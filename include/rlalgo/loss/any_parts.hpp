// Parts of a policy-gradient loss chosen at run time: one PolicyGradient type where a configuration names the parts.
//
// The configuration boundary erases which part it is, not what it is: each stays behind the interface of its kind. What
// only the type could forbid (a surrogate that ignores the ratio beside a ratio per row) is checked by who chooses. One
// indirect call per part and micro-batch.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include <rlalgo/loss/policy_terms.hpp>
#include <rlalgo/loss/token_share.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::loss {

class AnySurrogate {
 public:
  struct Config {
    std::function<Tensor(const PolicyTerms&, Metrics&)> call{};
    bool takes_sampling_ratio = false;
  };

  // The configuration that stands for `surrogate`.
  template <Surrogate S>
  [[nodiscard]] static Config of(S surrogate) {
    const bool ours = loss::takes_sampling_ratio(surrogate);
    return {.call = [part = std::move(surrogate)](const PolicyTerms& terms, Metrics& metrics) -> Tensor {
              return part(terms, metrics);
            },
            .takes_sampling_ratio = ours};
  }

  static constexpr Hooks hooks{.takes_sampling_ratio = true};

  explicit AnySurrogate(Config config) : takes_(config.takes_sampling_ratio), call_(std::move(config.call)) {}
  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const { return call_(terms, metrics); }
  [[nodiscard]] bool takes_sampling_ratio() const { return takes_; }

 private:
  bool takes_;
  std::function<Tensor(const PolicyTerms&, Metrics&)> call_;
};

class AnyReduction {
 public:
  struct Config {
    std::function<Tensor(const Tensor&, const Scored&, const Counts&)> call{};
    TokenShare token_share = TokenShare::mixed;
  };

  template <Reduction R>
  [[nodiscard]] static Config of(R reduction) {
    const TokenShare share = loss::token_share(reduction);
    return {.call = [part = std::move(reduction)](const Tensor& per_token, const Scored& scored, const Counts& counts)
                -> Tensor { return part(per_token, scored, counts); },
            .token_share = share};
  }

  static constexpr Hooks hooks{.token_share = true};

  explicit AnyReduction(Config config) : share_(config.token_share), call_(std::move(config.call)) {}
  [[nodiscard]] TokenShare token_share() const { return share_; }
  Tensor operator()(const Tensor& per_token, const Scored& scored, const Counts& counts) const {
    return call_(per_token, scored, counts);
  }

 private:
  TokenShare share_;
  std::function<Tensor(const Tensor&, const Scored&, const Counts&)> call_;
};

// The product of any number of weights, as one value per token. The correction between generator and trainer is not one
// of them: a surrogate may take it into a weight of its own.
class AnyWeights {
 public:
  using Call = std::function<Tensor(const PolicyTerms&, Metrics&)>;
  struct Config {
    std::vector<Call> calls{};
  };
  static constexpr Needs needs{.old_log_prob = true, .sampling_log_prob = true};  // of any weight there is

  template <TokenWeight W>
  requires(!hooks_of<W>().is_sampling_ratio) [[nodiscard]] static Call of(W weight) {
    return [part = std::move(weight)](const PolicyTerms& terms, Metrics& metrics) -> Tensor {
      return part(terms, metrics);
    };
  }

  explicit AnyWeights(Config config) : calls_(std::move(config.calls)) {}
  Tensor operator()(const PolicyTerms& terms, Metrics& metrics) const {
    Tensor product = tensor::ones_like(terms.scored.mask);
    for (const Call& call : calls_) product = product.mul(call(terms, metrics));
    return product;
  }

 private:
  std::vector<Call> calls_;
};

}  // namespace rlalgo::loss
