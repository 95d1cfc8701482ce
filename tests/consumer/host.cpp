// A stranger's program on floors 0-2: rewards and advantages without LibTorch.
#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/maths/answer.hpp>

#include <cstdio>
#include <string>
#include <vector>

#if __has_include(<ATen/core/Tensor.h>)
#error "rlalgo::host puts LibTorch on the include path"
#endif

int main() {
  std::vector<double> rewards;
  const auto gold = rlalgo::maths::solution_answer("$\\frac{1}{2}$");
  for (const char* text : {"The answer is \\boxed{0.5}", "The answer is \\boxed{2}"}) {
    const auto offered = rlalgo::maths::completion_answer(text);
    rewards.push_back(gold && offered && rlalgo::maths::agrees(*gold, *offered) == true ? 1.0 : 0.0);
  }
  const rlalgo::advantage::GroupRelative estimator;
  const auto estimate = estimator(rewards, rlalgo::core::Groups::uniform(2, 2));
  std::printf("rlalgo %s: advantages %.3f and %.3f\n", std::string(rlalgo::version).c_str(), estimate.advantage[0],
              estimate.advantage[1]);
  return RLALGO_VERSION >= 100 && estimate.advantage[0] > 0.7 && estimate.advantage[1] < -0.7 ? 0 : 1;
}
