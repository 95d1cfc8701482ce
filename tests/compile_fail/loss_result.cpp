// expect: required for the satisfaction of .Loss<
// expect: does not satisfy return-type-requirement
#include <rlalgo/loss/concept.hpp>

struct OnlyTheScalar {
  struct Config {};
  static constexpr rlalgo::loss::Needs needs{};
  static constexpr rlalgo::loss::RowKind rows = rlalgo::loss::RowKind::samples;
#ifdef RLALGO_VALID
  rlalgo::loss::Result operator()(const rlalgo::loss::Scored& scored, const rlalgo::loss::Counts&) const {
    return {scored.log_prob.sum(), {}};
  }
#else
  at::Tensor operator()(const rlalgo::loss::Scored& scored, const rlalgo::loss::Counts&) const {
    return scored.log_prob.sum();
  }
#endif
};

template <rlalgo::loss::Loss L>
struct Trained {};

Trained<OnlyTheScalar> trained;
