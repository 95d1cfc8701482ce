// Rows of online RL: those of episodes (data::Episode), completions with rewards behind them. The seam between host data and tensors.
//
//   rows_of   episodes → their rows, each with its episode (data::EpisodeRow)
//   tree      prompt and completion of every row; a prompt that rows share is encoded once; where the loss asks for
//             them, last of all prompt and answer of the rows that bring one, at temperature 1. Targets are the tokens
//             that carry loss, and the last one of each completion
//   collate   loss::Scored: flat [N] columns, row after row, no padding
//
// Old log-probs: a row that the weights of now generated has none yet; its old log-prob is the detached current one
// (ratio exactly 1, with gradient), and `remember` stores it for later iterations over the same generation. A row that
// other weights generated is never given that ratio: without old log-probs it takes those that its generator reported,
// and where there are none it is scored with the weights of now, and the log says so. A loss that corrects for the
// generator (Scorers::corrects_sampling) knows of the other weights by the correction alone: the ratio begins at 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sampler {

// A column of log-probs [completion] of a row.
using RolloutColumn = std::vector<float> data::Row::*;

// Completion tokens of a row that carry loss.
[[nodiscard]] std::int64_t loss_tokens(const data::Row& r);

struct RolloutRows {
  using Sample = data::Episode;
  using Row = data::EpisodeRow;
  using View = std::span<const Row* const>;
  static constexpr loss::RowKind kind = loss::RowKind::samples;
  static constexpr RowHooks hooks{.complete = true, .remember = true, .rows_of = true, .idle = true, .columns = true};

  struct Columns {
    loss::Scored data;
    tensor::Tensor known = {};  // [N] whether old_log_prob is known; undefined: of all tokens, or of none
  };

  [[nodiscard]] static model::TokenTree tree(View rows, const loss::Needs& needs = {});

  // All rows of some episodes, those of one in the order in which they were played.
  [[nodiscard]] static std::vector<Row> rows_of(std::span<Sample* const> episodes);

  static void count(View rows, const loss::Needs& needs, loss::Counts& counts);

  [[nodiscard]] static Columns columns(View rows, const loss::Needs& needs, tensor::HostBlock& block);
  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs,
                                            const Columns& columns);
  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs);

  [[nodiscard]] static std::int64_t tokens(const Row& r);

  // Of advantage 0: a surrogate alone has no gradient there. An answer has one.
  [[nodiscard]] static bool idle(const Row& r) { return r.episode().advantage == 0.0 && !r.has_answer(); }

  // Scores `rows` with `policy`, at most `rows_per_part` in a pass, into one column.
  static void score(model::Policy& policy, std::span<data::Row* const> rows, std::size_t rows_per_part,
                    double temperature, RolloutColumn column);

  // log_prob [N] of the targets into one column of the rows, 0 for the other tokens.
  static void store(std::span<data::Row* const> rows, const tensor::Tensor& log_prob, RolloutColumn column);

  static void complete(std::span<Row* const> rows, const Scorers& scorers, const loss::Needs& needs,
                       Warnings& warnings);

  // Rows without old log-probs were generated with the weights that scored them here.
  static void remember(std::span<Row* const> rows, const tensor::Tensor& log_prob);
};

static_assert(SampledRows<RolloutRows> && CompletedRows<RolloutRows> && RememberingRows<RolloutRows> &&
              IdleRows<RolloutRows> && PreparedRows<RolloutRows>);

}  // namespace rlalgo::sampler

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/rollout_rows_impl.hpp>
#endif
