// expect: the optional member `quantizes` of this part is declared in its `hooks` and not there
#include <rlalgo/inference/generator.hpp>

using namespace rlalgo;

struct Rounded {
  static constexpr inference::WeightSource weights = inference::WeightSource::snapshot;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};
#ifdef RLALGO_VALID
  static bool quantizes() { return true; }
#else
  static bool quantizess() { return true; }
#endif
};
static_assert(inference::hooks_of<Rounded>().quantizes);
