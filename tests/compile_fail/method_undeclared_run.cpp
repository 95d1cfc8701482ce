// expect one error: the optional member `run` of this part is declared in its `hooks` and not there, or there and not declared
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own : Grpo {
#ifdef RLALGO_VALID
  static constexpr trainer::MethodHooks hooks{.run = true};
#endif
  template <class O>
  using Run = trainer::BasicOnlineConfig<O>;
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
