// expect: the optional member `within_groups` of this part is declared in its `hooks` and not there
#include <rlalgo/advantage/concept.hpp>

using namespace rlalgo;

struct Ranked {
  static constexpr advantage::Hooks hooks{.within_groups = true};
#ifdef RLALGO_VALID
  static bool within_groups() { return true; }
#else
  static bool within_groupss() { return true; }
#endif
};
static_assert(advantage::hooks_of<Ranked>().within_groups);
