// expect: constraints not satisfied
// expect: required for the satisfaction of .SyncPolicy<
// expect: sync\.publish\(version\)
#include <rlalgo/sync/concept.hpp>

struct Mute {
#ifdef RLALGO_VALID
  void publish(std::int64_t) {}
#endif
};

template <rlalgo::sync::SyncPolicy Y>
struct Trained {};

Trained<Mute> trained;
