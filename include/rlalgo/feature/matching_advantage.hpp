// Advantages of rewards that are alignment minus diversity: an aggregation (aggregation/concept.hpp) over both columns.
//
//   R = c_al·alignment − c_dv·diversity       A = E(c_al·alignment, c_dv·diversity) of each group
//
// The estimator sees the two terms apart, which a baseline that leaves out pairs needs (group_estimators.hpp); the
// trainer's estimator of plain rewards is not asked. The table has two columns, alignment with weight c_al and diversity
// with weight −c_dv (text_matching.hpp). spread is the standard deviation of a group's rewards. A sample that is NaN has
// advantage 0 and is not in its group.
// Errors: [rlalgo.feature.7] rewards of another kind.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/feature/group_estimators.hpp>

namespace rlalgo::feature {

template <GroupEstimator E = LeaveOutPairs>
class MatchingAdvantage {
 public:
  MatchingAdvantage() = default;
  explicit MatchingAdvantage(E estimator) : estimator_(std::move(estimator)) {}

  template <class Unused>
  aggregation::Result operator()(const Unused&, const core::RewardTable& rewards, const core::Groups& groups) const {
    if (rewards.columns() != 2)
      core::raise("feature", 7,
                  {.what = "advantages of feature matching need the columns alignment and diversity",
                   .found = std::to_string(rewards.columns()) + " columns"});
    aggregation::Result out;
    for (const core::Span group : groups) {
      std::vector<std::size_t> rows;
      std::vector<double> al, dv;
      for (std::size_t i = group.begin; i < group.end; ++i) {
        if (std::isnan(rewards(i, 0)) || std::isnan(rewards(i, 1))) continue;
        rows.push_back(i);
        al.push_back(rewards.weights()[0] * rewards(i, 0));
        dv.push_back(-rewards.weights()[1] * rewards(i, 1));
      }
      out.reward.resize(group.end, std::numeric_limits<double>::quiet_NaN());
      out.advantage.resize(group.end, 0.0);
      const std::vector<double> reward = Reward()(al, dv);
      const std::vector<double> advantage = rows.empty() ? reward : estimator_(al, dv);
      for (std::size_t k = 0; k < rows.size(); ++k) {
        out.reward[rows[k]] = reward[k];
        out.advantage[rows[k]] = core::finite_advantage(advantage[k]);
      }
      out.spread.insert(out.spread.end(), group.size(), rows.size() < 2 ? 0.0 : core::moments(reward).deviation);
    }
    return out;
  }

 private:
  E estimator_;
};

// ebft/advantages_std: over all completions of a step, n − 1.
inline void add_advantage_spread(std::span<const data::EpisodeRow* const> rows, core::Metrics& metrics) {
  std::vector<double> advantages;
  for (const data::EpisodeRow* row : rows) advantages.push_back(row->episode().advantage);
  if (advantages.size() > 1) metrics.mean("ebft/advantages_std", core::moments(advantages).deviation, 1.0);
}

}  // namespace rlalgo::feature
