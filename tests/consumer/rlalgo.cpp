// A stranger's program: one door and nothing else of rlalgo included.
#include <rlalgo/grpo.hpp>

#include <cstdio>
#include <string>
#include <vector>

int main() {
  const rlalgo::TrainConfig<rlalgo::Grpo> config;
  const rlalgo::advantage::GroupRelative<> estimator(config.method.advantage);
  const std::vector<double> rewards = {1.0, 0.0, 0.0, 1.0};
  const auto estimate = estimator(rewards, rlalgo::core::Groups::uniform(rewards.size(), 4));
  std::printf("advantage of a correct answer: %.3f\n", estimate.advantage[0]);

  const rlalgo::Grpo::Loss loss = rlalgo::Grpo::parts(config.method).loss;
  try {
    loss({}, {});
  } catch (const rlalgo::core::Error& error) {
    std::printf("loss of an empty batch: %s\n", error.what());
    return error.room() == "loss" && estimate.advantage[0] > 0.8 ? 0 : 1;
  }
  return 1;
}
