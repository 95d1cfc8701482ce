// What a generator of strided training is: a document in, short continuations at many of its places out.
//
// `BlockEngine` (this room) draws them with the trainer's own weights.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::inference {

// The blocks of one document: `count` samples of `length` tokens at every start.
struct BlockRequest {
  std::span<const data::TokenId> document;
  std::vector<std::int64_t> starts;  // e_k ≥ 1, rising
  std::int64_t count = 1;
  std::int64_t length = 1;
  std::uint64_t first_index = 0;  // sample j of block k draws from random index first_index + k·count + j
};

using BlockSamples = std::vector<std::vector<std::vector<data::TokenId>>>;  // [K][n][G]

// What makes the blocks of strided training.
template <class G>
concept BlockGenerator = requires(G& generator, const BlockRequest& request, const SamplingConfig& sampling,
                                  DrawKey key) {
  { G::weights } -> std::convertible_to<WeightSource>;
  { generator.generate(request, sampling, key) } -> std::same_as<BlockSamples>;
};

}  // namespace rlalgo::inference
