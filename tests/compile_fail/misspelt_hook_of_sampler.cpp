// expect: the optional member `has_reference` of this part is declared in its `hooks` and not there
#include <rlalgo/sampler/concept.hpp>

using namespace rlalgo;

// Its rows bring log-probs of the reference.
struct Recorded {
  static constexpr sampler::Hooks hooks{.has_reference = true};
#ifdef RLALGO_VALID
  static bool has_reference() { return true; }
#else
  static bool has_references() { return true; }
#endif
};
static_assert(sampler::hooks_of<Recorded>().has_reference);
