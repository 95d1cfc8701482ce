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

#include <rlalgo/loss/concept.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/rows.hpp>

namespace rlalgo::sampler {

template <class S>
concept Sampler = Rows<typename S::Rows> &&
    requires(S& sampler, const S& cursor, std::int64_t step, const nlohmann::ordered_json& state) {
  { sampler.next(step) } -> std::derived_from<Batch<typename S::Rows::Row>>;
  { cursor.state() } -> std::same_as<nlohmann::ordered_json>;
  { sampler.restore(state) } -> std::same_as<void>;
};

// Rows come with rewards, which an estimator and an aggregation turn into advantages.
template <class S>
concept Rewarded = Sampler<S> && requires(S& sampler, std::int64_t step) {
  { sampler.next(step) } -> std::derived_from<RolloutBatch>;
};

// Rows come from a generator, whose weights must be those of the policy: `S::Generator`. needs_weights(step), where
// there is one: whether next(step) will ask it.
template <class S>
concept Generates = Sampler<S> && requires {
  typename S::Generator;
};

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
