// One of `count` equal parts of a dataset: the rows are shuffled with `seed`, and the parts follow each other; where they
// cannot be equal the first are one row longer.
//
// Source: axolotl `_load_and_process_single_dataset` (shards, shards_idx), Hugging Face datasets `shuffle`, `shard`.
// Errors: [rlalgo.data.5] a part without rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/numpy_permutation.hpp>

namespace rlalgo::data {

struct Shard {
  std::int64_t count = 0;  // 0: the rows are not divided
  std::int64_t index = 0;  // from 0
  [[nodiscard]] bool whole() const noexcept { return count == 0; }
};

// Which of `rows` rows a shard has, in its order. `where` names the dataset in errors.
[[nodiscard]] inline std::vector<std::size_t> rows_of_shard(std::size_t rows, const Shard& shard, std::uint64_t seed,
                                                            const std::string& where = "datasets[]") {
  const auto count = static_cast<std::size_t>(shard.count), index = static_cast<std::size_t>(shard.index);
  const std::vector<std::size_t> order = numpy_permutation(rows, seed);
  const std::size_t share = rows / count, longer = rows % count;
  const std::size_t begin = share * index + std::min(index, longer);
  const std::size_t end = begin + share + (index < longer ? 1 : 0);
  if (begin == end)
    core::raise("data", 5,
                {.what = "a shard has no rows",
                 .found = std::to_string(rows) + " rows in " + std::to_string(count) + " shards, shard " +
                          std::to_string(index),
                 .where = where,
                 .remedy = "lower shards, or choose another shards_idx"});
  return {order.begin() + static_cast<std::ptrdiff_t>(begin), order.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace rlalgo::data
