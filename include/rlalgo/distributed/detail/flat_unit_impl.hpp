// Definitions of flat_unit.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/core/StorageImpl.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

// The memory of `value` is that of `memory`, of as many bytes; undefined: none.
inline void set_memory(const Tensor& value, const Tensor& memory) {
  c10::StorageImpl* const storage = value.storage().unsafeGetStorageImpl();
  if (!memory.defined()) {
    storage->set_data_ptr_noswap(c10::DataPtr(nullptr, value.device()));
    storage->set_nbytes(0);
    return;
  }
  auto owner = std::make_unique<Tensor>(memory);
  void* const data = owner->mutable_data_ptr();
  storage->set_data_ptr_noswap(c10::DataPtr(
      data, owner.release(), [](void* held) { delete static_cast<Tensor*>(held); }, value.device()));
  storage->set_nbytes(memory.nbytes());
}

[[noreturn]] inline void raise_not_flat(const std::string& name, const std::string& found) {
  core::raise("distributed", 12,
              {.what = "a weight cannot be sharded",
               .found = name + ": " + found,
               .expected = "contiguous, in memory of its own, on the device of those beside it"});
}

}  // namespace detail

RLALGO_INLINE FlatUnit::FlatUnit(std::vector<Entry> entries, int rank, int ranks, bool resident,
                                 std::vector<int> owners)
    : entries_(std::move(entries)),
      rank_(rank),
      trained_(entries_.front().value.requires_grad()),
      resident_(resident),
      owned_(!owners.empty()),
      dtype_(entries_.front().value.scalar_type()) {
  const auto step = static_cast<std::int64_t>(64 / c10::elementSize(dtype_));
  const auto rounded = [&](std::int64_t count) { return (count + step - 1) / step * step; };
  std::vector<std::int64_t> ends(owned_ ? static_cast<std::size_t>(ranks) : 1, 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const Tensor& value = entry.value;
    if (!value.is_contiguous()) detail::raise_not_flat(entry.name, "gaps");
    if (value.storage_offset() != 0 || value.storage().nbytes() != value.nbytes())
      detail::raise_not_flat(entry.name, "a part of another tensor");
    if (value.scalar_type() != dtype_ || value.requires_grad() != trained_ ||
        value.device() != entries_.front().value.device())
      detail::raise_not_flat(entry.name, "of another kind than those beside it");
    std::int64_t& end = ends[owned_ ? static_cast<std::size_t>(owners[i]) : 0];
    entry.offset = end;
    end = rounded(end + value.numel());
  }
  shard_ = owned_ ? *std::max_element(ends.begin(), ends.end()) : rounded((ends.front() + ranks - 1) / ranks);
  if (owned_)
    for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].offset += owners[i] * shard_;
  elements_ = shard_ * ranks;
  const c10::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(dtype_).device(entries_.front().value.device());
  if (!resident_) {
    own_ = tensor::zeros({shard_}, options);
    keep();
    clear();
    return;
  }
  const Tensor memory = tensor::zeros({elements_}, options);
  for (const Entry& entry : entries_)
    memory.narrow(0, entry.offset, entry.value.numel()).copy_(entry.value.detach().view({-1}));
  place(memory);
  own_ = memory.narrow(0, rank_ * shard_, shard_);
}

RLALGO_INLINE std::optional<Piece> FlatUnit::piece(const Entry& entry, int rank) const {
  const std::int64_t first = rank * shard_;
  const std::int64_t begin = std::max(first, entry.offset);
  const std::int64_t end = std::min(first + shard_, entry.offset + entry.value.numel());
  if (begin >= end) return std::nullopt;
  return Piece{begin - entry.offset, end - entry.offset, begin - first};
}

RLALGO_INLINE void FlatUnit::place(Tensor whole) {
  whole_ = std::move(whole);
  for (const Entry& entry : entries_)
    detail::set_memory(entry.value, whole_.narrow(0, entry.offset, entry.value.numel()));
}

RLALGO_INLINE Tensor FlatUnit::clear() {
  for (const Entry& entry : entries_) {
    const auto own = owned_ ? piece(entry) : std::nullopt;
    detail::set_memory(entry.value, own ? own_.narrow(0, own->at, own->size()) : Tensor());
  }
  return std::exchange(whole_, Tensor());
}

RLALGO_INLINE void FlatUnit::keep() {
  const c10::NoGradGuard no_grad;
  for (const Entry& entry : entries_)
    if (const auto part = piece(entry))
      own_.narrow(0, part->at, part->size())
          .copy_(entry.value.detach().view({-1}).narrow(0, part->begin, part->size()));
}

RLALGO_INLINE void FlatUnit::take_gradients(const Tensor& flat) {
  const c10::NoGradGuard no_grad;
  std::int64_t end = 0;
  const auto nothing_before = [&](std::int64_t begin) {
    if (begin > end) flat.narrow(0, end, begin - end).zero_();
  };
  for (Entry& entry : entries_) {
    nothing_before(entry.offset);
    end = entry.offset + entry.value.numel();
    const Tensor there = flat.narrow(0, entry.offset, entry.value.numel());
    Tensor& gradient = entry.value.mutable_grad();
    if (gradient.defined())
      there.copy_(gradient.reshape({-1}));
    else
      there.zero_();
    gradient = Tensor();
  }
  nothing_before(elements_);
}

RLALGO_INLINE void FlatUnit::take_own_gradients(const Tensor& shard) {
  const c10::NoGradGuard no_grad;
  shard.zero_();
  for (Entry& entry : entries_) {
    Tensor& gradient = entry.value.mutable_grad();
    const auto own = piece(entry);
    if (own && gradient.defined()) shard.narrow(0, own->at, own->size()).copy_(gradient.reshape({-1}));
    gradient = Tensor();
  }
}

RLALGO_INLINE Tensor FlatMemory::take(const FlatUnit& unit) {
  const at::TensorOptions kind = unit.own().options();
  for (std::size_t i = 0; i < free_.size(); ++i) {
    if (free_[i].numel() != unit.elements() || free_[i].scalar_type() != unit.dtype() ||
        free_[i].device() != kind.device())
      continue;
    Tensor out = std::move(free_[i]);
    free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
    return out;
  }
  return tensor::empty({unit.elements()}, kind);
}

}  // namespace rlalgo::distributed
