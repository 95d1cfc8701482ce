// expect: the optional member `active_needs` of this part is declared in its `hooks` and not there
#include <rlalgo/loss/concept.hpp>

using namespace rlalgo;

// A loss of a family: it says what it reads of all that its type may read.
struct Chosen {
  static constexpr loss::Needs needs{.reference_log_prob = true};
  static constexpr loss::RowKind rows = loss::RowKind::samples;
  loss::Result operator()(const loss::Scored& scored, const loss::Counts&) const { return {scored.log_prob.sum(), {}}; }
  static constexpr loss::Hooks hooks{.active_needs = true};
#ifdef RLALGO_VALID
  static loss::Needs active_needs() { return {}; }
#else
  static loss::Needs active_needss() { return {}; }
#endif
};
static_assert(loss::hooks_of<Chosen>().active_needs);
