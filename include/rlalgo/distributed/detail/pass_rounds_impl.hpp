// Definitions of pass_rounds.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/pass_rounds.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

RLALGO_INLINE void PassRounds::become(const Said& own) {
  for (;;) {
    const std::optional<Chosen> next = ask(own);  // this rank has something to do, so there is one
    // A fetch is one rank's; a pass is of all that are about to do the same.
    const bool mine = next->said == own && (!own.fetch || next->rank == team_->rank());
    if (!next->said.fetch) members_[static_cast<std::size_t>(next->said.member)]->chosen(next->said.pass);
    if (mine) return;
    help(*next);
  }
}

RLALGO_INLINE void PassRounds::settle() {
  while (const std::optional<Chosen> next = ask({})) {
    if (!next->said.fetch) members_[static_cast<std::size_t>(next->said.member)]->chosen(next->said.pass);
    help(*next);
  }
  for (Member* const member : members_)
    if (member != nullptr) member->settled();
}

RLALGO_INLINE void PassRounds::help(const Chosen& other) {
  Member& member = *members_[static_cast<std::size_t>(other.said.member)];
  if (other.said.fetch)
    member.serve_fetch(other.rank);
  else
    member.help(other.said.pass);
}

RLALGO_INLINE std::optional<PassRounds::Chosen> PassRounds::ask(const Said& own) {
  if (const std::uint64_t now = team_->order(); now != order_) {
    for (Member* const member : members_)
      if (member != nullptr) member->reset();
    order_ = now;
  }
  const auto options = at::TensorOptions().dtype(at::kLong);
  const model::LayerGate::Pass& pass = own.pass;
  const std::vector<std::int64_t> words = {own.member,
                                           pass.phase == model::LayerGate::Phase::forward ? 0 : 1,
                                           pass.layers,
                                           pass.graph ? 1 : 0,
                                           pass.recomputed ? 1 : 0,
                                           pass.seat,
                                           pass.number,
                                           own.fetch ? 1 : 0};
  const auto count = static_cast<std::int64_t>(words.size());
  const Tensor all = tensor::empty({team_->size(), count}, options);
  team_->all_gather(all, tensor::from_values(words, options).view({1, count})).wait();
  const std::int64_t* said = all.const_data_ptr<std::int64_t>();
  for (int r = 0; r < team_->size(); ++r, said += count) {
    if (said[0] < 0) continue;
    return Chosen{{said[0],
                   {said[1] == 0 ? model::LayerGate::Phase::forward : model::LayerGate::Phase::backward, said[2],
                    said[3] != 0, said[4] != 0, said[5], said[6]},
                   said[7] != 0},
                  r};
  }
  return std::nullopt;
}

}  // namespace rlalgo::distributed
