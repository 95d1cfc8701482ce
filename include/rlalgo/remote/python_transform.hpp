// A user's own dataset transform from a Python file (axolotl's convention), run in a separate Python process.
//
// `type: module.function` names a function that is called once, `function(cfg)` (and `dataset_idx=…`, where it takes
// that), and returns a row function, or (row function, options). The row function gets a row as a dict and returns the
// columns that are to change (or the row itself); one with a parameter `tokenizer` gets transformers' AutoTokenizer of
// the run's tokenizer directory, or keeps the parameter's default where Python has no transformers. Options: `remove_columns`, a list or "__all__", dropped before the new columns are put
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
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

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
  PythonTransform(const std::string& function, const Json& cfg, PythonTransformConfig config);

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
           std::size_t begin = 0);

  [[noreturn]] void fail(const detail::PythonProcess::Failure& failure, double seconds, const std::string& where) const;

  std::string function_;
  PythonTransformConfig config_;
  detail::PythonProcess process_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/python_transform_impl.hpp>
#endif
