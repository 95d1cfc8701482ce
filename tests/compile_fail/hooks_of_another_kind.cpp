// expect: `hooks` of this part is of another kind of parts
#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/aggregation/concept.hpp>

using namespace rlalgo;

struct Own {
#ifdef RLALGO_VALID
  static constexpr advantage::Hooks hooks{.within_groups = true};
#else
  static constexpr aggregation::Hooks hooks{.within_groups = true};
#endif
  bool within_groups() const { return true; }
};
static_assert(advantage::hooks_of<Own>().within_groups);
