// A user's own dataset transform from a Python file (axolotl's convention), run in a separate Python process.
//
// `type: module.function` names a function that is called once, `function(cfg)` (and `dataset_idx=…`, where it takes
// that), and returns a row function, or (row function, options). The row function gets a row as a dict and returns the
// columns that are to change (or the row itself); one with a parameter `tokenizer` gets transformers' AutoTokenizer of
// the run's tokenizer directory. Options: `remove_columns`, a list or "__all__", dropped before the new columns are put
// in; `batched: True`, the function gets columns of many rows and may return a different number of rows.
//
// Rows cross in chunks of `chunk_rows`, each under `call_seconds`; then the process and all it started are killed. What
// functions print goes to stderr.
//
// Errors: [rlalgo.remote.40] Python cannot be started; [rlalgo.remote.41] module or function not found, or its import
// or the call with cfg failed; [rlalgo.remote.42] the row function raised, with row and traceback; [rlalgo.remote.43]
// it returned no dict, or columns of different lengths; [rlalgo.remote.44] no answer in time; [rlalgo.remote.45] the
// process died, or answered outside the protocol.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/table.hpp>
#include <rlalgo/remote/detail/dataset_transform_source.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>

namespace rlalgo::remote {

struct PythonTransformConfig {
  std::string python = {};                               // program; empty: $RLALGO_PYTHON, else python3 from PATH
  std::vector<std::filesystem::path> search_paths = {};  // where modules are found first; empty: the cwd
  double start_seconds = 120.0;                          // to start Python, import the module and call the function
  double call_seconds = 300.0;                           // for one chunk of rows
  std::size_t chunk_rows = 1000;
  std::filesystem::path tokenizer = {};  // directory, for row functions with a parameter `tokenizer`
  std::int64_t dataset_index = 0;
};

class PythonTransform {
  using Json = data::Json;

 public:
  // Imports `module.function` and calls it with `cfg` (an object: the run's keys).
  PythonTransform(const std::string& function, const Json& cfg, PythonTransformConfig config)
      : function_(function), config_(std::move(config)) {
    if (const int error = process_.start(config_.python, detail::dataset_transform_source); error != 0)
      core::raise("remote", 40,
                  {.what = "Python for the dataset transform cannot be started",
                   .found = std::strerror(error),
                   .where = process_.program(),
                   .remedy = "install python3, or set RLALGO_PYTHON to one"});
    (void)ask({{"op", "load"},
               {"function", function},
               {"paths", detail::module_paths(config_.search_paths)},
               {"cfg", cfg},
               {"dataset_idx", config_.dataset_index},
               {"tokenizer", config_.tokenizer.string()}},
              config_.start_seconds, "datasets[].type");
  }

  // The table that the transform makes of `in`; a row keeps its origin, rows of a batched function have that of their
  // batch's first.
  [[nodiscard]] data::Table operator()(const data::Table& in) {
    data::Table out;
    for (std::size_t begin = 0; begin < in.size(); begin += config_.chunk_rows) {
      const std::size_t end = std::min(in.size(), begin + config_.chunk_rows);
      Json rows = Json::array();
      for (std::size_t i = begin; i < end; ++i) rows.push_back(in.row(i));
      Json answer = ask({{"op", "rows"}, {"rows", std::move(rows)}}, config_.call_seconds, in.where(begin), &in, begin);
      Json& made = answer["rows"];
      if (!made.is_array()) fail(process_.unreadable(answer.dump()), 0.0, in.where(begin));
      const bool same = made.size() == end - begin;
      for (std::size_t i = 0; i < made.size(); ++i) out.append(std::move(made[i]), in.origin(same ? begin + i : begin));
    }
    out.unify_columns();
    return out;
  }

 private:
  Json ask(const Json& question, double seconds, const std::string& where, const data::Table* rows = nullptr,
           std::size_t begin = 0) {
    auto result = process_.ask(question, seconds);
    if (Json* answer = std::get_if<Json>(&result)) return std::move(*answer);
    const auto& failure = std::get<detail::PythonProcess::Failure>(result);
    const std::size_t row = failure.answer.is_object() ? begin + failure.answer.value("row", std::size_t{0}) : begin;
    fail(failure, seconds, rows != nullptr && row < rows->size() ? rows->where(row) : where);
  }

  [[noreturn]] void fail(const detail::PythonProcess::Failure& failure, double seconds,
                         const std::string& where) const {
    using Trouble = detail::PythonProcess::Trouble;
    const std::string the_transform = "the dataset transform '" + function_ + "' ";
    if (failure.trouble == Trouble::late)
      core::raise("remote", 44,
                  {.what = the_transform + "did not answer in time",
                   .expected = "an answer within " + std::to_string(static_cast<std::int64_t>(seconds)) + " s",
                   .where = where,
                   .remedy = "make it faster; its process was killed"});
    if (failure.trouble == Trouble::ended)
      core::raise("remote", 45,
                  {.what = "the Python process of " + the_transform + "ended",
                   .found = failure.found,
                   .where = where,
                   .remedy = "what it printed is above"});
    if (failure.trouble == Trouble::unreadable)
      core::raise("remote", 45,
                  {.what = "the Python process of " + the_transform + "answered outside the protocol",
                   .found = failure.found,
                   .remedy = "file descriptor 3 belongs to the trainer: do not write to it"});
    const std::string kind = failure.answer.value("kind", "");
    if (kind == "load")
      core::raise("remote", 41,
                  {.what = "Failed to load dataset transform function for type '" + function_ + "'",
                   .found = failure.found,
                   .where = where});
    if (kind == "shape")
      core::raise("remote", 43,
                  {.what = the_transform + "returned no columns",
                   .found = failure.found,
                   .expected = "a dict of columns, or with batched: True a dict of lists of one length",
                   .where = where});
    core::raise("remote", 42, {.what = the_transform + "failed", .found = failure.found, .where = where});
  }

  std::string function_;
  PythonTransformConfig config_;
  detail::PythonProcess process_;
};

}  // namespace rlalgo::remote
