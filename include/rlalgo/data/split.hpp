// What happens to rows between loading and training: merge, shuffle, exact deduplication, evaluation split.
//
// Order of use, as in axolotl: load and transform every entry → merge() → deduplicate() → hold_out(). The evaluation
// set is the *last* ⌈f·n⌉ rows of the (already shuffled) merged rows; nothing is shuffled at that point. A duplicate is
// a row with the same canonical JSON text (keys sorted); the first occurrence stays.
//
// Errors: [rlalgo.data.13] the held-out fraction is not in (0, 1), or leaves no row to train on.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/numpy_permutation.hpp>
#include <rlalgo/data/table.hpp>

namespace rlalgo::data {

[[nodiscard]] Table shuffled(const Table& table, std::uint64_t seed);

struct MergeConfig {
  std::uint64_t seed = 42;
  bool shuffle = true;          // shuffle_merged_datasets
  bool shuffle_before = false;  // shuffle_before_merging_datasets; only with several tables
};

// One table of all rows, in the order given, then shuffled. Columns are unified.
[[nodiscard]] Table merge(const std::vector<Table>& tables, const MergeConfig& config);

namespace detail {

std::string canonical_text(const Json& row);

Table rows_not_in(const Table& table, std::unordered_set<std::string>& seen);

}  // namespace detail

[[nodiscard]] Table deduplicated(const Table& table);

// `evaluation` without its own duplicates and without rows that are in `train`.
[[nodiscard]] Table deduplicated_against(const Table& train, const Table& evaluation);

struct HeldOut {
  Table train;
  Table evaluation;
};

[[nodiscard]] HeldOut hold_out(const Table& table, double fraction);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/split_impl.hpp>
#endif
