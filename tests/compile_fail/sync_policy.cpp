// expect: the fifth part is not a SyncPolicy
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

// A policy says what a publish did.
struct Mute {
  static constexpr bool reaches(inference::WeightSource) { return true; }
#ifdef RLALGO_VALID
  sync::Published publish(std::int64_t version) { return {.version = version}; }
#else
  void publish(std::int64_t) {}
#endif
  std::function<std::int64_t()> version_source() const { return {}; }
};

using Trainer =
    trainer::OnlineTrainer<Grpo::Loss, Grpo::Estimator, rlalgo::support::BanditPulls, Grpo::Aggregation, Mute>;
static_assert(sizeof(Trainer) > 0);
