// Definitions of sharded_weights.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/decoder_tensors.hpp>
#include <rlalgo/distributed/detail/shard_pieces.hpp>
#include <rlalgo/distributed/sharded_weights.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

RLALGO_INLINE ShardedWeights::ShardedWeights(const model::Decoder& decoder, ShardConfig config, ShardTeams teams)
    : config_(config), teams_(std::move(teams)), config_of_model_(decoder.config()) {
  if (teams_.experts != nullptr) experts_ = std::make_unique<ExpertGroup>(decoder, teams_.experts);
  member_ = teams_.rounds->join(*this);
}

RLALGO_INLINE ShardedWeights::~ShardedWeights() {
  reset();
  teams_.rounds->leave(member_);
}

RLALGO_INLINE std::shared_ptr<ShardedWeights> ShardedWeights::shard(model::Decoder& decoder, ShardConfig config,
                                                                    ShardTeams teams) {
  const std::shared_ptr<ShardedWeights> out(
      new ShardedWeights(decoder, config, std::move(teams)));  // its constructor is private
  out->take_over(decoder);
  decoder.set_gate(out);
  return out;
}

RLALGO_INLINE std::shared_ptr<ShardedWeights> ShardedWeights::shard(model::Decoder& decoder, ShardConfig config,
                                                                    std::shared_ptr<PassRounds> rounds,
                                                                    std::shared_ptr<Team> replicas) {
  const std::shared_ptr<Team> team = rounds->shared_team();
  return shard(decoder, config, {std::move(rounds), team, std::move(replicas)});
}

RLALGO_INLINE FlatUnit ShardedWeights::make_unit(std::vector<FlatUnit::Entry> entries, const Group& group,
                                                 std::int64_t layer) const {
  const Team& team = team_of(group);
  std::vector<int> owners;
  if (group.experts) {
    const std::int64_t each = config_of_model_.spec(layer).experts.count / team.size();
    for (const FlatUnit::Entry& entry : entries)
      owners.push_back(static_cast<int>(*detail::expert_of(entry.name) / each));
  }
  return {std::move(entries), team.rank(), team.size(), !parted(group), std::move(owners)};
}

RLALGO_INLINE void ShardedWeights::take_over(const model::Decoder& decoder) {
  const c10::NoGradGuard no_grad;
  const std::string prefix = decoder.adapter() != nullptr ? model::Decoder::adapter_prefix : "";
  const std::size_t layers = decoder.weights().layers.size();
  using Kind = std::pair<c10::ScalarType, bool>;
  std::vector<std::map<Kind, std::vector<FlatUnit::Entry>>> kinds(experts_ != nullptr ? 2 * layers + 1 : layers + 1);
  groups_.resize(kinds.size());
  for (std::size_t g = layers + 1; g < groups_.size(); ++g) groups_[g].experts = true;
  detail::visit_memory(decoder.config(), decoder.weights(),
                       [&](const std::string& name, const Tensor& value, model::WeightRole role) {
                         std::size_t group = detail::group_of(name);
                         if (experts_ != nullptr && detail::expert_of(name)) group += layers;
                         if (!value.requires_grad() && !parted(groups_[group])) {
                           others_.push_back(value);
                           return;
                         }
                         kinds[group][{value.scalar_type(), value.requires_grad()}].push_back(
                             {prefix + name, value, role == model::WeightRole::matrix});
                       });
  for (std::size_t g = 0; g < kinds.size(); ++g) {
    for (auto& [kind, entries] : kinds[g]) {
      for (const FlatUnit::Entry& entry : entries) {
        const auto [sum, absolute] = detail::sums_of(entry.value);
        sums_.push_back(sum);
        sums_.push_back(absolute);
      }
      groups_[g].held.push_back({make_unit(std::move(entries), groups_[g], layer_of(g))});
    }
    groups_[g].whole = !parted(groups_[g]);
  }
}

RLALGO_INLINE std::vector<model::Parameter> ShardedWeights::parameters() {
  if (!parameters_.empty()) return parameters_;
  const c10::NoGradGuard no_grad;
  visit([&](const FlatUnit& unit) {
    if (!unit.trained()) return;
    for (const FlatUnit::Entry& entry : unit.entries())
      if (const auto part = unit.piece(entry))
        parameters_.push_back({entry.name, unit.own().narrow(0, part->at, part->size()).detach().requires_grad_(true),
                               entry.weight_decay});
  });
  std::sort(parameters_.begin(), parameters_.end(),
            [](const model::Parameter& a, const model::Parameter& b) { return a.name < b.name; });
  return parameters_;
}

RLALGO_INLINE void ShardedWeights::gather(Group& group) {
  if (group.whole || group.gathering) return;
  for (Held& held : group.held) {
    held.coming = memory_.take(held.unit);
    held.gathering = team_of(group).all_gather(held.coming, held.unit.own());
  }
  group.gathering = true;
}

RLALGO_INLINE void ShardedWeights::arrive(Group& group) {
  gather(group);
  if (group.whole) return;
  const os::Stopwatch watch;
  for (Held& held : group.held) held.gathering.wait();
  waited_ += watch.seconds();
  for (Held& held : group.held) held.unit.place(std::exchange(held.coming, Tensor()));
  group.gathering = false;
  group.whole = true;
}

RLALGO_INLINE void ShardedWeights::free(Group& group) {
  if (!parted(group)) return;
  if (group.gathering) arrive(group);
  if (!group.whole) return;
  for (Held& held : group.held) memory_.give(held.unit.clear());
  group.whole = false;
}

RLALGO_INLINE void ShardedWeights::scatter(Group& group) {
  for (Held& held : group.held) {
    if (!held.unit.trained()) continue;
    held.scattering = detail::begin_scatter(team(), held.unit, memory_, held.sent, held.received);
    group.scattering = true;
  }
  if (group.scattering) scattering_.push_back(&group);
}

RLALGO_INLINE void ShardedWeights::add_scattered(Group& group) {
  const c10::NoGradGuard no_grad;
  for (Held& held : group.held) {
    if (!held.unit.trained()) continue;
    const os::Stopwatch watch;
    held.scattering.wait();
    waited_ += watch.seconds();
    if (!held.gradient.defined()) held.gradient = detail::no_gradient(held.unit);
    detail::add_scattered(team(), held.unit, memory_, held.sent, held.received, held.gradient);
  }
  group.scattering = false;
}

RLALGO_INLINE void ShardedWeights::begin(const Pass& pass) {
  const bool together = parted() || (pass.phase == Phase::backward && config_.stage == ShardStage::gradients);
  if (!together) return;
  teams_.rounds->enter(member_, pass);
  if (gathers()) arrive(outside());
}

RLALGO_INLINE void ShardedWeights::chosen(const Pass& pass) {
  if (gathered_) release_all();
  pass_ = pass;
  if (experts_ != nullptr) experts_->chosen(pass);
  if (!gathers()) return;
  if (pass.phase == Phase::forward && pass.graph) ++open_;
  gather(outside());
  if (pass.layers > 0) gather(layer(pass.phase == Phase::forward ? 0 : pass.layers - 1));
}

RLALGO_INLINE void ShardedWeights::help(const Pass& pass) {
  if (gathers()) arrive(outside());
  if (pass.phase == Phase::forward) {
    for (std::int64_t i = 0; i < pass.layers; ++i) {
      const model::GateScope scope(this, {i, Phase::forward, i + 1 < pass.layers ? i + 1 : std::int64_t{-1}});
      if (experts_ != nullptr) experts_->help(i);
    }
    return;
  }
  for (std::int64_t i = pass.layers; i-- > 0;) {
    {
      const model::GateScope scope(this, {i, Phase::backward, i - 1});
      if (experts_ != nullptr) experts_->help(i);
    }
    gradient_ready(i);
  }
  end(pass);
}

RLALGO_INLINE void ShardedWeights::acquire(const Visit& visit) {
  if (!gathers()) return;
  arrive(layer(visit.layer));
  if (visit.next >= 0) gather(layer(visit.next));
}

RLALGO_INLINE void ShardedWeights::release(const Visit& visit) noexcept {
  if (!gathers() || gathered_) return;
  const bool stays = visit.phase == Phase::forward && pass_.graph &&
                     (!config_.reshard_after_forward || visit.layer + 1 == pass_.layers);  // needed again next
  if (!stays && layer(visit.layer).whole) free(layer(visit.layer));
}

RLALGO_INLINE void ShardedWeights::gradient_ready(std::int64_t i) {
  if (sums_late()) return;
  // One is on its way while the next layer is differentiated.
  while (!scattering_.empty()) {
    add_scattered(*scattering_.front());
    scattering_.erase(scattering_.begin());
  }
  scatter(layer(i));
}

RLALGO_INLINE void ShardedWeights::end(const Pass& /*pass*/) {
  if (sums_late()) return;
  scatter(outside());
  if (gathers() && --open_ <= 0) {
    open_ = 0;
    for (Group& group : groups_) free(group);
  }
  while (!scattering_.empty()) {
    add_scattered(*scattering_.front());
    scattering_.erase(scattering_.begin());
  }
}

RLALGO_INLINE void ShardedWeights::settled() {
  if (gathered_) return;
  open_ = 0;
  for (Group& group : groups_) free(group);
  if (experts_ != nullptr) experts_->forget();
}

RLALGO_INLINE void ShardedWeights::reset() noexcept {
  // What was under way keeps its own memory.
  for (Group& group : groups_) {
    for (Held& held : group.held) {
      held.gathering.forget();
      held.scattering.forget();
      held.coming = held.sent = held.received = Tensor();
      if (parted(group)) (void)held.unit.clear();
    }
    group.whole = !parted(group);
    group.gathering = group.scattering = false;
  }
  scattering_.clear();
  if (experts_ != nullptr) experts_->forget();
  open_ = 0;
  gathered_ = false;
}

RLALGO_INLINE Tensor ShardedWeights::reduce_gradients_there() {
  const c10::NoGradGuard no_grad;
  teams_.rounds->settle();
  // Whether any rank has a gradient: one may have had no row.
  Tensor any = tensor::zeros({1}, at::TensorOptions().dtype(at::kFloat));
  for (const Group& group : groups_)
    for (const Held& held : group.held) {
      bool here = held.gradient.defined();
      for (const FlatUnit::Entry& entry : held.unit.entries()) here = here || entry.value.grad().defined();
      if (here) any.fill_(1.0);
    }
  team().sum({&any, 1});
  teams_.replicas->sum({&any, 1});
  const bool trained = any.item<float>() > 0.0F;
  if (sums_late() && trained)
    for (Group& group : groups_)
      if (!group.experts) {
        scatter(group);
        add_scattered(group);
      }
  scattering_.clear();
  memory_.drop();
  const at::Device device = parameters().empty() ? team().device() : parameters().front().value.device();
  Tensor total;
  for (const bool experts : {false, true}) {
    std::vector<Tensor> gradients;
    for (Group& group : groups_)
      for (Held& held : group.held) {
        if (group.experts != experts || !held.unit.trained() || !trained) continue;
        if (!held.gradient.defined()) held.gradient = detail::no_gradient(held.unit);
        if (experts) held.unit.take_own_gradients(held.gradient);
        gradients.push_back(held.gradient);
      }
    if (experts && experts_ == nullptr) break;
    (experts ? *teams_.expert_replicas : *teams_.replicas).sum(gradients);
    Tensor all = detail::sum_of_squares(gradients, device);
    (experts ? *teams_.experts : team()).sum({&all, 1});
    total = total.defined() ? total.add(all) : all;
  }
  // The optimizer's parameters in the same memory.
  std::map<std::string, Tensor> parts;
  for (Group& group : groups_)
    for (Held& held : group.held) {
      if (!held.gradient.defined()) continue;
      for (const FlatUnit::Entry& entry : held.unit.entries())
        if (const auto part = held.unit.piece(entry))
          parts.emplace(entry.name, held.gradient.narrow(0, part->at, part->size()));
      held.gradient = Tensor();
    }
  for (const model::Parameter& p : parameters())
    if (const auto found = parts.find(p.name); found != parts.end()) p.value.mutable_grad() = found->second;
  return total.reshape({});
}

RLALGO_INLINE void ShardedWeights::updated() {
  teams_.rounds->settle();
  release_all();
  if (gathers() || team().size() == 1) return;
  std::vector<Pending> pending;
  for (const Group& group : groups_)
    for (const Held& held : group.held)
      if (!group.experts) pending.push_back(team().all_gather(held.unit.whole(), held.unit.own()));
  for (Pending& one : pending) one.wait();
}

RLALGO_INLINE bool ShardedWeights::gather_all() {
  if (!parted()) return false;
  teams_.rounds->settle();
  if (std::exchange(gathered_, true)) return false;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (g + 1 < groups_.size()) gather(groups_[g + 1]);
    arrive(groups_[g]);
  }
  return true;
}

RLALGO_INLINE void ShardedWeights::release_all() {
  gathered_ = false;
  for (Group& group : groups_) free(group);
  memory_.drop();
}

RLALGO_INLINE void ShardedWeights::each_whole(const std::function<void(const FlatUnit&)>& see) {
  teams_.rounds->settle();
  for (Group& group : groups_) {
    arrive(group);
    for (const Held& held : group.held) see(held.unit);
    if (!gathered_) free(group);
  }
}

RLALGO_INLINE void ShardedWeights::blend_into(ShardedWeights& reference, double a) {
  const c10::NoGradGuard no_grad;
  reference.updated();  // nothing of it is whole
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t h = 0; h < groups_[g].held.size(); ++h)
      Tensor(reference.groups_[g].held[h].unit.own()).mul_(1.0 - a).add_(groups_[g].held[h].unit.own(), a);
  reference.updated();
}

RLALGO_INLINE void ShardedWeights::load(const std::function<Tensor(const std::string&)>& stored) {
  const c10::NoGradGuard no_grad;
  teams_.rounds->settle();  // weights that a rank fetches are sent before they change
  visit([&](const FlatUnit& unit) {
    for (const FlatUnit::Entry& entry : unit.entries())
      if (const auto part = unit.piece(entry))
        unit.own()
            .narrow(0, part->at, part->size())
            .copy_(stored(entry.name).view({-1}).narrow(0, part->begin, part->size()));
  });
  updated();
}

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

RLALGO_INLINE void ShardedWeights::hand_over(int fetcher, std::int64_t i, const Tensor& target) {
  const Place& place = places_.at(static_cast<std::size_t>(i));
  const Group& group = groups_[place.group];
  const FlatUnit& unit = group.held[place.held].unit;
  detail::hand_over(unit, unit.entries()[place.entry], teams_.rounds->team().rank(), team_of(group), fetcher, target);
}

RLALGO_INLINE void ShardedWeights::say(std::int64_t number) {
  Team& team = teams_.rounds->team();
  (void)detail::heard(team, team.rank(), number);
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
      say(-1);
    } catch (const std::exception&) {  // the ranks do not meet any more; what led here says more
    }
    throw;
  }
  fetching_ = false;
  say(-1);
}

RLALGO_INLINE void ShardedWeights::serve_fetch(int fetcher) {
  list_places();
  Team& team = teams_.rounds->team();
  for (std::int64_t i = detail::heard(team, fetcher, 0); i >= 0; i = detail::heard(team, fetcher, 0))
    hand_over(fetcher, i, {});
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
  say(number->second);
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
