// Definitions of strided_rows.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/document.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/sampler/detail/scored_columns.hpp>
#include <rlalgo/sampler/strided_rows.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::sampler {

RLALGO_INLINE std::vector<std::int64_t> StridedRows::likelihood_targets(const Row& row, const loss::Needs& needs) {
  std::vector<std::int64_t> out;
  if (!needs.answer_likelihood || !row.likelihood) return out;
  const data::Document& document = *row.document;
  for (std::size_t i = 1; i < document.loss_mask.size(); ++i)
    if (document.loss_mask[i] != 0) out.push_back(static_cast<std::int64_t>(i));
  if (!document.texts.empty())
    std::erase_if(out,
                  [&](std::int64_t i) { return std::binary_search(document.texts.begin(), document.texts.end(), i); });
  return out;
}

RLALGO_INLINE bool StridedRows::trained(const Row& row, const loss::Needs& needs) {
  return !row.blocks.empty() || !likelihood_targets(row, needs).empty();
}

RLALGO_INLINE model::TokenTree StridedRows::tree(View rows, const loss::Needs& needs) {
  model::TokenTree out;
  out.row_begin.push_back(0);
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> likelihood;  // source and target of each row
  for (const Row* row : rows) {
    const auto targets = likelihood_targets(*row, needs);
    const std::span<const data::TokenId> ids = row->document->ids;
    auto& own = likelihood.emplace_back();
    for (const data::TextSpan text : data::text_spans(*row->document)) {
      const auto inside = [&](std::int64_t i) { return i >= text.begin && i < text.end; };
      std::int64_t end = text.begin;  // of the tokens that predict something
      std::vector<const Block*> blocks;
      std::vector<model::Branch> branches;
      for (const Block& block : row->blocks) {
        if (!inside(block.start)) continue;
        end = std::max(end, block.start);
        blocks.push_back(&block);
        for (const auto& sample : block.samples)
          branches.push_back({block.start - text.begin, std::span(sample).first(sample.size() - 1)});
      }
      for (const std::int64_t i : targets)
        if (inside(i)) end = std::max(end, i);
      if (end == text.begin) continue;
      const model::AnchoredDocument place = model::append_document(
          out, ids.subspan(static_cast<std::size_t>(text.begin), static_cast<std::size_t>(end - text.begin)), branches);
      const std::int64_t shift = place.begin - text.begin;
      std::size_t b = 0;
      for (const Block* block : blocks)
        for (const auto& sample : block->samples) {
          const std::int64_t begin = place.branches[b++];
          for (std::size_t t = 0; t < sample.size(); ++t) {
            out.source.push_back(t == 0 ? shift + block->start - 1 : begin + static_cast<std::int64_t>(t) - 1);
            out.target.push_back(sample[t]);
          }
          out.row_begin.push_back(out.targets());
        }
      for (const std::int64_t i : targets)
        if (inside(i)) own.emplace_back(shift + i - 1, ids[static_cast<std::size_t>(i)]);
    }
  }
  const std::int64_t generated = out.targets();
  for (const auto& own : likelihood) {
    for (const auto& [source, target] : own) {
      out.source.push_back(source);
      out.target.push_back(target);
    }
    out.row_begin.push_back(out.targets());
  }
  out.untempered = out.targets() - generated;
  return out;
}

RLALGO_INLINE void StridedRows::count(View rows, const loss::Needs& needs, loss::Counts& counts) {
  for (const Row* row : rows) {
    for (const Block& block : row->blocks)
      for (const auto& sample : block.samples) {
        counts.rows += 1;
        counts.tokens += static_cast<double>(sample.size());
      }
    counts.likelihood_tokens += static_cast<double>(likelihood_targets(*row, needs).size());
  }
}

RLALGO_INLINE StridedRows::Columns StridedRows::columns(View rows, const loss::Needs& needs, tensor::HostBlock& block) {
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
  Columns out = detail::data_columns(mask, row, lengths, block);
  out.advantage = block.add_numbers(advantages);                                     // [R]
  if (needs.answer_likelihood) out.likelihood_mask = block.add_numbers(likelihood);  // [N]
  return out;
}

RLALGO_INLINE loss::Scored StridedRows::collate(View /*rows*/, const model::Scores& scores,
                                                const loss::Needs& /*needs*/, const Columns& columns) {
  return detail::with_scores(columns, scores);
}

RLALGO_INLINE loss::Scored StridedRows::collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
  return detail::collated<StridedRows>(rows, scores, needs);
}

RLALGO_INLINE std::int64_t StridedRows::tokens(const Row& row) {
  auto out = static_cast<std::int64_t>(row.document->ids.size());
  for (const Block& block : row.blocks)
    for (const auto& sample : block.samples) out += static_cast<std::int64_t>(sample.size());
  return out;
}

RLALGO_INLINE std::vector<run::Sample> StridedRows::samples(View rows, std::size_t limit, const data::Decode& decode) {
  constexpr std::int64_t shown = 64;  // tokens of a context
  std::vector<run::Sample> out;
  for (const Row* row : rows) {
    if (row->blocks.empty()) continue;
    const Block& block = row->blocks[row->blocks.size() / 2];
    const std::span<const data::TokenId> ids = row->document->ids;
    std::int64_t first = 0;
    for (const data::TextSpan text : data::text_spans(*row->document))
      if (block.start >= text.begin) first = text.begin;
    const std::int64_t begin = std::max(first, block.start - shown);
    const auto part = [&](std::int64_t from, std::int64_t count) {
      return decode(ids.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(count)));
    };
    for (std::size_t j = 0; j < block.samples.size() && out.size() < limit; ++j)
      out.push_back(
          {.prompt = (begin > first ? "…" : "") + part(begin, block.start - begin),
           .completion = decode(block.samples[j]),
           .rewards = {{"alignment", block.alignment[j]},
                       {"diversity", block.diversity[j]},
                       {"reward", block.reward[j]}},
           .advantage = block.advantage[j],
           .cut = false,
           .logged = {{"ground_truth", part(block.start, static_cast<std::int64_t>(block.samples[j].size()))}}});
  }
  return out;
}

}  // namespace rlalgo::sampler
