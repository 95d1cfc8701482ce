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

RLALGO_INLINE void PassRounds::enter(std::int64_t member, const model::LayerGate::Pass& pass) {
  const Said own{member, pass};
  for (;;) {
    const std::optional<Said> next = ask(own);  // this rank has a pass, so there is one
    members_[static_cast<std::size_t>(next->member)]->chosen(next->pass);
    if (*next == own) return;
    help(*next);
  }
}

RLALGO_INLINE void PassRounds::settle() {
  while (const std::optional<Said> next = ask({})) {
    members_[static_cast<std::size_t>(next->member)]->chosen(next->pass);
    help(*next);
  }
  for (Member* const member : members_)
    if (member != nullptr) member->settled();
}

RLALGO_INLINE void PassRounds::help(const Said& other) {
  members_[static_cast<std::size_t>(other.member)]->help(other.pass);
}

RLALGO_INLINE std::optional<PassRounds::Said> PassRounds::ask(const Said& own) {
  if (const std::uint64_t now = team_->order(); now != order_) {
    for (Member* const member : members_)
      if (member != nullptr) member->reset();
    order_ = now;
  }
  const auto options = at::TensorOptions().dtype(at::kLong);
  const std::vector<std::int64_t> words = {own.member, own.pass.phase == model::LayerGate::Phase::forward ? 0 : 1,
                                           own.pass.layers, own.pass.graph ? 1 : 0};
  const Tensor all = tensor::empty({team_->size(), 4}, options);
  team_->all_gather(all, tensor::from_values(words, options).view({1, 4})).wait();
  const std::int64_t* said = all.const_data_ptr<std::int64_t>();
  for (int r = 0; r < team_->size(); ++r, said += 4) {
    if (said[0] < 0) continue;
    return Said{
        said[0],
        {said[1] == 0 ? model::LayerGate::Phase::forward : model::LayerGate::Phase::backward, said[2], said[3] != 0}};
  }
  return std::nullopt;
}

}  // namespace rlalgo::distributed
