// expect: the optional member `set_momentum` of this part is declared in its `hooks` and not there
#include <rlalgo/optim/concept.hpp>

using namespace rlalgo;

struct Cycled {
  static constexpr optim::Hooks hooks{.set_momentum = true};
#ifdef RLALGO_VALID
  void set_momentum(double) {}
#else
  void set_momentums(double) {}
#endif
};
static_assert(optim::hooks_of<Cycled>().set_momentum);
