// expect: constraints not satisfied
// expect: required for the satisfaction of .SyncPolicyFor<
// expect: serves_generator
#include <rlalgo/sync/concept.hpp>
#include <rlalgo/sync/no_sync.hpp>

// A sampler that generates needs weights to arrive: NoSync does not serve it.
struct Generating {
#ifdef RLALGO_VALID
  static constexpr bool generates = false;
#else
  static constexpr bool generates = true;
#endif
};

template <class S, rlalgo::sync::SyncPolicyFor<S> Y>
struct Trained {};

Trained<Generating, rlalgo::sync::NoSync> trained;
