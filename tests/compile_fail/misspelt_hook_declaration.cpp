// expect: corrects_samplings
#include <rlalgo/loss/hooks.hpp>

using namespace rlalgo;

struct Corrected {
#ifdef RLALGO_VALID
  static constexpr loss::Hooks hooks{.corrects_sampling = true};
#else
  static constexpr loss::Hooks hooks{.corrects_samplings = true};
#endif
  bool corrects_sampling() const { return true; }
};
static_assert(loss::hooks_of<Corrected>().corrects_sampling);
