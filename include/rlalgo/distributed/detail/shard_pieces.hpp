// What ranks of a team tell and give each other of a unit's shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/distributed/flat_unit.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/tensor/functions.hpp>

// Needs the tensor type before it.
#include <ATen/ops/_foreach_norm_ops.h>

namespace rlalgo::distributed::detail {

// Of all elements, each tensor's norm squared, where they are: [1] float64. None: 0 on `device`. Elsewhere than on the CPU the norms of one
// dtype are one call.
inline Tensor sum_of_squares(const std::vector<Tensor>& gradients, at::Device device) {
  Tensor out = tensor::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(device));
  if (!device.is_cpu()) {
    std::map<at::ScalarType, std::vector<Tensor>> lists;
    for (const Tensor& one : gradients) lists[one.scalar_type()].push_back(one);
    for (const auto& [type, list] : lists) {
      const Tensor norms = tensor::stack(at::_ops::_foreach_norm_Scalar::call(list, 2, type)).to(at::kDouble);
      out.add_(norms.mul(norms).sum());
    }
    return out;
  }
  for (const Tensor& one : gradients) {
    const Tensor norm = one.norm(2, one.scalar_type()).to(at::kDouble);
    out.add_(norm.mul(norm));
  }
  return out;
}

// That gradients are added in.
inline at::ScalarType gradient_type(const FlatUnit& unit) {
  return unit.dtype() == at::kDouble ? at::kDouble : at::kFloat;
}

// [shard], what sums of gradients begin with.
inline Tensor no_gradient(const FlatUnit& unit) {
  return tensor::zeros({unit.shard()}, unit.own().options().dtype(gradient_type(unit)));
}

// Sends a unit's gradients, which it drops, to the ranks of their shards: `received` is what comes of all ranks, one after the other, or their
// sum where the team's library adds.
inline Pending begin_scatter(Team& team, FlatUnit& unit, FlatMemory& memory, Tensor& sent, Tensor& received) {
  sent = memory.take(unit);
  unit.take_gradients(sent);
  if (team.size() == 1) {
    received = sent;
    return {};
  }
  if (!team.sums_natively()) {
    received = memory.take(unit);
    return team.all_to_all(received, sent);
  }
  received = tensor::empty({unit.shard()}, unit.own().options().dtype(gradient_type(unit)));
  return team.add_shards(received, sent.to(gradient_type(unit)));
}
// When that has come: adds it to `gradient` [shard], in the order of the ranks where it is not added yet.
inline void add_scattered(Team& team, const FlatUnit& unit, FlatMemory& memory, Tensor& sent, Tensor& received,
                          const Tensor& gradient) {
  const bool added = team.size() > 1 && team.sums_natively();
  for (std::int64_t r = 0; r < (added ? 1 : team.size()); ++r)
    gradient.add_(received.narrow(0, r * unit.shard(), unit.shard()));
  if (team.size() > 1) memory.give(std::exchange(sent, Tensor()));
  if (added)
    received = Tensor();
  else
    memory.give(std::exchange(received, Tensor()));
  sent = Tensor();
}

// The number that the fetcher says to all.
inline std::int64_t heard(Team& team, int fetcher, std::int64_t said) {
  const auto options = at::TensorOptions().dtype(at::kLong);
  const Tensor all = tensor::empty({team.size()}, options);
  team.all_gather(all, tensor::from_values(std::vector<std::int64_t>{said}, options)).wait();
  return all.const_data_ptr<std::int64_t>()[fetcher];
}

// This rank's piece of a tensor goes to the fetcher, into `target` there. Both ranks are places among neighbours, of which the team's
// ranks are some: who is in another team than the fetcher's has nothing to do.
inline void hand_over(const FlatUnit& unit, const FlatUnit::Entry& entry, int rank, Team& team, int fetcher,
                      const Tensor& target) {
  if (fetcher / team.size() != rank / team.size()) return;
  const c10::NoGradGuard no_grad;
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

}  // namespace rlalgo::distributed::detail
