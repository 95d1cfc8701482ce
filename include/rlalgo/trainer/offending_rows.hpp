// Which rows made a loss, or a gradient, that is not finite: saved for inspection, named in the error. For kinds of rows
// that can be blamed (sampler/rows.hpp).
//
// output_dir/offending_rows-step-N.jsonl, one object per answer: {row, desirable, loss, log_prob, reference_log_prob,
// prompt, completion, ids}; null stands for a number that is not finite or not known. A file that is there is never
// overwritten: the next free name N-2, N-3 … is taken.
//
// Errors: [rlalgo.trainer.31] loss or gradient of a step is not finite; the weights are untouched.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/decode.hpp>
#include <rlalgo/loss/concept.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/clip.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/sampler/rows.hpp>
#include <rlalgo/tensor/masked.hpp>

namespace rlalgo::trainer {

template <class Row>
struct OffendingRow {
  const Row* row = nullptr;
  double loss = 0.0;      // of its pair, or of itself
  double log_prob = 0.0;  // Σ over the completion
};

// The rows whose own loss, or its gradient, is not finite; each example is scored again by itself, by policy and reference of `scorers`, the latter
// where the loss reads it and rows do not bring it. The gradients of the parameters are lost.
template <sampler::BlamedRows R, loss::Loss L>
[[nodiscard]] std::vector<OffendingRow<typename R::Row>> find_offending(const L& loss,
                                                                        std::span<const typename R::Row* const> rows,
                                                                        const loss::Counts& counts,
                                                                        const sampler::Scorers& scorers) {
  constexpr std::size_t unit = R::kind.unit;
  const std::vector<model::Parameter> parameters = scorers.policy.parameters();
  std::vector<OffendingRow<typename R::Row>> found;
  for (std::size_t at = 0; at + unit <= rows.size(); at += unit) {
    const auto example = rows.subspan(at, unit);
    const model::Scores scores =
        scorers.policy.score(R::tree(example, L::needs),
                             {.entropy_gradient = loss::active_needs(loss).entropy, .collision = L::needs.collision});
    loss::Scored scored = R::collate(example, scores, L::needs);
    if constexpr (sampler::ReferencedRows<R>)
      scored = sampler::with_reference(std::move(scored), R::reference(example, scorers, L::needs));
    const tensor::Tensor value = loss(scored, counts).value;
    const double number = value.template item<double>();
    std::vector<tensor::Tensor> gradients;
    if (std::isfinite(number) && value.requires_grad()) {
      for (const model::Parameter& p : parameters) p.value.mutable_grad() = tensor::Tensor();
      value.backward();
      for (const model::Parameter& p : parameters)
        if (p.value.grad().defined()) gradients.push_back(p.value.grad());
    }
    if (std::isfinite(number) && std::isfinite(optim::clip_grad_norm(gradients, 0.0))) continue;
    const tensor::Tensor sums = tensor::row_sum(tensor::masked(scored.log_prob.detach(), scored.mask), scored.row,
                                                static_cast<std::int64_t>(unit));
    for (std::size_t k = 0; k < unit; ++k)
      found.push_back({example[k], number, sums.select(0, static_cast<std::int64_t>(k)).template item<double>()});
  }
  return found;
}

namespace detail {

inline std::filesystem::path free_name(const std::filesystem::path& directory, std::int64_t step) {
  const std::string stem = "offending_rows-step-" + std::to_string(step);
  std::filesystem::path path = directory / (stem + ".jsonl");
  for (int n = 2; os::exists(path); ++n) path = directory / (stem + "-" + std::to_string(n) + ".jsonl");
  return path;
}

}  // namespace detail

// Saves the rows and raises. `step` is 1-based; `examined`: how many rows were looked at; `what` is not finite.
template <sampler::BlamedRows R>
[[noreturn]] void raise_offending_rows(const std::string& what, const std::vector<OffendingRow<typename R::Row>>& rows,
                                       std::size_t examined, std::int64_t step, const std::filesystem::path& directory,
                                       const data::Decode& decode) {
  std::string text, names;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t number = R::dataset_row(*rows[i].row);
    const data::Json line = R::describe(*rows[i].row, rows[i].loss, rows[i].log_prob, decode);
    text += line.dump(-1, ' ', false, data::Json::error_handler_t::replace) + "\n";
    const std::string name = std::to_string(number);
    if (i < 10 && (i == 0 || R::dataset_row(*rows[i - 1].row) != number)) names += (names.empty() ? "" : ", ") + name;
  }
  std::filesystem::create_directories(directory);
  const std::filesystem::path path = detail::free_name(directory, step);
  os::write_file(path, text);
  core::raise("trainer", 31,
              {.what = "the " + what + " is not finite",
               .found = rows.empty() ? "no single row of " + std::to_string(examined) + " is the cause"
                                     : std::to_string(rows.size()) + " of " + std::to_string(examined) +
                                           " answers, dataset rows " + names + (rows.size() > 10 ? " …" : ""),
               .where = "step " + std::to_string(step),
               .remedy = "they are saved in " + path.string() +
                         "; the weights of this step are untouched: remove the rows, or lower learning_rate and resume "
                         "from the last checkpoint"});
}

}  // namespace rlalgo::trainer
