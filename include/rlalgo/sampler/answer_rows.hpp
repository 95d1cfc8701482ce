// Rows of preference data: data::Answer, in pairs (chosen, rejected in turn) or single with a label.
//
//   tree       prompt and completion of every row; the tree of a pair holds its prompt once
//   collate    loss::Scored
//   reference  log-probs of the reference, which stay where they are computed
//   complete   log-ratios of mismatched completions, which the host adds over the ranks
//   describe   one line of offending_rows-step-N.jsonl
//   Summary    pairs.json
//
// A loss with Needs::prompt_likelihood gets the prompt tokens of chosen answers (all but the first) as targets that
// belong to the likelihood, not to the completion: their mask is 0 and their likelihood_mask is 1.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/data/answer.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/sampler/detail/scored_columns.hpp>
#include <rlalgo/sampler/pair_extremes.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/host_block.hpp>
#include <rlalgo/tensor/reading.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::sampler {

using Answers = std::span<data::Answer* const>;

namespace detail {

// Tokens of a row before its first target.
[[nodiscard]] inline std::int64_t context_tokens(const data::Answer& a, const loss::Needs& needs) {
  return needs.prompt_likelihood && a.desirable ? 1 : a.prompt_tokens;
}

// Σ of a row's log-probs, which are in host memory.
[[nodiscard]] inline double row_total(const tensor::Tensor& log_prob, std::int64_t begin, std::int64_t length) {
  return log_prob.slice(0, begin, begin + length).to(at::kDouble).sum().item<double>();
}

[[nodiscard]] inline model::TokenTree answer_tree(std::span<const data::Answer* const> rows, const loss::Needs& needs) {
  std::vector<model::Sequence> views;
  views.reserve(rows.size());
  for (const data::Answer* a : rows) {
    const auto context = static_cast<std::size_t>(context_tokens(*a, needs));
    views.push_back({std::span(a->ids).first(context), std::span(a->ids).subspan(context)});
  }
  return model::build_tree(views);
}

}  // namespace detail

// Log-probs of the completions under `reference`, for rows that lack them, in host memory: for sums that are kept.
inline void score_references(model::Policy& reference, Answers rows, double temperature) {
  std::vector<data::Answer*> lacking;
  for (data::Answer* a : rows)
    if (std::isnan(a->reference_row)) lacking.push_back(a);
  if (lacking.empty()) return;
  const c10::AutoGradMode no_gradient(false);
  const tensor::Tensor log_prob = reference.score(detail::answer_tree(lacking, {}), {.temperature = temperature})
                                      .log_prob.to(at::kCPU, at::kFloat)
                                      .contiguous();
  const float* p = log_prob.const_data_ptr<float>();
  for (data::Answer* a : lacking) {
    a->reference_log_probs.assign(p, p + a->completion_tokens());
    p += a->completion_tokens();
  }
}

namespace detail {

// Of the tokens of mismatched completions, row after row.
[[nodiscard]] inline tensor::Tensor score_mismatched(model::Policy& policy, Answers rows, double temperature) {
  const c10::AutoGradMode no_gradient(false);
  std::vector<model::Sequence> views;
  for (const data::Answer* a : rows) views.push_back({a->prompt(), a->mismatched});
  return policy.score(model::build_tree(views), {.temperature = temperature}).log_prob;
}

// Σ over each row's, in host memory.
[[nodiscard]] inline std::vector<double> mismatched_totals(const tensor::Tensor& log_prob, Answers rows) {
  std::vector<double> out;
  std::int64_t begin = 0;
  for (const data::Answer* a : rows) {
    const auto length = static_cast<std::int64_t>(a->mismatched.size());
    out.push_back(row_total(log_prob, begin, length));
    begin += length;
  }
  return out;
}

}  // namespace detail

// Σ log-probs of each row's mismatched completion under `policy`.
[[nodiscard]] inline std::vector<double> mismatched_log_probs(model::Policy& policy, Answers rows, double temperature) {
  return detail::mismatched_totals(detail::score_mismatched(policy, rows, temperature).to(at::Device(at::kCPU)), rows);
}

// Sets mismatched_log_ratio of every row, by one copy to the host. `reference` may be null where every row brings its
// mismatched_reference.
inline void score_mismatched(model::Policy& policy, model::Policy* reference, Answers rows, double temperature) {
  const bool known =
      std::all_of(rows.begin(), rows.end(), [](const data::Answer* a) { return !std::isnan(a->mismatched_reference); });
  tensor::Tensor now = detail::score_mismatched(policy, rows, temperature), before;
  if (!known && reference != nullptr) before = detail::score_mismatched(*reference, rows, temperature);
  tensor::Reading reading;
  reading.add(now);
  reading.add(before);
  reading.fetch();
  const std::vector<double> of_now = detail::mismatched_totals(now, rows);
  const std::vector<double> of_before =
      before.defined() ? detail::mismatched_totals(before, rows) : std::vector<double>();
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i]->mismatched_log_ratio = of_now[i] - (known ? rows[i]->mismatched_reference : of_before.at(i));
}

template <loss::RowKind answers>
struct AnswerRows {
  static_assert(answers != loss::RowKind::samples, "sampler::AnswerRows are pairs or unpaired answers");
  using Row = data::Answer;
  using View = std::span<const Row* const>;
  static constexpr loss::RowKind kind = answers;
  static constexpr RowHooks hooks{.complete = true, .reference = true, .blame = true, .summary = true, .columns = true};
  using Columns = loss::Scored;

  [[nodiscard]] static model::TokenTree tree(View rows, const loss::Needs& needs) {
    return detail::answer_tree(rows, needs);
  }

  static void count(View rows, const loss::Needs& needs, loss::Counts& counts) {
    counts.rows += static_cast<double>(rows.size());
    for (const Row* a : rows) {
      counts.tokens += static_cast<double>(a->completion_tokens());
      counts.mismatched_log_ratio += a->mismatched_log_ratio;
      if (!a->desirable) continue;
      counts.desirable += 1;
      counts.likelihood_tokens += static_cast<double>(a->tokens() - detail::context_tokens(*a, needs));
    }
  }

  [[nodiscard]] static Columns columns(View rows, const loss::Needs& needs, tensor::HostBlock& block) {
    std::vector<double> mask, likelihood, reference, lengths, desirable, reference_rows;
    std::vector<std::int64_t> row;
    bool by_token = needs.reference_log_prob, by_row = needs.reference_log_prob;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const data::Answer& a = *rows[i];
      for (std::int64_t t = detail::context_tokens(a, needs); t < a.tokens(); ++t) {
        mask.push_back(t >= a.prompt_tokens ? 1.0 : 0.0);
        likelihood.push_back(a.desirable ? 1.0 : 0.0);
        row.push_back(static_cast<std::int64_t>(i));
      }
      lengths.push_back(static_cast<double>(a.completion_tokens()));
      desirable.push_back(a.desirable ? 1.0 : 0.0);
      by_row = by_row && !std::isnan(a.reference_row);
      by_token = by_token && static_cast<std::int64_t>(a.reference_log_probs.size()) == a.completion_tokens();
      reference_rows.push_back(a.reference_row);
      reference.insert(reference.end(), a.reference_log_probs.begin(), a.reference_log_probs.end());
    }
    Columns out = detail::data_columns(mask, row, lengths, block);
    out.likelihood_mask = block.add_numbers(likelihood);                                      // [N]
    out.desirable = block.add_numbers(desirable);                                             // [R]
    if (by_row) out.reference_row_log_prob = block.add_numbers(reference_rows, at::kDouble);  // [R]
    if (by_token && !by_row) out.reference_log_prob = block.add_numbers(reference);           // [N]
    return out;
  }

  [[nodiscard]] static loss::Scored collate(View /*rows*/, const model::Scores& scores, const loss::Needs& /*needs*/,
                                            const Columns& columns) {
    loss::Scored scored = detail::with_scores(columns, scores);
    scored.mean_logit = scores.mean_logit;  // [N]
    scored.greedy = scores.greedy;          // [N]
    scored.collision = scores.collision;    // [N]
    return scored;
  }
  [[nodiscard]] static loss::Scored collate(View rows, const model::Scores& scores, const loss::Needs& needs) {
    return detail::collated<AnswerRows>(rows, scores, needs);
  }

  [[nodiscard]] static std::int64_t tokens(const Row& a) { return a.tokens(); }

  [[nodiscard]] static tensor::Tensor reference(View rows, const Scorers& scorers, const loss::Needs& needs) {
    const bool known =
        std::none_of(rows.begin(), rows.end(), [](const Row* a) { return std::isnan(a->reference_row); });
    if (!needs.reference_log_prob || scorers.reference == nullptr || known) return {};
    const c10::AutoGradMode no_gradient(false);
    return scorers.reference->score(tree(rows, needs), {.temperature = scorers.temperature}).log_prob;
  }

  static void complete(Answers rows, const Scorers& scorers, const loss::Needs& needs, Warnings& /*warnings*/) {
    if (needs.mismatched) score_mismatched(scorers.policy, scorers.reference, rows, scorers.temperature);
  }

  [[nodiscard]] static std::int64_t dataset_row(const Row& a) { return a.row; }

  // `loss` of its example, `log_prob` Σ over the completion; a number that is not finite prints as null.
  [[nodiscard]] static data::Json describe(const Row& a, double loss, double log_prob, const data::Decode& decode) {
    return {{"row", a.row},
            {"desirable", a.desirable},
            {"loss", loss},
            {"log_prob", log_prob},
            {"reference_log_prob", a.reference_row},
            {"prompt", decode(a.prompt())},
            {"completion", decode(a.completion())},
            {"ids", a.ids}};
  }

  // The most and the least separated pairs of a pass; nothing where losses report no margins.
  class Summary {
   public:
    void add(View rows, const loss::Result& result) {
      if (!result.margins.defined()) return;
      const tensor::Tensor margins = result.margins.detach().to(at::kCPU, at::kDouble).contiguous();  // [P]
      for (std::size_t i = 0; 2 * i + 1 < rows.size(); ++i)
        pairs_.add(margins.template const_data_ptr<double>()[i], *rows[2 * i], *rows[2 * i + 1]);
    }
    void write(const std::filesystem::path& directory, std::int64_t step, const std::string& split,
               const data::Decode& decode) const {
      if (pairs_.seen() > 0) pairs_.write(directory, step, split, decode);
    }
    [[nodiscard]] data::Json state(const data::Decode& decode) const { return pairs_.state(decode); }
    void restore(const data::Json& state) { pairs_.restore(state); }
    void merge(const data::Json& state) { pairs_.merge(state); }

   private:
    PairExtremes pairs_;
  };
};

using PairRows = AnswerRows<loss::RowKind::pairs>;
using UnpairedRows = AnswerRows<loss::RowKind::unpaired>;
static_assert(CompletedRows<PairRows> && ReferencedRows<PairRows> && BlamedRows<PairRows> && SummarizedRows<PairRows> &&
              PreparedRows<PairRows>);

}  // namespace rlalgo::sampler
