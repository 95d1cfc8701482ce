// The prompts of a pass for attention in one call (tensor/varlen_attention.hpp): several sequences, each with its rows of the pass and all
// positions up to the last of them, whose keys and values are gathered from pages without what lies behind their end.
//
// Calls are as many as keep what is gathered within AttentionPieces; one sequence is never divided.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/tensor/tensor.hpp>
#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::inference::detail {

// One call.
struct PromptRows {
  std::int64_t first = 0, count = 0;  // its rows of the pass, where they follow each other
  tensor::Tensor rows;                // [count] else; undefined: they do
  // [2K]: where keys, then values stand among the arena's rows of one layer's position, part and page (PromptPlaces), in layer 0.
  tensor::Tensor positions;
  tensor::VarlenSequences sequences;  // scale and window are the layer's
};

// How pages are divided: page, layer, keys or values, position.
struct PromptPlaces {
  std::int64_t layers = 1;     // that keep any
  std::int64_t most_keys = 0;  // of a call

  // From a layer to the next one.
  static constexpr std::int64_t layer_rows = 2 * cpu::page_positions;
};

class PromptLayout {
 public:
  void clear() { calls_.clear(); }

  // Rows [begin, end) of a pass are of one sequence, and follow those before.
  void add(std::span<const Row> rows, std::size_t begin, std::size_t end, const PromptPlaces& places) {
    const std::int64_t keys = rows[end - 1].position + 1, queries = static_cast<std::int64_t>(end - begin);
    if (calls_.empty() || calls_.back().key_ends.back() + keys > places.most_keys) calls_.emplace_back();
    Call& call = calls_.back();
    for (std::size_t i = begin; i < end; ++i) call.rows.push_back(static_cast<std::int64_t>(i));
    call.query_ends.push_back(call.query_ends.back() + static_cast<std::int32_t>(queries));
    call.key_ends.push_back(call.key_ends.back() + static_cast<std::int32_t>(keys));
    call.longest_queries = std::max(call.longest_queries, queries);
    call.longest_keys = std::max(call.longest_keys, keys);
    for (std::int64_t p = 0; p < keys; ++p)
      call.keys.push_back(TensorPages::number(rows[begin].pages[p / cpu::page_positions]) * places.layers *
                              PromptPlaces::layer_rows +
                          p % cpu::page_positions);
  }

  // Behind what is in `numbers`.
  void put(std::vector<std::int64_t>& numbers) {
    for (Call& call : calls_) {
      call.begin = numbers.size();
      numbers.insert(numbers.end(), call.keys.begin(), call.keys.end());
      for (const std::int64_t key : call.keys) numbers.push_back(key + cpu::page_positions);
      // Two numbers of 32 bits in the place of one of 64.
      std::vector<std::int32_t> ends = call.query_ends;
      ends.insert(ends.end(), call.key_ends.begin(), call.key_ends.end());
      for (std::size_t i = 0; i < ends.size(); i += 2) {
        std::int64_t both = 0;
        std::copy_n(reinterpret_cast<const std::byte*>(ends.data() + i), sizeof both,
                    reinterpret_cast<std::byte*>(&both));
        numbers.push_back(both);
      }
      if (!call.follow()) numbers.insert(numbers.end(), call.rows.begin(), call.rows.end());
    }
  }

  // `all`: the numbers on the device.
  [[nodiscard]] std::vector<PromptRows> calls(const tensor::Tensor& all) const {
    std::vector<PromptRows> out;
    for (const Call& call : calls_) {
      const auto keys = static_cast<std::int64_t>(call.keys.size()), begin = static_cast<std::int64_t>(call.begin),
                 sequences = static_cast<std::int64_t>(call.key_ends.size()),
                 count = static_cast<std::int64_t>(call.rows.size());
      const tensor::Tensor ends = all.narrow(0, begin + 2 * keys, sequences).view(at::kInt);
      PromptRows one{
          .first = call.rows.front(), .count = count, .rows = {}, .positions = all.narrow(0, begin, 2 * keys)};
      one.sequences.query_ends = ends.narrow(0, 0, sequences);
      one.sequences.key_ends = ends.narrow(0, sequences, sequences);
      one.sequences.longest_queries = call.longest_queries;
      one.sequences.longest_keys = call.longest_keys;
      if (!call.follow()) one.rows = all.narrow(0, begin + 2 * keys + sequences, count);
      out.push_back(std::move(one));
    }
    return out;
  }

 private:
  struct Call {
    std::vector<std::int64_t> rows, keys;
    std::vector<std::int32_t> query_ends = {0}, key_ends = {0};
    std::int64_t longest_queries = 0, longest_keys = 0;
    std::size_t begin = 0;

    [[nodiscard]] bool follow() const {
      return rows.back() - rows.front() + 1 == static_cast<std::int64_t>(rows.size());
    }
  };

  std::vector<Call> calls_;
};

}  // namespace rlalgo::inference::detail
