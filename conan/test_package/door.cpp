// A door: everything of one method.
#include <rlalgo/grpo.hpp>

#include <cstdio>

int main() {
  const rlalgo::GrpoConfig<> config;
  std::printf("GRPO clips ratios at 1 - %.1f\n", config.clip.epsilon_low);
}
