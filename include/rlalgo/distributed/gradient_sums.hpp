// Data-parallel gradients: every rank has all parameters, and gradients are summed over the ranks while the last backward pass of
// a step is computed. The gradients of a layer are sent while the layers before it are differentiated.
//
//   begin_last()       the next pass with a graph, and its backward pass, is this rank's last one of the step
//   finish()           sends what is left, waits for all sums (on a GPU its stream does, not the host), and returns the gradients
//
// Parameters are divided into buckets, from the last layer to the first; the last bucket holds those outside of the layers, and
// finish() sends it. Buckets are the same on all ranks, and all ranks send them in this order. Ranks wait for each other in finish()
// only, so a rank without a pass, or one that had its last pass long ago, delays no other before that. A sum has the same bits as
// after the backward pass: the addends of an element are added in the order of the ranks (team.hpp).
//
// It is a gate of the decoder (model/layer_gate.hpp), whose tensors lie on the team's device. Between the end of the backward pass
// that begin_last() announced and finish() nothing else may read or write gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/model/layer_gate.hpp>
#include <rlalgo/model/policy.hpp>

namespace rlalgo::distributed {

class GradientSums final : public model::LayerGate {
 public:
  static constexpr std::size_t least_bytes = std::size_t{4} << 20U;  // layers smaller than this go together

  // All ranks of the team together, with the same parameters. The layer of one is in its name, model.layers.<i>.
  GradientSums(std::vector<model::Parameter> parameters, std::shared_ptr<Team> team, std::size_t least = least_bytes);

  void begin_last();
  // In the order of the parameters, those that some rank has a gradient of; where this rank has none of them, it is made.
  [[nodiscard]] std::vector<Tensor> finish();
  // Nothing is summed any more: passes of a decoder that has this as its gate go on as without one.
  void leave() noexcept;

  [[nodiscard]] std::size_t buckets() const { return buckets_.size(); }
  // Buckets of this step that are on their way, or there.
  [[nodiscard]] std::size_t begun() const { return begun_; }
  // Seconds that sums have been at work so far, and of them those that this rank has waited for.
  [[nodiscard]] double busy() const { return team_->busy(); }
  [[nodiscard]] double waited() const { return waited_; }

  RLALGO_INLINE void begin(const Pass& pass) override;
  RLALGO_INLINE void end(const Pass& pass) override;
  void acquire(const Visit& /*visit*/) override {}
  void release(const Visit& /*visit*/) noexcept override {}
  RLALGO_INLINE void gradient_ready(std::int64_t layer) override;

 private:
  struct Bucket {
    std::vector<std::size_t> members;  // parameters
    std::int64_t layer = -1;           // whose gradient is ready last; −1: outside of the layers
    Tensor there = {};                 // [members], how many ranks have a gradient of it
    std::vector<bool> made = {};       // [members], gradients of zeros that this rank made
    Pending pending = {};
  };

  void launch(Bucket& bucket);
  void forget() noexcept;

  std::vector<model::Parameter> parameters_;
  std::shared_ptr<Team> team_;
  std::vector<Bucket> buckets_;
  std::size_t begun_ = 0;
  std::uint64_t order_ = 0;            // of the team, when they were
  bool last_ = false, final_ = false;  // begin_last() was called; the last backward pass of the step is under way
  std::int64_t open_ = 0;              // since then, forward passes with a graph whose backward pass has not begun
  double waited_ = 0.0;
};

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/gradient_sums_impl.hpp>
#endif
