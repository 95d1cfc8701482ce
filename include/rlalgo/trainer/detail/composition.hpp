// What a composition of parts must be, for the compiler's messages; and the summary that its rows leave.
#pragma once

#include <type_traits>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/trainer/experience.hpp>

namespace rlalgo::trainer::detail {

// The rules of a composition, each in a sentence. Compositions are checked here once for Trainer and all doors.
template <class L, class A, class S, class G, class Y>
struct Composition {
  static_assert(loss::Loss<L>,
                "trainer::Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy>: the first part is not a Loss; it "
                "needs constexpr `needs` (loss::Needs) and `rows` (loss::RowKind), and `loss::Result "
                "operator()(const loss::Scored&, const loss::Counts&) const` (loss::PolicyGradient is one)");
  static_assert(
      sampler::Sampler<S>,
      "trainer::Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy>: the third part is not a Sampler; "
      "it needs `Rows` (a kind of rows, sampler/rows.hpp), `next(std::int64_t)` that returns a sampler::Batch "
      "of them, `state() const` and `restore(state)` (sampler::Rollouts and sampler::Pairs are)");
  static_assert(!loss::Loss<L> || !sampler::Sampler<S> || sampler::SameRows<L, S>,
                "trainer::Trainer: the loss reads rows of another kind than the sampler gives: a loss over pairs takes "
                "sampler::Pairs, one over single answers sampler::UnpairedAnswers, one over completions "
                "sampler::Rollouts; for rows of your own, L::rows must equal S::Rows::kind");
  static_assert(
      !sampler::Sampler<S> || !sampler::Rewarded<S> || advantage::AdvantageEstimator<A>,
      "trainer::Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy>: the rows have rewards, and the "
      "second part is not an AdvantageEstimator; it needs a Config and `advantage::Estimate "
      "operator()(std::span<const double> rewards, const core::Groups&) const` (advantage::GroupRelative<> is "
      "one)");
  static_assert(!sampler::Sampler<S> || !sampler::Rewarded<S> || !advantage::AdvantageEstimator<A> ||
                    aggregation::AggregationFor<G, A>,
                "trainer::Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy>: the fourth part is not an "
                "Aggregation for this estimator; it needs `aggregation::Result operator()(const Estimator&, const "
                "core::RewardTable&, const core::Groups&) const` (aggregation::SumThenNormalize is one)");
  static_assert(!sampler::Sampler<S> || sampler::Rewarded<S> || AdvantageFor<A, G, S>,
                "trainer::Trainer: the rows of this sampler have no rewards, so there is nothing to estimate or to "
                "aggregate; take advantage::None and aggregation::None");
  static_assert(sync::SyncPolicy<Y>,
                "trainer::Trainer<Loss, Estimator, Sampler, Aggregation, SyncPolicy>: the fifth part is not a "
                "SyncPolicy; it needs a static constexpr `bool reaches(inference::WeightSource)`, `sync::Published "
                "publish(std::int64_t version)` and `version_source() const` (sync::SharedWeights is one; sync::NoSync "
                "where nothing is generated)");
  static constexpr bool reached = [] {
    if constexpr (sampler::Generates<S>)
      return sync::Pairing<Y, typename S::Generator>::fits;
    else
      return true;
  }();
  // Of parts that fit, the optional members that they declare are there, and no others (core/hooks.hpp).
  static constexpr bool hooked = [] {
    if constexpr (loss::Loss<L>) (void)loss::hooks_of<L>();
    if constexpr (sampler::Sampler<S>) (void)sampler::hooks_of<S>();
    if constexpr (advantage::AdvantageEstimator<A>) (void)advantage::hooks_of<A>();
    if constexpr (aggregation::AggregationFor<G, A>) (void)aggregation::hooks_of<G>();
    if constexpr (sync::SyncPolicy<Y>) (void)sync::hooks_of<Y>();
    return true;
  }();
  static constexpr bool fits = hooked && reached && loss::Loss<L> && sampler::Sampler<S> && sampler::SameRows<L, S> &&
                               AdvantageFor<A, G, S> && sync::SyncPolicy<Y>;
};

// The summary of a pass, where its rows have one.
template <class R>
struct SummaryOf {
  struct type {};
};
template <sampler::SummarizedRows R>
struct SummaryOf<R> {
  using type = typename R::Summary;
};

}  // namespace rlalgo::trainer::detail
