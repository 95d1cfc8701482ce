// What a sampler is: where the training batch of a step comes from.
//
// next(step) returns the rows of optimizer step `step` (0-based) cut into micro-batches. state()/restore() carry the
// cursor, and whatever of a generation batch is still to be trained on, through a checkpoint byte for byte.
#pragma once

#include <concepts>
#include <cstdint>

#include <nlohmann/json.hpp>

#include <rlalgo/loss/concept.hpp>

namespace rlalgo::sampler {

template <class S>
concept Sampler = requires(S& sampler, std::int64_t step, const nlohmann::ordered_json& state) {
  typename S::Batch;
  { S::rows } -> std::convertible_to<loss::RowKind>;
  { S::generates } -> std::convertible_to<bool>;  // true: batches come from a generator and need weight sync
  { sampler.next(step) } -> std::same_as<typename S::Batch>;
  { sampler.state() } -> std::same_as<nlohmann::ordered_json>;
  { sampler.restore(state) } -> std::same_as<void>;
};

}  // namespace rlalgo::sampler
