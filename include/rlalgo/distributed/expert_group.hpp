// The experts of a decoder's layers, divided among the ranks of a team (expert parallel): rank r of n has experts r·E/n … (r + 1)·E/n
// of every layer that has any, and computes with them for all ranks of the team.
//
//   forward    rows of tokens, sorted by expert → their expert's rank │ products │ → back to the token's rank      (model/experts.hpp)
//   backward   ∂y and c of the rows → the expert's rank │ ∂W is added there │ ∂ of the rows and of c → back
//
// Source: Lepikhin et al., "GShard", arXiv 2006.16668, section 3.2 (dispatch and combine by all-to-all), without a capacity: no token is
// dropped. An expert sees its rows in the order of their ranks, so the gradient of its weights is that of all ranks of the team.
// Before rows their numbers are exchanged: a rank may have any number of them, none included. Each exchange is named with its layer in
// errors of a wait (team.hpp).
// A pass is that of all ranks of the team (pass_rounds.hpp); who has none of its own helps, with its experts and no rows. What the
// backward pass needs of the rows that other ranks sent stays here, by the number of the forward pass, until its backward pass or until
// no rank has a pass to do. A rank that lacks the backward pass of rows that it sent has gradients of 0 for them.
//
// Errors: [rlalgo.distributed.20] a backward pass whose forward pass is gone; those of a team.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/expert_exchange.hpp>
#include <rlalgo/model/experts.hpp>
#include <rlalgo/model/layer_gate.hpp>

namespace rlalgo::distributed {

class ExpertGroup final : public model::ExpertExchange {
 public:
  // The team's size divides the number of experts of every layer that has any.
  ExpertGroup(const model::Decoder& decoder, std::shared_ptr<Team> team);

  [[nodiscard]] Team& team() const { return *team_; }
  // Seconds that this rank has waited for rows so far.
  [[nodiscard]] double waited() const { return waited_; }

  // LayerGate::seat: 0 are the decoder's weights, 1 those without its adapter.
  [[nodiscard]] std::int64_t seat(const model::DecoderWeights& weights);

  // The team does this pass from here on, or helps with it.
  void chosen(const model::LayerGate::Pass& pass);
  // LayerGate::number.
  [[nodiscard]] std::int64_t number() const { return number_; }
  // With one layer of a pass of others, which was chosen; of a layer without experts nothing.
  void help(std::int64_t layer);
  // No rank has a pass to do; `forget` also where ranks gave up.
  void forget() noexcept { kept_.clear(); }

  [[nodiscard]] RLALGO_INLINE Tensor forward(std::int64_t layer, const Tensor& rows,
                                             const std::vector<std::int64_t>& begin) override;
  [[nodiscard]] RLALGO_INLINE Gradient backward(std::int64_t layer, const Tensor& grad, const Tensor& weights) override;

 private:
  using Counts = std::vector<std::int64_t>;  // of each rank
  // What a layer's backward pass needs here.
  struct Kept {
    Counts sent, received;            // rows
    std::vector<std::int64_t> begin;  // of the experts here
    Tensor order, place;              // of sorted rows: their number as they came; and of those: where they are sorted
    Tensor rows;                      // [P', H], sorted
    model::ExpertRowsTape tape;
  };

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(team_->size()); }
  // Of a layer, those of a rank.
  [[nodiscard]] std::int64_t share(std::int64_t layer) const {
    return config_.spec(layer).experts.count / team_->size();
  }
  [[nodiscard]] const model::LayerWeights& weights(std::int64_t layer) const {
    return seats_.at(static_cast<std::size_t>(pass_.seat)).layers[static_cast<std::size_t>(layer)];
  }
  // parts[r] of `out` go to rank r, and parts of the result come from it.
  [[nodiscard]] Tensor exchange(const std::string& what, std::int64_t layer, const Tensor& out, const Counts& sent,
                                const Counts& received);

  model::DecoderConfig config_;
  const model::Operations* operations_;
  std::shared_ptr<Team> team_;
  std::vector<model::DecoderWeights> seats_;
  model::LayerGate::Pass pass_;
  std::int64_t number_ = 0;                                     // of forward passes
  std::map<std::pair<std::int64_t, std::int64_t>, Kept> kept_;  // by number and layer
  double waited_ = 0.0;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/expert_group_impl.hpp>
#endif
