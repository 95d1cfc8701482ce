// The ring of a rank's context group (model/context_ring.hpp): a team of neighbours in a World.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <rlalgo/distributed/team.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/context_ring.hpp>

namespace rlalgo::distributed {

class ContextGroup final : public model::ContextRing {
 public:
  // All ranks of the World make one together, for tensors of `device`.
  explicit ContextGroup(std::shared_ptr<World> world, at::Device device = at::Device(at::kCPU))
      : world_(std::move(world)), team_(world_->convene(members(*world_), device)) {}

  [[nodiscard]] int rank() const override { return team_->rank(); }
  [[nodiscard]] int size() const override { return team_->size(); }
  [[nodiscard]] std::function<void()> pass(const Tensor& out, const Tensor& in) override {
    return [pending = team_->shift(in, out)]() mutable { pending.wait(); };
  }

 private:
  static std::vector<int> members(const World& world) {
    std::vector<int> out(static_cast<std::size_t>(world.context_size()));
    std::iota(out.begin(), out.end(), world.group() * world.context_size());
    return out;
  }

  std::shared_ptr<World> world_;  // outlives the team
  std::shared_ptr<Team> team_;
};

}  // namespace rlalgo::distributed
