// expect: constraints not satisfied
// expect: required for the satisfaction of .Sampler<
// expect: sampler\.restore\(state\)
#include <rlalgo/sampler/concept.hpp>

// A sampler whose cursor cannot be restored cannot be resumed.
struct Forgetful {
  struct Batch {};
  static constexpr rlalgo::loss::RowKind rows = rlalgo::loss::RowKind::samples;
  static constexpr bool generates = false;
  Batch next(std::int64_t) { return {}; }
  nlohmann::ordered_json state() const { return {}; }
#ifdef RLALGO_VALID
  void restore(const nlohmann::ordered_json&) {}
#endif
};

template <rlalgo::sampler::Sampler S>
struct Trained {};

Trained<Forgetful> trained;
