// expect: the optional member `forget` of this part is declared in its `hooks` and not there
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

// It says that its server may lose the weights.
struct Forgetful {
  static constexpr sync::Hooks hooks{.forget = true};
  static constexpr bool reaches(inference::WeightSource) { return true; }
  sync::Published publish(std::int64_t version) { return {.version = version}; }
  std::function<std::int64_t()> version_source() const { return {}; }
#ifdef RLALGO_VALID
  void forget() {}
#else
  void forgets() {}
#endif
};

using Trainer =
    trainer::OnlineTrainer<Grpo::Loss, Grpo::Estimator, rlalgo::support::BanditPulls, Grpo::Aggregation, Forgetful>;
static_assert(sizeof(Trainer) > 0);
