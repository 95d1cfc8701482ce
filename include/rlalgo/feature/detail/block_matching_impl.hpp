// Definitions of block_matching.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/feature/block_matching.hpp>
#include <rlalgo/feature/gram.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/feature/pooling.hpp>
#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::feature {

RLALGO_INLINE std::vector<Gram> block_grams(const FeatureNetwork& network, std::span<const std::int32_t> document,
                                            std::span<const SampledBlock> blocks, Pooling pooling) {
  std::vector<Gram> out;
  if (blocks.empty()) return out;
  std::vector<model::Branch> branches;              // the distinct samples
  std::vector<std::vector<std::size_t>> branch_of;  // [K][n]
  for (const SampledBlock& block : blocks) {
    const std::size_t first = branches.size();
    std::vector<std::size_t>& mine = branch_of.emplace_back();
    for (const std::vector<std::int32_t>& sample : block.samples) {
      if (block.start + static_cast<std::int64_t>(sample.size()) > static_cast<std::int64_t>(document.size()))
        core::raise("feature", 4,
                    {.what = "the window of a block leaves its document",
                     .found = std::to_string(block.start) + " and " + std::to_string(sample.size()) + " tokens",
                     .expected = "together at most " + std::to_string(document.size())});
      std::size_t b = first;
      while (b < branches.size() &&
             !std::equal(branches[b].ids.begin(), branches[b].ids.end(), sample.begin(), sample.end()))
        ++b;
      if (b == branches.size()) branches.push_back({block.start, sample});
      mine.push_back(b);
    }
  }
  model::TokenTree tree;
  const model::AnchoredDocument places = model::append_document(tree, document, branches);
  const TokenFeatures tokens = network(tree);
  for (std::size_t k = 0; k < blocks.size(); ++k) {
    const auto length = blocks[k].samples.empty() ? 0 : static_cast<std::int64_t>(blocks[k].samples.front().size());
    const std::vector<Stretch> parts = stretches(pooling, length);
    std::vector<std::vector<double>> features;
    for (std::size_t j = 0; j < branch_of[k].size(); ++j) {
      const std::size_t b = branch_of[k][j];
      std::size_t twin = 0;
      while (branch_of[k][twin] != b) ++twin;
      features.push_back(twin < j ? features[twin]
                                  : tokens.pooled(parts, [&](std::int64_t t) { return places.branches[b] + t; }));
    }
    out.push_back(
        gram(features, tokens.pooled(parts, [&](std::int64_t t) { return places.begin + blocks[k].start + t; })));
  }
  return out;
}

}  // namespace rlalgo::feature
