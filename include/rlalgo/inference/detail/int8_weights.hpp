// Gives the matrices of a view their copies in 8 bits, and knows those that still serve another view: adapters over one base share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/core/memory_stretch.hpp>
#include <rlalgo/core/thread_pool.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/detail/int8_matrix.hpp>

namespace rlalgo::inference::detail {

class Int8Weights {
 public:
  // Whose memory a view must hold for as long as it is read.
  using Held = std::vector<std::shared_ptr<const std::byte>>;

  // For every product of `view`: what a living view of the same tensor has, else made here. Tensors of living views do not change.
  [[nodiscard]] Held quantize(DecoderView& view, core::ThreadPool& pool) {
    std::vector<Matrix*> matrices{&view.head};
    for (LayerView& layer : view.layers)
      for (Matrix* matrix : {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        matrices.push_back(matrix);
    std::erase_if(known_, [](const auto& one) { return one.second.expired(); });
    Held held;
    std::vector<Matrix*> missing;
    std::size_t bytes = 0;
    for (Matrix* matrix : matrices) {
      const auto known = known_.find(matrix->data);
      if (known != known_.end()) {
        matrix->int8 = held.emplace_back(known->second.lock()).get();
      } else {
        missing.push_back(matrix);
        bytes += Int8Layout(matrix->columns).bytes(matrix->rows);
      }
    }
    view.int8 = true;
    if (missing.empty()) return held;
    const auto stretch = std::make_shared<core::MemoryStretch>(bytes);
    std::byte* next = stretch->begin();
    std::vector<Part> parts;
    for (Matrix* matrix : missing) {
      matrix->int8 = next;
      known_[matrix->data] = held.emplace_back(stretch, next);
      const std::int64_t blocks = Int8Layout::blocks(matrix->rows);
      for (std::int64_t begin = 0; begin < blocks; begin += blocks_of_a_task)
        parts.push_back({matrix, begin, std::min(blocks, begin + blocks_of_a_task), next});
      next += Int8Layout(matrix->columns).bytes(matrix->rows);
    }
    pool.run(static_cast<std::uint32_t>(parts.size()), [&](std::uint32_t part, int) { pack(parts[part]); });
    return held;
  }

 private:
  static constexpr std::int64_t blocks_of_a_task = 16;
  struct Part {
    const Matrix* matrix;
    std::int64_t begin, end;  // blocks
    std::byte* out;
  };

  static void pack(const Part& part) {
    const Matrix& m = *part.matrix;
    if (m.bf16)
      pack_int8(static_cast<const std::uint16_t*>(m.data), m.rows, m.columns, part.begin, part.end, part.out);
    else
      pack_int8(static_cast<const float*>(m.data), m.rows, m.columns, part.begin, part.end, part.out);
  }

  std::map<const void*, std::weak_ptr<const std::byte>> known_;  // by where the tensor lies
};

}  // namespace rlalgo::inference::detail
