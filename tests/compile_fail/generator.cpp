// expect: the generator is not an inference::Generator
#include <rlalgo/grpo.hpp>

using namespace rlalgo;

// A generator is told which random draws to use; one that draws on its own cannot be resumed.
struct Unkeyed {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
#ifdef RLALGO_VALID
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request>,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    return {};
  }
#else
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request>,
                                                      const inference::SamplingConfig&) {
    return {};
  }
#endif
};

static_assert(sizeof(trainer::OnlineInputs<Unkeyed>) > 0);
