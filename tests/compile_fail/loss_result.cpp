// expect: the first part is not a Loss
#include <support/bandit.hpp>

#include <rlalgo/advantage/group_relative.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/trainer/online.hpp>

using namespace rlalgo;

struct OnlyTheScalar {
  struct Config {};
  static constexpr loss::Needs needs{};
  static constexpr loss::RowKind rows = loss::RowKind::samples;
#ifdef RLALGO_VALID
  loss::Result operator()(const loss::Scored& scored, const loss::Counts&) const { return {scored.log_prob.sum(), {}}; }
#else
  at::Tensor operator()(const loss::Scored& scored, const loss::Counts&) const { return scored.log_prob.sum(); }
#endif
};

using Trainer = trainer::OnlineTrainer<OnlyTheScalar, advantage::GroupRelative<>, rlalgo::support::BanditPulls,
                                       aggregation::SumThenNormalize>;
static_assert(sizeof(Trainer) > 0);
