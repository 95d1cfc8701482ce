// Rows of strided training: a document with blocks at its anchors, n samples each, and what came of them.
//
//   tree      per document one root, its blocks as branches (model/anchored_tree.hpp); of a chunk whose texts do not see
//             each other one root per text. Targets: all samples of all blocks, then, at temperature 1, the document's own
//             tokens of the likelihood term.
//             token t of a block is predicted by the block's token t − 1, the first by the document's token e_k − 1
//   collate   one row of Scored per sample, with its advantage; documents' tokens have mask 0
//   samples   the samples of a block in the middle of each document: context, ground truth, alignment, diversity, reward
//
// Tokens that predict nothing that is scored are not laid out: a block's last one, a document's beyond its last anchor
// and target. Counts: rows = samples, tokens = generated tokens, likelihood_tokens = documents' tokens of the mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rlalgo/data/decode.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/host_block.hpp>

namespace rlalgo::sampler {

struct Block {
  std::int64_t start = 0;                                       // e_k: the first token that it replaces
  std::vector<std::vector<data::TokenId>> samples;              // [n][G]
  std::vector<double> alignment, diversity, reward, advantage;  // [n]
};

struct StridedDocument {
  std::shared_ptr<const data::Document> document;
  std::int64_t anchor = 0;            // the first start
  bool likelihood = false;            // its loss_mask is trained
  std::vector<Block> blocks = {};     // none where it is too short
  std::vector<double> mismatch = {};  // [K] ‖mean of the samples' features − the document's‖² of each block
};

struct StridedRows {
  using Row = StridedDocument;
  using View = std::span<const Row* const>;
  static constexpr loss::RowKind kind = loss::RowKind::samples;
  static constexpr RowHooks hooks{.columns = true, .samples = true};
  using Columns = loss::Scored;

  // Positions of the document whose likelihood the loss reads; the first token of a text has no predictor.
  [[nodiscard]] static std::vector<std::int64_t> likelihood_targets(const Row& row, const loss::Needs& needs);

  // Whether anything of the row is scored.
  [[nodiscard]] static bool trained(const Row& row, const loss::Needs& needs);

  [[nodiscard]] static model::TokenTree tree(View rows, const loss::Needs& needs = {});

  static void count(View rows, const loss::Needs& needs, loss::Counts& counts);

  [[nodiscard]] static Columns columns(View rows, const loss::Needs& needs, tensor::HostBlock& block);
  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs,
                                            const Columns& columns);
  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs);

  [[nodiscard]] static std::int64_t tokens(const Row& row);

  [[nodiscard]] static std::vector<run::Sample> samples(View rows, std::size_t limit, const data::Decode& decode);
};

static_assert(ShownRows<StridedRows> && PreparedRows<StridedRows>);

}  // namespace rlalgo::sampler

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/strided_rows_impl.hpp>
#endif
