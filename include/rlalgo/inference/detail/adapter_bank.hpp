// Adapters over one base, side by side, so that rows of all of them decode in one pass.
//
//   u = x Aᵀ,  u ← 0 in columns of other adapters than the row's,  y ← ν ⊙ y (DoRA; 1 elsewhere),  y += u Bᵀ
//
// Columns come in units of eight ranks, [unit][map of the layer's input][8]: an adapter has units one behind the other from its first pass
// beside others until its view is gone, and is copied into them in place. So what a recorded pass reads stays where it is while adapters
// come and go; it moves when more units are in use than before. A map that an adapter does not have has zeros in A, and so have ranks
// between its own and the next multiple of eight. A base without an adapter is place 0, which has no columns.
//
// A row's numbers are those of its own adapter and of zeros: they differ from those of a pass of one adapter in the order of sums, as far
// as a product over more columns has another.
//
// A bank has at most `most_units` units, in the order in which adapters came; more adapters are banks, and passes, more. One that has
// more than that by itself decodes alone, and so do all of a bank for which there is no memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <rlalgo/inference/detail/pass_adapters.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::inference::detail {

class AdapterBank;

// Where an adapter stands in a bank, as long as anybody holds it.
struct BankPlace {
  std::shared_ptr<AdapterBank> bank;
  std::int64_t first = 0, units = 0;
};

class AdapterBank : public std::enable_shared_from_this<AdapterBank> {
 public:
  static constexpr std::int64_t unit = 8, most_units = 32;

  // `base`: names the weights that its adapters share.
  AdapterBank(std::uint64_t base, std::size_t layers, at::Device device)
      : base_(base), layers_(layers), device_(device) {}

  [[nodiscard]] std::uint64_t base() const { return base_; }
  [[nodiscard]] const std::vector<LayerAdapters>& layers() const { return layers_; }
  // [1 + most_units, most_units]: of each place the units that are not its own.
  [[nodiscard]] const tensor::Tensor& others() const { return others_; }
  // Of an adapter, in others() and ν; null: of none.
  [[nodiscard]] static std::int64_t number(const BankPlace* place) { return place == nullptr ? 0 : place->first + 1; }

  [[nodiscard]] static std::int64_t units_of(const std::vector<LayerAdapters>& adapters,
                                             const model::DecoderWeights& weights) {
    std::int64_t rank = 0;
    for (std::size_t l = 0; l < adapters.size(); ++l)
      for (const JoinedLinears& maps : maps_by_input(weights.layers[l]))
        for (const model::Linear* const map : maps)
          if (map->lora.defined()) rank = std::max(rank, map->lora.a.size(0));
    return (rank + unit - 1) / unit;
  }

  // Copies the adapter to a place; null: there is no room.
  [[nodiscard]] std::shared_ptr<BankPlace> put(const std::vector<LayerAdapters>& adapters,
                                               const model::DecoderWeights& weights) {
    const std::int64_t units = units_of(adapters, weights);
    const std::optional<std::int64_t> first = full_ ? std::nullopt : room(units);
    if (!first) return nullptr;
    const c10::NoGradGuard no_grad;
    try {
      reserve(*first + units);
      auto out = std::make_shared<BankPlace>(BankPlace{shared_from_this(), *first, units});
      for (std::size_t l = 0; l < layers_.size(); ++l) {
        const std::array<JoinedLinears, 4> maps = maps_by_input(weights.layers[l]);
        for (std::size_t i = 0; i < maps.size(); ++i) fill(*layers_[l].all()[i], *adapters[l].all()[i], maps[i], *out);
      }
      others_.select(0, number(out.get())).fill_(true).narrow(0, *first, units).fill_(false);
      places_.push_back(out);
      return out;
    } catch (const c10::OutOfMemoryError&) {
      full_ = true;  // they decode in passes of their own, which need none of this
      return nullptr;
    }
  }

 private:
  // The first of so many units that nobody has, one behind the other.
  [[nodiscard]] std::optional<std::int64_t> room(std::int64_t units) {
    std::erase_if(places_, [](const auto& place) { return place.expired(); });
    std::array<bool, most_units> taken{};
    for (const auto& one : places_)
      if (const auto place = one.lock()) std::fill_n(taken.begin() + place->first, place->units, true);
    std::int64_t free = 0;
    for (std::int64_t i = 0; i < most_units; ++i) {
      free = taken[static_cast<std::size_t>(i)] ? 0 : free + 1;
      if (free == units) return i + 1 - units;
    }
    return std::nullopt;
  }

  // Room for so many units.
  void reserve(std::int64_t units) {
    const auto options = at::TensorOptions().device(device_);
    if (!others_.defined()) others_ = tensor::ones({1 + most_units, most_units}, options.dtype(at::kBool));
    if (units <= units_) return;
    const auto more = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(units)));
    std::vector<LayerAdapters> larger = layers_;  // all of it, or none
    for (LayerAdapters& layer : larger)
      for (LowRankMaps* const one : layer.all()) {
        if (!one->defined()) continue;
        const LowRankMaps before = *one;
        one->a = tensor::zeros({before.rank() / units_ * more, before.a.size(1)}, before.a.options());
        one->a.narrow(0, 0, before.rank()).copy_(before.a);
        one->b = tensor::zeros({before.b.size(0), one->a.size(0)}, before.b.options());
        one->b.narrow(1, 0, before.rank()).copy_(before.b);
        if (before.scale.defined()) {
          one->scale = tensor::ones({1 + more, before.scale.size(1)}, before.scale.options());
          one->scale.narrow(0, 0, before.scale.size(0)).copy_(before.scale);
        }
        one->units = more;
      }
    layers_ = std::move(larger);
    units_ = more;
  }

  // `from`: the adapter's copies of these maps.
  void fill(LowRankMaps& to, const LowRankMaps& from, const JoinedLinears& maps, const BankPlace& place) const {
    if (!to.defined() && !from.defined()) return;
    const auto count = static_cast<std::int64_t>(maps.size());
    if (!to.defined())  // all of it, or none
      to = {tensor::zeros({units_ * count * unit, from.a.size(1)}, from.a.options()),
            tensor::zeros({from.b.size(0), units_ * count * unit}, from.b.options()),
            {},
            units_};
    if (from.scale.defined() && !to.scale.defined())
      to.scale = tensor::ones({1 + units_, from.scale.size(0)}, from.scale.options());
    if (to.scale.defined()) {
      const tensor::Tensor scale = to.scale.select(0, number(&place));
      if (from.scale.defined())
        scale.copy_(from.scale);
      else
        scale.fill_(1.0);
    }
    const tensor::Tensor a = to.a.view({units_, count, unit, -1}).narrow(0, place.first, place.units),
                         b = to.b.view({-1, units_, count, unit}).narrow(1, place.first, place.units);
    a.zero_();
    std::int64_t row = 0, column = 0;
    for (std::int64_t m = 0; m < count; ++m) {
      const model::Linear& map = *maps[static_cast<std::size_t>(m)];
      const std::int64_t rows = map.weight.size(0), rank = map.lora.defined() ? map.lora.a.size(0) : 0;
      for (std::int64_t done = 0; done < rank;) {  // whole units at once, then what is left
        const std::int64_t first = done / unit, some = std::max<std::int64_t>(1, (rank - done) / unit),
                           ranks = std::min(rank - done, some * unit), each = std::min(ranks, unit);
        a.narrow(0, first, some)
            .select(1, m)
            .narrow(1, 0, each)
            .copy_(from.a.narrow(0, column + done, ranks).view({some, each, -1}));
        b.narrow(0, row, rows)
            .narrow(1, first, some)
            .select(2, m)
            .narrow(2, 0, each)
            .copy_(from.b.narrow(0, row, rows).narrow(1, column + done, ranks).unflatten(1, {some, each}));
        done += ranks;
      }
      row += rows;
      column += rank;
    }
  }

  std::uint64_t base_;
  std::vector<LayerAdapters> layers_;
  at::Device device_;
  tensor::Tensor others_;
  std::int64_t units_ = 0;  // that there is memory for
  bool full_ = false;       // there was no memory
  std::vector<std::weak_ptr<const BankPlace>> places_;
};

// The banks of an engine.
class AdapterBanks {
 public:
  // A place in the bank `beside`, or where that is null in the first one of this base with room, or in a new one. Null: nowhere.
  [[nodiscard]] std::shared_ptr<BankPlace> put(std::uint64_t base, const std::vector<LayerAdapters>& adapters,
                                               const model::DecoderWeights& weights, AdapterBank* beside) {
    if (AdapterBank::units_of(adapters, weights) > AdapterBank::most_units) return nullptr;
    if (beside != nullptr) return beside->put(adapters, weights);
    std::erase_if(banks_, [](const auto& bank) { return bank.expired(); });
    for (const auto& one : banks_)
      if (const auto bank = one.lock(); bank != nullptr && bank->base() == base)
        if (auto out = bank->put(adapters, weights)) return out;
    if (base == refused_) return nullptr;
    const auto bank = std::make_shared<AdapterBank>(base, adapters.size(), weights.embedding.device());
    auto out = bank->put(adapters, weights);
    if (out == nullptr) refused_ = base;
    banks_.push_back(bank);
    return out;
  }
  // Asks for memory again where there was none.
  void try_again() { refused_ = 0; }

 private:
  std::vector<std::weak_ptr<AdapterBank>> banks_;
  std::uint64_t refused_ = 0;  // the base for which there was no memory: each attempt may cost a device a wait
};

}  // namespace rlalgo::inference::detail
