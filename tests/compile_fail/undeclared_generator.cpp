// expect: the optional member `generates` of this part is declared in its `hooks` and not there, or there and not declared
#include <rlalgo/sampler/concept.hpp>

using namespace rlalgo;

// Its rows are made by a generator, to which the trainer is to hand the weights.
struct Drawn {
  static constexpr sampler::Hooks hooks{.generates = true};
#ifdef RLALGO_VALID
  using Generator = int;
#else
  using Generater = int;
#endif
};
static_assert(sampler::hooks_of<Drawn>().generates);
