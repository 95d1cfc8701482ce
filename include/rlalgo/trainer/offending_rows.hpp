// Which rows of preference data made a loss that is not finite: saved for inspection, named in the error.
//
// output_dir/offending_rows-step-N.jsonl, one object per answer: {row, desirable, loss, log_prob, reference_log_prob,
// prompt, completion, ids}; null stands for a number that is not finite or not known. A file that is there is never
// overwritten: the next free name N-2, N-3 … is taken.
//
// Errors: [rlalgo.trainer.31] the loss of a step is not finite; the weights are untouched.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/answer.hpp>
#include <rlalgo/trainer/pair_extremes.hpp>

namespace rlalgo::trainer {

struct OffendingRow {
  const data::Answer* answer = nullptr;
  double loss = 0.0;      // of its pair, or of itself
  double log_prob = 0.0;  // Σ over the completion
};

namespace detail {

inline data::Json finite_or_null(double value) { return std::isfinite(value) ? data::Json(value) : data::Json(); }

inline std::filesystem::path free_name(const std::filesystem::path& directory, std::int64_t step) {
  const std::string stem = "offending_rows-step-" + std::to_string(step);
  std::filesystem::path path = directory / (stem + ".jsonl");
  for (int n = 2; std::filesystem::exists(path); ++n) path = directory / (stem + "-" + std::to_string(n) + ".jsonl");
  return path;
}

}  // namespace detail

// Saves the rows and raises. `step` is 1-based; `examined`: rows of the micro-batch.
[[noreturn]] inline void raise_offending_rows(const std::vector<OffendingRow>& rows, std::size_t examined,
                                              std::int64_t step, const std::filesystem::path& directory,
                                              const Decode& decode) {
  std::string text, names;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const data::Answer& a = *rows[i].answer;
    const data::Json line = {{"row", a.row},
                             {"desirable", a.desirable},
                             {"loss", detail::finite_or_null(rows[i].loss)},
                             {"log_prob", detail::finite_or_null(rows[i].log_prob)},
                             {"reference_log_prob", detail::finite_or_null(a.reference_row)},
                             {"prompt", readable(decode, a.prompt())},
                             {"completion", readable(decode, a.completion())},
                             {"ids", a.ids}};
    text += line.dump(-1, ' ', false, data::Json::error_handler_t::replace) + "\n";
    const std::string name = std::to_string(a.row);
    if (i < 10 && (i == 0 || rows[i - 1].answer->row != a.row)) names += (names.empty() ? "" : ", ") + name;
  }
  std::filesystem::create_directories(directory);
  const std::filesystem::path path = detail::free_name(directory, step);
  core::write_file(path, text);
  core::raise("trainer", 31,
              {.what = "the loss is not finite",
               .found = rows.empty() ? "no single row of the micro-batch is the cause"
                                     : std::to_string(rows.size()) + " of " + std::to_string(examined) +
                                           " answers, dataset rows " + names + (rows.size() > 10 ? " …" : ""),
               .where = "step " + std::to_string(step),
               .remedy = "they are saved in " + path.string() +
                         "; the weights of this step are untouched: remove the rows, or lower learning_rate and resume "
                         "from the last checkpoint"});
}

}  // namespace rlalgo::trainer
