// expect one error: it needs `static constexpr loss::Needs needs
#include <support/bandit.hpp>

#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/trainer/online.hpp>

using namespace rlalgo;

struct Mine {
  struct Loss {
#ifdef RLALGO_VALID
    static constexpr loss::Needs needs{};
#else
    static inline const loss::Needs needs = [] { return loss::Needs{}; }();  // known only when the program runs
#endif
    static constexpr loss::RowKind rows = loss::RowKind::samples;
    loss::Result operator()(const loss::Scored& scored, const loss::Counts&) const {
      return {scored.log_prob.sum(), {}};
    }
  };
  using Estimator = advantage::LeaveOneOut;
  using Aggregation = aggregation::SumThenNormalize;
};

template <class M>
auto run(const trainer::TrainConfig<M>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<M>(config, inputs);
}
auto chosen = &run<Mine>;
