// Group-relative advantage: a completion is judged against the other completions of its prompt.
//
//   A_i = (R_i − mean(group of i)) / (σ + ε)
//   σ   = std₁ of the group (Scale::group), std₁ of the whole batch (Scale::batch); Scale::none divides by nothing
//
// Source: Shao et al., "DeepSeekMath", arXiv 2402.03300, §4.1.2 (group); Liu et al., "Understanding R1-Zero-Like
// Training", arXiv 2503.20783 (none, Dr. GRPO); TRL `scale_rewards` for the variants, whose "batch" keeps the group
// mean.
// Symbols: R → rewards, σ → spread, ε → epsilon.
// Shapes: rewards [N] double, groups over N; advantage [N], spread [N].
// NaN reward: advantage 0, and it does not touch its group's mean or deviation. A group with one scorable sample has no
// deviation: advantage 0. ±inf advantages are clamped to ± the largest float.
// Departures: double precision and a pivoted mean (core/moments.hpp), so a constant group has spread and advantage
// exactly 0; TRL's float32 gives seven copies of 3.3 an advantage of 2.4e-3.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>

namespace rlalgo::advantage {

enum class Scale { group, batch, none };

struct GroupRelativeConfig {
  double epsilon = 1e-4;  // added to the standard deviation, never to the variance
};

template <Scale scale = Scale::group>
class GroupRelative {
 public:
  using Config = GroupRelativeConfig;

  GroupRelative() = default;
  explicit GroupRelative(Config config) : config_(config) {}
  [[nodiscard]] const Config& config() const noexcept { return config_; }
  static constexpr Hooks hooks{.within_groups = true};
  [[nodiscard]] static constexpr bool within_groups() noexcept { return scale != Scale::batch; }

  Estimate operator()(std::span<const double> rewards, const core::Groups& groups) const {
    Estimate out;
    out.advantage.assign(rewards.size(), 0.0);
    out.spread.assign(rewards.size(), 0.0);
    const double batch_deviation = scale == Scale::batch ? core::moments(rewards).deviation : 0.0;
    for (const core::Span group : groups) {
      const core::Moments moments = core::moments(rewards.subspan(group.begin, group.size()));
      // One completion per prompt (evaluation) has no deviation to speak of: 0, where one scorable of many has NaN.
      double spread = group.size() == 1 ? 0.0 : moments.deviation;
      if (scale == Scale::batch) spread = group.size() == 1 ? 0.0 : batch_deviation;
      for (std::size_t i = group.begin; i < group.end; ++i) {
        const double centered = rewards[i] - moments.mean;
        const double scaled = scale == Scale::none ? centered : centered / (spread + config_.epsilon);
        out.advantage[i] = core::finite_advantage(scaled);
        out.spread[i] = spread;
      }
    }
    return out;
  }

 private:
  Config config_;
};

static_assert(AdvantageEstimator<GroupRelative<>>);

}  // namespace rlalgo::advantage
