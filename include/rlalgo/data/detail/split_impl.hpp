// Definitions of split.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/numpy_permutation.hpp>
#include <rlalgo/data/split.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

RLALGO_INLINE Table shuffled(const Table& table, std::uint64_t seed) {
  return table.selected(numpy_permutation(table.size(), seed));
}

RLALGO_INLINE Table merge(const std::vector<Table>& tables, const MergeConfig& config) {
  Table all;
  for (const Table& table : tables) {
    if (config.shuffle_before && tables.size() > 1)
      all.append(shuffled(table, config.seed));
    else
      all.append(table);
  }
  all.unify_columns();
  return config.shuffle ? shuffled(all, config.seed) : all;
}

namespace detail {

RLALGO_INLINE std::string canonical_text(const Json& row) {
  return nlohmann::json(row).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RLALGO_INLINE Table rows_not_in(const Table& table, std::unordered_set<std::string>& seen) {
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < table.size(); ++i)
    if (seen.insert(canonical_text(table.row(i))).second) kept.push_back(i);
  return table.selected(kept);
}

}  // namespace detail

RLALGO_INLINE Table deduplicated(const Table& table) {
  std::unordered_set<std::string> seen;
  return detail::rows_not_in(table, seen);
}

RLALGO_INLINE Table deduplicated_against(const Table& train, const Table& evaluation) {
  std::unordered_set<std::string> seen;
  for (const Json& row : train.rows()) seen.insert(detail::canonical_text(row));
  return detail::rows_not_in(evaluation, seen);
}

RLALGO_INLINE HeldOut hold_out(const Table& table, double fraction) {
  if (!(fraction > 0.0 && fraction < 1.0)) {
    core::raise_usage("data", 13,
                      {.what = "val_set_size is not a fraction",
                       .found = std::to_string(fraction),
                       .expected = "a number between 0 and 1, both excluded",
                       .where = "val_set_size"});
  }
  const double wanted = std::ceil(fraction * static_cast<double>(table.size()));
  const std::size_t count = static_cast<std::size_t>(wanted);
  if (count >= table.size()) {
    core::raise("data", 13,
                {.what = "val_set_size leaves no row to train on",
                 .found = std::to_string(table.size()) + " rows, of which " + std::to_string(count) + " are held out",
                 .where = "val_set_size",
                 .remedy = "lower val_set_size or add rows"});
  }
  return {table.slice(0, table.size() - count), table.slice(table.size() - count, table.size())};
}

}  // namespace rlalgo::data
