// expect: constraints not satisfied
// expect: required for the satisfaction of .Loss<
// expect: L::needs
#include <rlalgo/loss/concept.hpp>

struct SumOfLogProbs {
  struct Config {};
#ifdef RLALGO_VALID
  static constexpr rlalgo::loss::Needs needs{};
#endif
  static constexpr rlalgo::loss::RowKind rows = rlalgo::loss::RowKind::samples;
  rlalgo::loss::Result operator()(const rlalgo::loss::Scored& scored, const rlalgo::loss::Counts&) const {
    return {scored.log_prob.sum(), {}};
  }
};

template <rlalgo::loss::Loss L>
struct Trained {};

Trained<SumOfLogProbs> trained;
