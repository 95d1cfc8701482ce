// Definitions of python_transform.hpp.
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

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/table.hpp>
#include <rlalgo/remote/detail/dataset_transform_source.hpp>
#include <rlalgo/remote/detail/python_host.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/python_transform.hpp>

namespace rlalgo::remote {

RLALGO_INLINE PythonTransform::PythonTransform(const std::string& function, const Json& cfg,
                                               PythonTransformConfig config)
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

RLALGO_INLINE PythonTransform::Json PythonTransform::ask(const Json& question, double seconds, const std::string& where,
                                                         const data::Table* rows, std::size_t begin) {
  auto result = process_.ask(question, seconds);
  if (Json* answer = std::get_if<Json>(&result)) return std::move(*answer);
  const auto& failure = std::get<detail::PythonProcess::Failure>(result);
  const std::size_t row = failure.answer.is_object() ? begin + failure.answer.value("row", std::size_t{0}) : begin;
  fail(failure, seconds, rows != nullptr && row < rows->size() ? rows->where(row) : where);
}

RLALGO_INLINE void PythonTransform::fail(const detail::PythonProcess::Failure& failure, double seconds,
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

}  // namespace rlalgo::remote
