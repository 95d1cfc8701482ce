// expect: nullptr_t
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/loss/cross_entropy.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/trainer.hpp>

using namespace rlalgo;

// A sampler without an end cannot hold a split to evaluate on.
struct Endless {
  using Rows = sampler::RolloutRows;
  sampler::Batch<data::Episode> next(std::int64_t) { return {}; }
  nlohmann::ordered_json state() const { return {}; }
  void restore(const nlohmann::ordered_json&) {}
#ifdef RLALGO_VALID
  std::int64_t steps() const { return 3; }
#endif
};

using Trainer = trainer::Trainer<loss::CrossEntropy, advantage::None, Endless, aggregation::None, sync::NoSync>;
void give(Trainer::Parts& parts, std::shared_ptr<Endless> split) { parts.evaluation = split; }
