// expect: the optional member `needs_weights` of this part is declared in its `hooks` and not there, or there and not declared
#include <rlalgo/sampler/concept.hpp>

using namespace rlalgo;

// Says when it asks its generator, and does not declare that it does.
struct Frugal {
#ifdef RLALGO_VALID
  static constexpr sampler::Hooks hooks{.needs_weights = true};
#endif
  bool needs_weights(std::int64_t) const { return false; }
};
static_assert(sampler::hooks_of<Frugal>().needs_weights);
