// Rows of strided training: a document with blocks at its anchors, n samples each, and what came of them.
//
//   tree      per document one root, its blocks as branches (model/anchored_tree.hpp). Targets: all samples of all blocks,
//             then, at temperature 1, the document's own tokens of the likelihood term.
//             token t of a block is predicted by the block's token t − 1, the first by the document's token e_k − 1
//   collate   one row of Scored per sample, with its advantage; documents' tokens have mask 0
//
// Tokens that predict nothing that is scored are not laid out: a block's last one, a document's beyond its last anchor
// and target. Counts: rows = samples, tokens = generated tokens, likelihood_tokens = documents' tokens of the mask.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rlalgo/data/document.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/sampler/detail/scored_columns.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/functions.hpp>

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

  // Positions of the document whose likelihood the loss reads; the first token has no predictor.
  [[nodiscard]] static std::vector<std::int64_t> likelihood_targets(const Row& row, const loss::Needs& needs) {
    std::vector<std::int64_t> out;
    if (!needs.answer_likelihood || !row.likelihood) return out;
    for (std::size_t i = 1; i < row.document->loss_mask.size(); ++i)
      if (row.document->loss_mask[i] != 0) out.push_back(static_cast<std::int64_t>(i));
    return out;
  }

  // Whether anything of the row is scored.
  [[nodiscard]] static bool trained(const Row& row, const loss::Needs& needs) {
    return !row.blocks.empty() || !likelihood_targets(row, needs).empty();
  }

  [[nodiscard]] static model::TokenTree tree(View rows, const loss::Needs& needs = {}) {
    model::TokenTree out;
    out.row_begin.push_back(0);
    std::vector<model::AnchoredDocument> places;
    std::vector<std::vector<std::int64_t>> likelihood;  // targets of each document
    for (const Row* row : rows) {
      const auto& targets = likelihood.emplace_back(likelihood_targets(*row, needs));
      const std::int64_t last_start = row->blocks.empty() ? 0 : row->blocks.back().start;
      const std::int64_t length = std::max(last_start, targets.empty() ? 0 : targets.back());
      std::vector<model::Branch> branches;
      for (const Block& block : row->blocks)
        for (const auto& sample : block.samples)
          branches.push_back({block.start, std::span(sample).first(sample.size() - 1)});
      places.push_back(
          model::append_document(out, std::span(row->document->ids).first(static_cast<std::size_t>(length)), branches));
      std::size_t b = 0;
      for (const Block& block : row->blocks)
        for (const auto& sample : block.samples) {
          const std::int64_t begin = places.back().branches[b++];
          for (std::size_t t = 0; t < sample.size(); ++t) {
            out.source.push_back(t == 0 ? places.back().begin + block.start - 1
                                        : begin + static_cast<std::int64_t>(t) - 1);
            out.target.push_back(sample[t]);
          }
          out.row_begin.push_back(out.targets());
        }
    }
    const std::int64_t generated = out.targets();
    for (std::size_t r = 0; r < rows.size(); ++r) {
      for (const std::int64_t i : likelihood[r]) {
        out.source.push_back(places[r].begin + i - 1);
        out.target.push_back(rows[r]->document->ids[static_cast<std::size_t>(i)]);
      }
      out.row_begin.push_back(out.targets());
    }
    out.untempered = out.targets() - generated;
    return out;
  }

  static void count(View rows, const loss::Needs& needs, loss::Counts& counts) {
    for (const Row* row : rows) {
      for (const Block& block : row->blocks)
        for (const auto& sample : block.samples) {
          counts.rows += 1;
          counts.tokens += static_cast<double>(sample.size());
        }
      counts.likelihood_tokens += static_cast<double>(likelihood_targets(*row, needs).size());
    }
  }

  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
    const auto options = scores.log_prob.options().requires_grad(false);
    std::vector<double> mask, likelihood, lengths, advantages;
    std::vector<std::int64_t> row;
    const auto add = [&](std::size_t tokens, bool generated, double advantage) {
      row.insert(row.end(), tokens, static_cast<std::int64_t>(lengths.size()));
      mask.insert(mask.end(), tokens, generated ? 1.0 : 0.0);
      likelihood.insert(likelihood.end(), tokens, generated ? 0.0 : 1.0);
      lengths.push_back(generated ? static_cast<double>(tokens) : 0.0);
      advantages.push_back(advantage);
    };
    for (const Row* r : rows)
      for (const Block& block : r->blocks)
        for (std::size_t j = 0; j < block.samples.size(); ++j) add(block.samples[j].size(), true, block.advantage[j]);
    for (const Row* r : rows) add(likelihood_targets(*r, needs).size(), false, 0.0);
    loss::Scored scored = detail::scored_columns(scores, mask, row, lengths);
    scored.advantage = tensor::from_values(advantages, options);                                     // [R]
    if (needs.answer_likelihood) scored.likelihood_mask = tensor::from_values(likelihood, options);  // [N]
    return scored;
  }

  [[nodiscard]] static std::int64_t tokens(const Row& row) {
    auto out = static_cast<std::int64_t>(row.document->ids.size());
    for (const Block& block : row.blocks)
      for (const auto& sample : block.samples) out += static_cast<std::int64_t>(sample.size());
    return out;
  }
};

static_assert(Rows<StridedRows>);

}  // namespace rlalgo::sampler
