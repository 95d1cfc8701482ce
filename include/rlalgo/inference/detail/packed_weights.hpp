// Gives the matrices of a view copies that kernels read better: in 8 bits (quantization.hpp), or in blocks of sixteen rows where the CPU's
// kernels have that for bfloat16. Knows those that still serve another view: adapters over one base share it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/cpu/best_kernels.hpp>
#include <rlalgo/cpu/int8_matrix.hpp>
#include <rlalgo/inference/detail/decoder_view.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/os/memory_stretch.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference::detail {

class PackedWeights {
 public:
  // Whose memory a view must hold for as long as it is read.
  using Held = std::vector<std::shared_ptr<const std::byte>>;

  // `blocks`: bfloat16 in blocks, where it is not quantized.
  PackedWeights(Quantization quantization, bool blocks)
      : int8_(quantization == Quantization::int8), blocks_(blocks && kernels_.blocks_bf16 != nullptr) {}

  // For every product of `view` that is to have one: what a living view of the same tensor has, else made here. Tensors of living views
  // do not change.
  [[nodiscard]] Held pack(DecoderView& view, os::ThreadPool& pool) {
    std::erase_if(known_, [](const auto& one) { return one.second.expired(); });
    view.int8 = int8_;
    if (int8_)
      view.packed_linear = kernels_.linear_int8;
    else if (blocks_)
      view.packed_linear = kernels_.blocks_bf16->linear;
    Held held;
    std::vector<Matrix*> missing;
    std::size_t bytes = 0;
    for (Matrix* matrix : products(view)) {
      const auto known = known_.find(matrix->data);
      if (known != known_.end()) {
        matrix->packed = held.emplace_back(known->second.lock()).get();
      } else {
        missing.push_back(matrix);
        bytes += bytes_of(*matrix);
      }
    }
    if (missing.empty()) return held;
    // What views hold is this, and it dies with the last of them: the room itself outlives it.
    const auto copies = std::make_shared<std::shared_ptr<os::MemoryStretch>>(room_for(bytes));
    std::byte* next = (*copies)->begin();
    std::vector<Part> parts;
    for (Matrix* matrix : missing) {
      matrix->packed = next;
      known_[matrix->data] = held.emplace_back(copies, next);
      const std::int64_t blocks = cpu::blocks_of(matrix->rows);
      for (std::int64_t begin = 0; begin < blocks; begin += blocks_of_a_task)
        parts.push_back({matrix, begin, std::min(blocks, begin + blocks_of_a_task), next});
      next += bytes_of(*matrix);
    }
    pool.run(static_cast<std::uint32_t>(parts.size()), [&](std::uint32_t part, int) { write(parts[part]); });
    return held;
  }

  // Gives back memory that no view holds.
  void release() { room_ = nullptr; }

 private:
  static constexpr std::int64_t blocks_of_a_task = 16;
  struct Part {
    const Matrix* matrix;
    std::int64_t begin, end;  // blocks
    std::byte* out;
  };

  [[nodiscard]] std::vector<Matrix*> products(DecoderView& view) const {
    std::vector<Matrix*> out;
    const auto add = [&](Matrix& matrix) {
      if (matrix.data != nullptr && (int8_ || (matrix.bf16 && blocks_))) out.push_back(&matrix);
    };
    for (LayerView& layer : view.layers) layer.each_map(add);
    add(view.head);
    return out;
  }

  [[nodiscard]] std::size_t bytes_of(const Matrix& m) const {
    const std::int64_t bytes =
        int8_ ? cpu::Int8Layout(m.columns).block_bytes() : kernels_.blocks_bf16->block_bytes(m.columns);
    return static_cast<std::size_t>(cpu::blocks_of(m.rows) * bytes);
  }

  void write(const Part& part) const {
    const Matrix& m = *part.matrix;
    const auto* const bf16 = static_cast<const std::uint16_t*>(m.data);
    if (!int8_)
      kernels_.blocks_bf16->pack(bf16, m.rows, m.columns, part.begin, part.end, part.out);
    else if (m.bf16)
      cpu::pack_int8(bf16, m.rows, m.columns, part.begin, part.end, part.out);
    else
      cpu::pack_int8(static_cast<const float*>(m.data), m.rows, m.columns, part.begin, part.end, part.out);
  }

  // The memory that copies had last where they are gone: new memory is cleared by the system, which takes as long as packing does.
  [[nodiscard]] std::shared_ptr<os::MemoryStretch> room_for(std::size_t bytes) {
    if (room_ == nullptr || room_.use_count() > 1 || room_->size() < bytes || room_->size() / 2 > bytes)
      room_ = std::make_shared<os::MemoryStretch>(bytes);
    return room_;
  }

  const cpu::Kernels& kernels_ = cpu::best_kernels();
  bool int8_, blocks_;
  std::map<const void*, std::weak_ptr<const std::byte>> known_;  // by where the tensor lies
  std::shared_ptr<os::MemoryStretch> room_;
};

}  // namespace rlalgo::inference::detail
