// Reward batches with published advantages: every figure was computed by an independent float64 implementation.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/reward_table.hpp>

namespace rlalgo::support {

inline constexpr double none = std::numeric_limits<double>::quiet_NaN();

struct AdvantageCase {
  std::size_t group_size;
  std::vector<double> weights;               // [K]
  std::vector<std::vector<double>> rewards;  // [N][K], NaN = not applicable
  std::vector<double> group, batch, unscaled, gdpo, leave_one_out;

  [[nodiscard]] core::Groups groups() const { return core::Groups::uniform(rewards.size(), group_size); }
  [[nodiscard]] core::RewardTable table() const {
    std::vector<std::string> names;
    for (std::size_t k = 0; k < weights.size(); ++k) names.push_back("f" + std::to_string(k));
    core::RewardTable out(names, weights, rewards.size());
    for (std::size_t i = 0; i < rewards.size(); ++i)
      for (std::size_t k = 0; k < weights.size(); ++k) out(i, k) = rewards[i][k];
    return out;
  }
  [[nodiscard]] std::vector<double> sums() const {
    const core::RewardTable rows = table();
    std::vector<double> out;
    for (std::size_t i = 0; i < rows.rows(); ++i) out.push_back(rows.weighted_sum(i));
    return out;
  }
};

inline const std::vector<AdvantageCase>& advantage_cases() {
  static const std::vector<AdvantageCase> cases = {
      {4,
       {1},
       {{1}, {0}, {0}, {1}, {.5}, {.2}, {.9}, {.4}},
       {0.8658754298, -0.8658754298, -0.8658754298, 0.8658754298, 0, -1.0187032944, 1.3582710592, -0.3395677648},
       {1.1782335897, -1.1782335897, -1.1782335897, 1.1782335897, 0, -0.7069401538, 0.9425868717, -0.2356467179},
       {0.5, -0.5, -0.5, 0.5, 0, -0.3, 0.4, -0.1},
       {0.9353911268, -0.9353911268, -0.9353911268, 0.9353911268, 0, -1.1004885803, 1.4673181071, -0.3668295268},
       {0.6666666667, -0.6666666667, -0.6666666667, 0.6666666667, 0, -0.4, 0.5333333333, -0.1333333333}},
      {3,
       {1, 2},
       {{1, .2}, {0, .8}, {1, .5}, {0, 3}, {0, 1}, {1, -1}},
       {-0.8725859401, -0.2181464850, 1.0907324252, 1.0440440664, -0.0949130969, -0.9491309695},
       {-0.1180304809, -0.0295076202, 0.1475381011, 1.6229191120, -0.1475381011, -1.4753810109},
       {-0.2666666667, -0.0666666667, 0.3333333333, 3.6666666667, -0.3333333333, -3.3333333333},
       {-1.2830590209, 0.7622412857, 0.5208177352, 1.2835700938, -0.5208177352, -0.7627523586},
       {-0.4, -0.1, 0.5, 5.5, -0.5, -5.0}},
      {4,
       {1, .5},
       {{1, .5}, {0, none}, {none, none}, {1, .1}, {1, none}, {1, none}, {0, .7}, {0, none}},
       {0.7197373854, -1.1416524044, 0, 0.4219150190, 0.8293386160, 0.8293386160, -0.4774979910, -1.1811792409},
       {0.9082362863, -1.4406506610, 0, 0.5324143747, 0.7751326926, 0.7751326926, -0.4462885200, -1.1039768652},
       {0.4833333333, -0.7666666667, 0, 0.2833333333, 0.4125, 0.4125, -0.2375, -0.5875},
       {0.9950118834, -1.2343054196, 0, 0.2392935362, 0.9257290647, 0.9257290647, -0.9257290647, -0.9257290647},
       {0.725, -1.15, 0, 0.425, 0.55, 0.55, -0.3166666667, -0.7833333333}},
      {4,
       {1},
       {{1}, {2}, {4}, {1}},
       {-0.7070567847, 0, 1.4141135694, -0.7070567847},
       {-0.7070567847, 0, 1.4141135694, -0.7070567847},
       {-1, 0, 2, -1},
       {-0.7070360726, 0, 1.4140721452, -0.7070360726},
       {-1.3333333333, 0, 2.6666666667, -1.3333333333}},
      {2,
       {1},
       {{1}, {1}, {1}, {0}, {1}, {0}},
       {0, 0, 0.7070067953, -0.7070067953, 0.7070067953, -0.7070067953},
       {0, 0, 0.9680583729, -0.9680583729, 0.9680583729, -0.9680583729},
       {0, 0, 0.5, -0.5, 0.5, -0.5},
       {0, 0, 1.1178572150, -1.1178572150, 1.1178572150, -1.1178572150},
       {0, 0, 1, -1, 1, -1}},
  };
  return cases;
}

// The published figures have ten decimals: half a unit of the last, plus rounding.
inline void check_close(const std::vector<double>& found, const std::vector<double>& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO("sample " << i);
    CHECK(found[i] == Approx(expected[i]).epsilon(0).margin(1e-10));
  }
}

}  // namespace rlalgo::support
