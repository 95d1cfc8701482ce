// Floors 0-1: no LibTorch.
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/core/version.hpp>

#include <cstdio>
#include <string>
#include <vector>

int main() {
  const rlalgo::advantage::GroupRelative<> estimator(rlalgo::advantage::GroupRelativeConfig{});
  const std::vector<double> rewards = {1.0, 0.0, 0.0, 1.0};
  const auto estimate = estimator(rewards, rlalgo::core::Groups::uniform(rewards.size(), 4));
  std::printf("rlalgo %s: advantage of a correct answer %.3f\n", std::string(rlalgo::version).c_str(), estimate.advantage[0]);
  return estimate.advantage[0] > 0.8 ? 0 : 1;
}
