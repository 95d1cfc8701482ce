// Rewards of blocks that hang off one document: each block's samples against the tokens that stand in the document there.
//
//   frozen pass over the document and all blocks (model/anchored_tree.hpp) → features of a block's tokens, pooled
//   φ_y of block k: the document's own tokens [e_k, e_k + G), in the same pass
//
// Samples of one block with the same ids are computed once and share one feature to the bit, so that whitening sees
// duplicates as duplicates.
// Errors: those of network.hpp and gram.hpp; [rlalgo.feature.4] a block whose window leaves the document.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/feature/gram.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>

namespace rlalgo::feature {

struct SampledBlock {
  std::int64_t start = 0;                              // e_k
  std::span<const std::vector<std::int32_t>> samples;  // [n], G tokens each
};

// One Gram matrix per block.
[[nodiscard]] std::vector<Gram> block_grams(const FeatureNetwork& network, std::span<const std::int32_t> document,
                                            std::span<const SampledBlock> blocks, Pooling pooling);

}  // namespace rlalgo::feature

#ifndef RLALGO_COMPILED
#include <rlalgo/feature/detail/block_matching_impl.hpp>
#endif
