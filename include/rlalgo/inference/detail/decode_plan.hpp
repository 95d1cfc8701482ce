// The memory of a decoding pass of so many rows and pages each, and the graphs that were recorded in it (decode_pass.hpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/inference/detail/paged_rows.hpp>
#include <rlalgo/inference/detail/pass_adapters.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

// Of a pass of several adapters: AdapterBank::others(), and of each row the number of its place.
struct BankRows {
  tensor::Tensor others;
  std::span<const std::int64_t> places;
};

struct DecodePlan {
  // What a graph of some weights has the addresses of.
  struct Reads {
    const void* arena = nullptr;
    std::int64_t angles = -1;  // positions in the tables, which are made anew where they grow
    bool operator==(const Reads&) const = default;
  };
  struct Recorded {
    std::uint64_t weights = 0;  // places_of() them
    std::shared_ptr<void> graph;
    Reads reads;             // of the last pass
    std::thread::id thread;  // that computed it: libraries made there what they need
  };
  static constexpr std::size_t most_recorded = 8;  // graphs of a plan

  std::int64_t rows = 0, pages = 0;
  tensor::Tensor input;  // [5·rows + rows·pages] int64: what follows, one behind the other
  tensor::Tensor ids, positions, page, place, adapter, table;  // [rows] each, [rows, pages]
  tensor::Tensor x, normed, last;                              // [rows, H]
  tensor::Tensor joined, q, attended;                          // [rows, (n + 2 kv)·d], [rows, n·d] ×2
  tensor::Tensor gate_up, active;                              // [rows, 2I], [rows, I]
  tensor::Tensor rank;                                         // [rows, r] of adapters, or undefined
  tensor::Tensor hidden, scale;                                // [rows, units] of a bank, and ν of rows: [rows · out]
  tensor::Tensor partial, arrived;                             // of attention
  std::vector<Recorded> recorded;                              // the last used one last

  DecodePlan(const model::DecoderConfig& config, at::Device device, std::int64_t row_count, std::int64_t page_count)
      : rows(row_count), pages(page_count) {
    const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
    const auto memory = [&](std::int64_t width) { return tensor::empty({rows, width}, options); };
    const std::int64_t n = config.heads, kv = config.kv_heads, d = config.head_dim, inner = config.intermediate_size;
    input = tensor::zeros({5 * rows + rows * pages}, options.dtype(at::kLong));
    const auto part = [&](std::int64_t i) { return input.narrow(0, i * rows, rows); };
    ids = part(0);
    positions = part(1);
    page = part(2);
    place = part(3);
    adapter = part(4);
    table = input.narrow(0, 5 * rows, rows * pages);
    x = memory(config.hidden_size);
    normed = memory(config.hidden_size);
    last = memory(config.hidden_size);
    joined = memory((n + 2 * kv) * d);
    q = memory(n * d);
    attended = memory(n * d);
    gate_up = memory(2 * inner);
    active = memory(inner);
    partial = tensor::empty(
        {cuda::decode_partial_floats(rows, static_cast<int>(n), static_cast<int>(d), static_cast<int>(pages))},
        options.dtype(at::kFloat));
    arrived = tensor::zeros({cuda::decode_counters(rows, static_cast<int>(n))}, options.dtype(at::kInt));
  }

  // For what adapters need between their products. A graph that has other addresses is forgotten.
  void make_room(std::span<const LayerAdapters> adapters, const BankRows& bank) {
    std::int64_t ranks = 0, scaled = 0;
    for (const LayerAdapters& one : adapters) {
      ranks = std::max(ranks, one.rank());
      scaled = std::max(scaled, one.scaled());
    }
    const auto grow = [&](tensor::Tensor& memory, std::int64_t width, at::ScalarType type) {
      if (width == 0 || (memory.defined() && memory.numel() >= rows * width)) return;
      memory = tensor::empty({rows, width}, x.options().dtype(type));
      recorded.clear();
    };
    grow(rank, ranks, at::kBFloat16);
    if (!bank.others.defined()) return;
    grow(hidden, bank.others.size(1), at::kBool);
    grow(scale, scaled, at::kFloat);
  }

  // Of these weights; the one that was used longest ago makes room for it.
  [[nodiscard]] Recorded& recorded_of(std::uint64_t weights) {
    const auto found =
        std::find_if(recorded.begin(), recorded.end(), [&](const Recorded& one) { return one.weights == weights; });
    if (found != recorded.end()) {
      std::rotate(found, found + 1, recorded.end());
      return recorded.back();
    }
    if (recorded.size() == most_recorded) recorded.erase(recorded.begin());
    return recorded.emplace_back(Recorded{.weights = weights, .graph = nullptr, .reads = {}});
  }

  // One copy from the host, by way of `numbers`. `adapters`: of each row the number of its place, or nothing.
  void fill(std::span<const Row> all, std::span<const std::int64_t> adapters, std::vector<std::int64_t>& numbers) {
    const auto bucket = static_cast<std::size_t>(rows), width = static_cast<std::size_t>(pages);
    numbers.assign(5 * bucket + bucket * width, 0);
    std::int64_t* const to_ids = numbers.data();
    std::int64_t *const to_positions = to_ids + bucket, *const to_page = to_positions + bucket,
                        *const to_place = to_page + bucket, *const to_adapter = to_place + bucket,
                        *const to_table = to_adapter + bucket;
    std::fill(to_positions, to_page, -1);
    std::copy(adapters.begin(), adapters.end(), to_adapter);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Row& row = all[i];
      to_ids[i] = row.token;
      to_positions[i] = row.position;
      const std::int64_t used = pages_of(row);
      for (std::int64_t p = 0; p < used; ++p)
        to_table[i * width + static_cast<std::size_t>(p)] = TensorPages::number(row.pages[p]);
      to_page[i] = to_table[i * width + static_cast<std::size_t>(used - 1)];
      to_place[i] = row.position % cpu::page_positions;
    }
    tensor::copy_from_host(input, std::span<const std::int64_t>(numbers));
  }
};

}  // namespace rlalgo::inference::detail
