// expect: constraints not satisfied
// expect: required for the satisfaction of .Generator<
// expect: generator\.generate\(requests, sampling, key\)
#include <rlalgo/inference/generator.hpp>

// A generator is told which random draws to use; one that draws on its own cannot be resumed.
struct Unkeyed {
#ifdef RLALGO_VALID
  std::vector<std::vector<rlalgo::data::Completion>> generate(std::span<const rlalgo::inference::Request>,
                                                              const rlalgo::inference::SamplingConfig&,
                                                              rlalgo::inference::DrawKey) {
    return {};
  }
#else
  std::vector<std::vector<rlalgo::data::Completion>> generate(std::span<const rlalgo::inference::Request>,
                                                              const rlalgo::inference::SamplingConfig&) {
    return {};
  }
#endif
};

template <rlalgo::inference::Generator G>
struct Rollouts {};

Rollouts<Unkeyed> rollouts;
