// expect: a callable with a name\(\) is a reward::RewardFunction
#include <string>

#include <rlalgo/sampler/weighted_reward.hpp>

using namespace rlalgo;

struct Right {
#ifndef RLALGO_VALID
  std::string name() const { return "right"; }
#endif
  double operator()(const std::string& text) const { return text == "42" ? 1.0 : 0.0; }
};

const sampler::WeightedReward reward = Right();
