// Of sharded_weights.hpp: weights that one rank fetches, and copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

RLALGO_INLINE void ShardedWeights::list_places() {
  if (!places_.empty()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t h = 0; h < groups_[g].held.size(); ++h) {
      const auto& entries = groups_[g].held[h].unit.entries();
      for (std::size_t e = 0; e < entries.size(); ++e) {
        numbers_.emplace(entries[e].value.storage().unsafeGetStorageImpl(), static_cast<std::int64_t>(places_.size()));
        places_.push_back({g, h, e});
      }
    }
}

RLALGO_INLINE std::int64_t ShardedWeights::heard(int fetcher, std::int64_t said) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  Team& all_of_them = teams_.rounds->team();
  const Tensor all = tensor::empty({all_of_them.size()}, options);
  all_of_them.all_gather(all, tensor::from_values(std::vector<std::int64_t>{said}, options)).wait();
  return all.const_data_ptr<std::int64_t>()[fetcher];
}

RLALGO_INLINE void ShardedWeights::hand_over(int fetcher, std::int64_t i, const Tensor& target) {
  const c10::NoGradGuard no_grad;
  const Place& place = places_.at(static_cast<std::size_t>(i));
  Team& team = team_of(groups_[place.group]);
  if (fetcher / team.size() != teams_.rounds->team().rank() / team.size()) return;  // its own team has it
  const FlatUnit& unit = groups_[place.group].held[place.held].unit;
  const FlatUnit::Entry& entry = unit.entries()[place.entry];
  const auto ranks = static_cast<std::size_t>(team.size());
  std::vector<Tensor> sent(ranks), received(ranks);
  if (const auto part = unit.piece(entry))
    sent[static_cast<std::size_t>(fetcher) % ranks] = unit.own().detach().narrow(0, part->at, part->size());
  if (target.defined())
    for (std::size_t r = 0; r < ranks; ++r)
      if (const auto part = unit.piece(entry, static_cast<int>(r)))
        received[r] = target.view({-1}).narrow(0, part->begin, part->size());
  team.exchange("a weight", sent, received).wait();
}

RLALGO_INLINE void ShardedWeights::fetch_within(const std::function<void()>& use) {
  if (!parted() || gathered_) return use();
  list_places();
  teams_.rounds->begin_fetch(member_);
  fetching_ = true;
  try {
    use();
  } catch (...) {
    fetching_ = false;
    try {
      (void)heard(teams_.rounds->team().rank(), -1);
    } catch (const std::exception&) {  // the ranks do not meet any more; what led here says more
    }
    throw;
  }
  fetching_ = false;
  (void)heard(teams_.rounds->team().rank(), -1);
}

RLALGO_INLINE void ShardedWeights::serve_fetch(int fetcher) {
  list_places();
  for (std::int64_t i = heard(fetcher, 0); i >= 0; i = heard(fetcher, 0)) hand_over(fetcher, i, {});
}

RLALGO_INLINE Tensor ShardedWeights::whole(const Tensor& weight) {
  if (!parted()) return weight;
  list_places();
  const auto number = numbers_.find(weight.storage().unsafeGetStorageImpl());
  if (number == numbers_.end()) return weight;
  const Place& place = places_.at(static_cast<std::size_t>(number->second));
  if (groups_[place.group].whole) return weight;
  if (!fetching_)
    core::raise("distributed", 12,
                {.what = "a sharded weight was read outside of a fetch",
                 .found = groups_[place.group].held[place.held].unit.entries()[place.entry].name,
                 .remedy = "read it within ShardedWeights::fetch_within, or between gather_all and release_all"});
  Tensor out = tensor::empty(weight.sizes(), weight.options().requires_grad(false));
  (void)heard(teams_.rounds->team().rank(), number->second);
  hand_over(teams_.rounds->team().rank(), number->second, out);
  return out;
}

RLALGO_INLINE std::shared_ptr<model::Decoder> ShardedWeights::frozen_copy(const model::Decoder& decoder) {
  const c10::NoGradGuard no_grad;
  // Tensors whose memory is touched when a layer is copied, and given up before the next.
  model::DecoderWeights weights = decoder.weights();
  const bool tied =
      weights.lm_head.storage().unsafeGetStorageImpl() == weights.embedding.storage().unsafeGetStorageImpl();
  model::DecoderConfig config = decoder.config();
  config.tied_embeddings = tied;
  std::map<std::string, Tensor> targets;
  model::visit_weights(config, weights, [&](const std::string& name, Tensor& value, const auto& shape, auto) {
    value = tensor::empty(shape, value.options().requires_grad(false));
    targets.emplace(name, value);
  });
  if (tied) weights.lm_head = weights.embedding;
  auto copy = std::make_shared<model::Decoder>(decoder.hf_config(), std::move(weights));
  const std::shared_ptr<ShardedWeights> held(new ShardedWeights(*copy, config_, teams_));
  teams_.rounds->settle();
  held->groups_.resize(groups_.size());
  std::set<std::string> done;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    arrive(groups_[g]);
    held->groups_[g].experts = groups_[g].experts;
    held->groups_[g].whole = !parted(groups_[g]);
    // Unit by unit, so that shards of both have the same elements.
    for (const Held& own : groups_[g].held) {
      std::vector<FlatUnit::Entry> entries;
      for (const FlatUnit::Entry& entry : own.unit.entries()) {
        const Tensor& target = targets.at(entry.name);
        target.copy_(entry.value.detach());
        entries.push_back({entry.name, target, entry.weight_decay});
        done.insert(entry.name);
      }
      held->groups_[g].held.push_back({held->make_unit(std::move(entries), groups_[g], layer_of(g))});
    }
    if (!gathered_) free(groups_[g]);
  }
  // What every rank has whole, and nobody trains.
  for (const auto& [name, value] : decoder.named_tensors())
    if (!done.contains(name)) targets.at(name).copy_(value.detach());
  copy->set_gate(held);
  return copy;
}

}  // namespace rlalgo::distributed
