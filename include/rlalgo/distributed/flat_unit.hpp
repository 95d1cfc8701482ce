// Tensors laid end to end and held in equal shards by the ranks of a team: the layout of sharded weights, and where a tensor's
// memory is.
//
//   tensors   w₀ | pad | w₁ | pad | …  | pad          each begins at a multiple of 64 bytes
//   shards    rank 0   | rank 1   | …                 of `shard` elements each; a tensor may lie in several
//
// Source: Rajbhandari et al., "ZeRO", arXiv 1910.02054; the flat parameter of Zhao et al., "PyTorch FSDP", arXiv 2304.11277,
// section 3.2.1.
// The tensors stay the same objects: only their memory comes and goes (place, clear), for all that share it. One dtype, and
// all trained or all not.
// Errors: [rlalgo.distributed.12] a tensor that cannot be held so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed {

using tensor::Tensor;

// Elements of a tensor, from `begin` to before `end` of its flat order, which begin at `at` in a rank's shard.
struct Piece {
  std::int64_t begin = 0, end = 0, at = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

class FlatUnit {
 public:
  struct Entry {
    std::string name;
    Tensor value;
    bool weight_decay = true;
    std::int64_t offset = 0;  // in the unit, elements
  };

  // `entries`: tensors of one dtype whose memory is whole and nobody else's. Takes over this rank's shard; if `resident`, the
  // tensors lie in one whole from here on, and the shard is a part of it, else their memory is gone.
  // `owners`: instead of equal shards, the rank that has each entry, ascending: tensors lie whole in the shards of their ranks, and
  // those of this rank in its own where no whole is.
  FlatUnit(std::vector<Entry> entries, int rank, int ranks, bool resident, std::vector<int> owners = {});

  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }
  [[nodiscard]] bool trained() const { return trained_; }
  [[nodiscard]] bool resident() const { return resident_; }
  [[nodiscard]] c10::ScalarType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t shard() const { return shard_; }        // elements of a rank
  [[nodiscard]] std::int64_t elements() const { return elements_; }  // of all, padding included

  // [shard]
  [[nodiscard]] const Tensor& own() const { return own_; }
  // [elements], or undefined: the memory of the tensors.
  [[nodiscard]] const Tensor& whole() const { return whole_; }

  // What of an entry lies in a rank's shard.
  [[nodiscard]] std::optional<Piece> piece(const Entry& entry, int rank) const;
  [[nodiscard]] std::optional<Piece> piece(const Entry& entry) const { return piece(entry, rank_); }

  // The tensors lie in `whole` [elements] from now on.
  void place(Tensor whole);
  // They lie nowhere, or in this rank's shard; returns where they lay.
  Tensor clear();
  // Copies what a tensor holds into this rank's shard.
  void keep();

  // Their gradients in the unit's layout, 0 where there is none, into `flat` [elements]; drops them.
  void take_gradients(const Tensor& flat);
  // The same of this rank's shard, into `shard`, of any dtype; with `owners`.
  void take_own_gradients(const Tensor& shard);

 private:
  std::vector<Entry> entries_;
  int rank_;
  bool trained_, resident_, owned_;
  c10::ScalarType dtype_;
  std::int64_t shard_ = 0, elements_ = 0;
  Tensor own_, whole_;
};

// Memory for units that are whole for a while, used over and over.
class FlatMemory {
 public:
  [[nodiscard]] Tensor take(const FlatUnit& unit);  // room for all of it
  void give(Tensor flat) {
    if (flat.defined()) free_.push_back(std::move(flat));
  }
  void drop() { free_.clear(); }

 private:
  std::vector<Tensor> free_;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/flat_unit_impl.hpp>
#endif
