// A loss chosen at run time among losses whose needs are covered: one trainer type for a whole family of methods.
//
// The configuration boundary erases the formula, not the contract: what the trainer has to compute (`needs`, which must
// cover what the loss reads) and what rows mean stay in the type. One indirect call per micro-batch.
#pragma once

#include <functional>
#include <utility>

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/loss/token_share.hpp>

namespace rlalgo::loss {

template <Needs needs_, RowKind rows_>
class AnyLoss {
 public:
  struct Config {};
  static constexpr Needs needs = needs_;
  static constexpr RowKind rows = rows_;
  static constexpr Hooks hooks{.active_needs = true, .corrects_sampling = true, .token_share = true};

  template <Loss L>
  requires(!std::same_as<L, AnyLoss> && (L::needs | needs_) == needs_ && L::rows == rows_) explicit AnyLoss(L loss)
      : active_(loss::active_needs(loss)),
        corrects_(loss::corrects_sampling(loss)),
        share_(loss::token_share(loss)),
        call_(std::move(loss)) {}

  Result operator()(const Scored& scored, const Counts& counts) const { return call_(scored, counts); }
  [[nodiscard]] Needs active_needs() const { return active_; }
  [[nodiscard]] bool corrects_sampling() const { return corrects_; }
  [[nodiscard]] TokenShare token_share() const { return share_; }

 private:
  Needs active_;
  bool corrects_;
  TokenShare share_;
  std::function<Result(const Scored&, const Counts&)> call_;
};

// The erased form of a loss type.
template <Loss L>
using AnyLossLike = AnyLoss<L::needs, L::rows>;

}  // namespace rlalgo::loss
