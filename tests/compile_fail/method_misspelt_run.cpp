// expect one error: the optional member `run` of this part is declared in its `hooks` and not there
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own : Grpo {
  static constexpr trainer::MethodHooks hooks{.run = true};
#ifdef RLALGO_VALID
  template <class O>
  using Run = trainer::BasicOnlineConfig<O>;
#else
  template <class O>
  using Runs = trainer::BasicOnlineConfig<O>;
#endif
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
