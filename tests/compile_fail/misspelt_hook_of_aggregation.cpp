// expect: the optional member `needs_divergence` of this part is declared in its `hooks` and not there
#include <rlalgo/aggregation/concept.hpp>

using namespace rlalgo;

struct Penalised {
  static constexpr aggregation::Hooks hooks{.needs_divergence = true};
#ifdef RLALGO_VALID
  static bool needs_divergence() { return true; }
#else
  static bool needs_divergences() { return true; }
#endif
};
static_assert(aggregation::hooks_of<Penalised>().needs_divergence);
