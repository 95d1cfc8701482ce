// expect one error: the method's Loss cannot be made of its settings
#include <support/bandit.hpp>

#include <rlalgo/grpo.hpp>

using namespace rlalgo;

struct Own {
  struct Loss {
    static constexpr loss::Needs needs{};
    static constexpr loss::RowKind rows = loss::RowKind::samples;
    struct Config {
      double scale = 1.0;
    };
#ifdef RLALGO_VALID
    explicit Loss(Config) {}
#else
    Loss() = default;  // what the user sets would be read by nobody
#endif
    loss::Result operator()(const loss::Scored& scored, const loss::Counts&) const {
      return {scored.log_prob.sum(), {}};
    }
  };
  using Estimator = Grpo::Estimator;
  using Aggregation = Grpo::Aggregation;
};

auto run(const TrainConfig<Own>& config, trainer::OnlineInputs<rlalgo::support::BanditPulls> inputs) {
  return train<Own>(config, inputs);
}
