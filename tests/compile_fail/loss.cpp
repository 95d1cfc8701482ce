// expect: the first part is not a Loss
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/sampler/preferences.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/trainer.hpp>

using namespace rlalgo;

struct SumOfLogProbs {
  struct Config {};
#ifdef RLALGO_VALID
  static constexpr loss::Needs needs{};
#endif
  static constexpr loss::RowKind rows = loss::RowKind::pairs;
  loss::Result operator()(const loss::Scored& scored, const loss::Counts&) const { return {scored.log_prob.sum(), {}}; }
};

using Trainer = trainer::Trainer<SumOfLogProbs, advantage::None, sampler::Pairs, aggregation::None, sync::NoSync>;
static_assert(sizeof(Trainer) > 0);
