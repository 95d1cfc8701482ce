// What a kind of rows is: how the rows of a batch become what the model scores and what the loss reads.
//
// A stateless type with a host-side `Row` and functions of the rows of one micro-batch. A sampler names the kind of its
// rows (`S::Rows`), a loss the kind it reads (`L::rows`); trainers work with any. sampler::RolloutRows and
// sampler::AnswerRows are ours. What a kind may have beyond the concept it declares (RowHooks): nothing else asks
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

#include <rlalgo/core/hooks.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/tensor/host_block.hpp>

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

// Optional members (core/hooks.hpp):
struct RowHooks {
  // void complete(rows, scorers, needs, warnings): before they are trained on rows get log-probs of a reference, or of the policy
  // before the step. Called for each micro-batch, without gradient
  bool complete = false;
  // Tensor reference(rows, scorers, needs): log-probs of the reference for the targets of rows [N], where it computes them, which the loss
  // reads there; undefined: it reads none, or columns have them. complete() is not asked for them then
  bool reference = false;
  bool remember = false;  // void remember(rows, log_prob): the log-probs [N] that they were trained with
  // struct Sample and std::vector<Row> rows_of(samples): a sampler's micro-batch holds samples, which may have several rows each, and
  // the loss reads the rows
  bool rows_of = false;
  bool idle = false;  // bool idle(row): a surrogate has no use for it, its gradient is 0
  // std::int64_t dataset_row(row), Json describe(row, loss, log_prob, decode): rows are blamed, one example at a time, when a loss or a
  // gradient is not finite. Their columns have mask and row
  bool blame = false;
  // struct Summary: what a pass leaves in the output directory. An unfinished one is part of a checkpoint; `merge` adds what another
  // rank has seen
  bool summary = false;
  // Columns columns(rows, needs, block), Scored collate(rows, scores, needs, columns): columns of the loss that are known before rows are
  // scored go to the device with what the policy needs (tensor/host_block.hpp). collate() without them stays
  bool columns = false;
  // std::vector<run::Sample> samples(rows, limit, decode): what samples.jsonl shows, where a sampler with rewards does not show its
  // rollouts
  bool samples = false;
};

template <class R>
[[nodiscard]] constexpr RowHooks row_hooks_of() {
  using Row = typename R::Row;
  constexpr RowHooks declared = core::declared_hooks<R, RowHooks>();
  RLALGO_HOOK(
      complete,
      requires(std::span<Row* const> rows, const Scorers& scorers, const loss::Needs& needs, Warnings& warnings) {
        { R::complete(rows, scorers, needs, warnings) } -> std::same_as<void>;
      });
  RLALGO_HOOK(
      reference, requires(std::span<const Row* const> rows, const Scorers& scorers, const loss::Needs& needs) {
        { R::reference(rows, scorers, needs) } -> std::same_as<tensor::Tensor>;
      });
  RLALGO_HOOK(
      remember, requires(std::span<Row* const> rows, const tensor::Tensor& log_prob) {
        { R::remember(rows, log_prob) } -> std::same_as<void>;
      });
  RLALGO_HOOK(
      rows_of, requires(std::span<typename R::Sample* const> samples) {
        { R::rows_of(samples) } -> std::same_as<std::vector<Row>>;
      });
  RLALGO_HOOK(
      idle, requires(const Row& row) {
        { R::idle(row) } -> std::same_as<bool>;
      });
  RLALGO_HOOK(
      blame, requires(const Row& row, double number, const data::Decode& decode) {
        { R::dataset_row(row) } -> std::convertible_to<std::int64_t>;
        { R::describe(row, number, number, decode) } -> std::same_as<nlohmann::ordered_json>;  // loss, log-prob
      });
  RLALGO_HOOK(
      summary, requires(typename R::Summary & summary, std::span<const Row* const> rows, const loss::Result& result,
                        const std::filesystem::path& directory, std::int64_t step, const std::string& split,
                        const data::Decode& decode, const nlohmann::ordered_json& saved) {
        summary.add(rows, result);
        summary.write(directory, step, split, decode);
        { summary.state(decode) } -> std::same_as<nlohmann::ordered_json>;
        summary.restore(saved);
        summary.merge(saved);
      });
  RLALGO_HOOK(
      columns, requires(std::span<const Row* const> rows, const loss::Needs& needs, tensor::HostBlock& block,
                        const model::Scores& scores, const typename R::Columns& columns) {
        { R::columns(rows, needs, block) } -> std::same_as<typename R::Columns>;
        { R::collate(rows, scores, needs, columns) } -> std::same_as<loss::Scored>;
      });
  RLALGO_HOOK(
      samples, requires(std::span<const Row* const> rows, std::size_t limit, const data::Decode& decode) {
        { R::samples(rows, limit, decode) } -> std::same_as<std::vector<run::Sample>>;
      });
  return declared;
}

// By the name of what they can: what they declare, and nothing else, is there.
template <class R>
concept CompletedRows = Rows<R> && row_hooks_of<R>()
.complete;
template <class R>
concept ReferencedRows = Rows<R> && row_hooks_of<R>()
.reference;
template <class R>
concept RememberingRows = Rows<R> && row_hooks_of<R>()
.remember;
template <class R>
concept SampledRows = Rows<R> && row_hooks_of<R>()
.rows_of;
template <class R>
concept IdleRows = Rows<R> && row_hooks_of<R>()
.idle;
template <class R>
concept BlamedRows = Rows<R> && row_hooks_of<R>()
.blame;
template <class R>
concept PreparedRows = Rows<R> && row_hooks_of<R>()
.columns;
template <class R>
concept SummarizedRows = Rows<R> && row_hooks_of<R>()
.summary;
template <class R>
concept ShownRows = Rows<R> && row_hooks_of<R>()
.samples;

// Columns with the log-probs of a reference that is defined, where and how the policy's are.
[[nodiscard]] inline loss::Scored with_reference(loss::Scored scored, const tensor::Tensor& reference) {
  if (reference.defined()) scored.reference_log_prob = reference.to(scored.log_prob.options().requires_grad(false));
  return scored;
}

namespace detail {
template <class R>
struct SampleOf {
  using type = typename R::Row;
};
template <SampledRows R>
struct SampleOf<R> {
  using type = typename R::Sample;
};
}  // namespace detail

// What a sampler's micro-batch holds: samples that have rows, or the rows themselves.
template <Rows R>
using SampleOf = typename detail::SampleOf<R>::type;

}  // namespace rlalgo::sampler
