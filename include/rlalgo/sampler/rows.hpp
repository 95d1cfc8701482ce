// What a kind of rows is: how the rows of a batch become what the model scores and what the loss reads.
//
// A stateless type with a host-side `Row` and functions of the rows of one micro-batch. A sampler names the kind of its
// rows (`S::Rows`), a loss the kind it reads (`L::rows`); trainers work with any. sampler::RolloutRows and
// sampler::AnswerRows are ours. What a kind may have beyond the concept is a concept of its own here: nothing else asks
// which kind it is.
//
//   Row           the row as the host holds it, no tensor
//   kind          the loss::RowKind that losses name
//   tree          rows → segments, targets row after row
//   count         adds this micro-batch's share of the denominators of the step (micro_batches excepted)
//   collate       rows and their scores → the columns of loss::Scored, as far as `needs` asks
//   tokens        tokens of a row that are handled, prompt included; for tokens/s
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/decode.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/run/samples_log.hpp>

namespace rlalgo::sampler {

template <class R>
concept Rows = requires(std::span<const typename R::Row* const> rows, const typename R::Row& row,
                        const model::Scores& scores, const loss::Needs& needs, loss::Counts& counts) {
  { R::kind } -> std::convertible_to<loss::RowKind>;
  { R::tree(rows, needs) } -> std::same_as<model::TokenTree>;
  { R::count(rows, needs, counts) } -> std::same_as<void>;
  { R::collate(rows, scores, needs) } -> std::same_as<loss::Scored>;
  { R::tokens(row) } -> std::convertible_to<std::int64_t>;
};

// Who fills in what a loss reads as data.
struct Scorers {
  model::Policy& policy;
  model::Policy* reference = nullptr;  // null where the rows bring its log-probs, or nobody reads them
  double temperature = 1.0;
  std::int64_t version = 0;        // of the policy's weights
  bool corrects_sampling = false;  // loss::corrects_sampling of the loss
};

// What was said while rows were completed, for the log.
using Warnings = std::vector<std::string>;

// Rows that are completed before they are trained on: log-probs of a reference, or of the policy before the step.
// Called for each micro-batch, without gradient.
template <class R>
concept CompletedRows = Rows<R> && requires(std::span<typename R::Row* const> rows, const Scorers& scorers,
                                            const loss::Needs& needs, Warnings& warnings) {
  { R::complete(rows, scorers, needs, warnings) } -> std::same_as<void>;
};

// Rows that keep the log-probs [N] they were trained with.
template <class R>
concept RememberingRows = Rows<R> && requires(std::span<typename R::Row* const> rows, const tensor::Tensor& log_prob) {
  { R::remember(rows, log_prob) } -> std::same_as<void>;
};

// Rows that come in samples: a sampler's micro-batch holds the first row of each, and the loss reads all, each with what
// the sample has of rewards and advantage.
template <class R>
concept SampledRows = Rows<R> && requires(std::span<typename R::Row* const> samples) {
  { R::rows_of(samples) } -> std::same_as<std::vector<typename R::Row*>>;
};

// Rows that a surrogate may have no use for: their gradient is 0.
template <class R>
concept IdleRows = Rows<R> && requires(const typename R::Row& row) {
  { R::idle(row) } -> std::same_as<bool>;
};

// Rows that are blamed, one example at a time, when a loss or a gradient is not finite. Their columns have mask and row.
template <class R>
concept BlamedRows = Rows<R> && requires(const typename R::Row& row, double number, const data::Decode& decode) {
  { R::dataset_row(row) } -> std::convertible_to<std::int64_t>;
  { R::describe(row, number, number, decode) } -> std::same_as<nlohmann::ordered_json>;  // loss, log-prob
};

// Rows of which a pass leaves a summary in the output directory. An unfinished one is part of a checkpoint; `merge` adds
// what another rank has seen.
template <class R>
concept SummarizedRows = Rows<R> &&
    requires(typename R::Summary& summary, std::span<const typename R::Row* const> rows, const loss::Result& result,
             const std::filesystem::path& directory, std::int64_t step, const std::string& split,
             const data::Decode& decode, const nlohmann::ordered_json& saved) {
  summary.add(rows, result);
  summary.write(directory, step, split, decode);
  { summary.state(decode) } -> std::same_as<nlohmann::ordered_json>;
  summary.restore(saved);
  summary.merge(saved);
};

// Rows that samples.jsonl shows something of, where a sampler with rewards does not show its rollouts.
template <class R>
concept ShownRows = Rows<R> &&
    requires(std::span<const typename R::Row* const> rows, std::size_t limit, const data::Decode& decode) {
  { R::samples(rows, limit, decode) } -> std::same_as<std::vector<run::Sample>>;
};

}  // namespace rlalgo::sampler
