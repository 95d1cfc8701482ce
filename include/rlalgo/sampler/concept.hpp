// What a sampler is: where the training batch of a step comes from.
//
// next(step) returns the rows of optimizer step `step` (0-based) cut into micro-batches. state()/restore() carry the
// cursor, and whatever of a generation batch is still to be trained on, through a checkpoint byte for byte. Whether rows
// have rewards, whether a generator makes them, and whether the data end are separate questions.
#pragma once

#include <concepts>
#include <cstdint>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/hooks.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/rows.hpp>

namespace rlalgo::sampler {

// Optional members (core/hooks.hpp):
struct Hooks {
  bool generates = false;  // using Generator: who makes the rows, whose weights must be those of the policy
  bool needs_weights =
      false;  // bool needs_weights(step) const: next(step) will ask the generator; without it, it always does
  bool asynchronous = false;   // bool asynchronous() const: rows are made while others are trained on
  bool has_reference = false;  // bool has_reference() const: every row brings its log-probs of the reference
  // bool streams() const: a step may begin before all of its rows are made; void pull(RolloutBatch&) then adds the next micro-batch
  // to the batch of the latest next(step). An exception leaves the sampler as it was before that step.
  bool streams = false;
};

template <class S>
[[nodiscard]] constexpr Hooks hooks_of() {
  constexpr Hooks declared = core::declared_hooks<S, Hooks>();
  RLALGO_HOOK(
      generates, requires { typename S::Generator; });
  RLALGO_HOOK(
      needs_weights, requires(const S& sampler) { sampler.needs_weights(0); });
  RLALGO_HOOK(
      asynchronous, requires(const S& sampler) { sampler.asynchronous(); });
  RLALGO_HOOK(
      has_reference, requires(const S& sampler) { sampler.has_reference(); });
  RLALGO_HOOK(
      streams, requires(S & sampler, const S& known, RolloutBatch& batch) {
        known.streams();
        sampler.pull(batch);
      });
  return declared;
}

template <class S>
concept Sampler = Rows<typename S::Rows> &&
    requires(S& sampler, const S& cursor, std::int64_t step, const nlohmann::ordered_json& state) {
  { sampler.next(step) } -> std::derived_from<Batch<SampleOf<typename S::Rows>>>;
  { cursor.state() } -> std::same_as<nlohmann::ordered_json>;
  { sampler.restore(state) } -> std::same_as<void>;
};

// Rows come with rewards, which an estimator and an aggregation turn into advantages.
template <class S>
concept Rewarded = Sampler<S> && requires(S& sampler, std::int64_t step) {
  { sampler.next(step) } -> std::derived_from<RolloutBatch>;
};

// Rows come from a generator, `S::Generator`.
template <class S>
concept Generates = Sampler<S> && hooks_of<S>()
.generates;

// One pass over the data is steps() optimizer steps, so the sampler can hold a split to evaluate on.
template <class S>
concept Finite = Sampler<S> && requires(const S& sampler) {
  { sampler.steps() } -> std::convertible_to<std::int64_t>;
};

// The loss reads rows of the kind that the sampler gives.
template <class L, class S>
concept SameRows = loss::Loss<L> && Sampler<S> && loss::RowKind(L::rows)
== loss::RowKind(S::Rows::kind);

}  // namespace rlalgo::sampler
