// expect: the third part is not a Sampler
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/loss/cross_entropy.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/trainer.hpp>

using namespace rlalgo;

// A sampler whose cursor cannot be restored cannot be resumed.
struct Forgetful {
  using Rows = sampler::RolloutRows;
  sampler::Batch<data::Episode> next(std::int64_t) { return {}; }
  nlohmann::ordered_json state() const { return {}; }
#ifdef RLALGO_VALID
  void restore(const nlohmann::ordered_json&) {}
#endif
};

using Trainer = trainer::Trainer<loss::CrossEntropy, advantage::None, Forgetful, aggregation::None, sync::NoSync>;
static_assert(sizeof(Trainer) > 0);
