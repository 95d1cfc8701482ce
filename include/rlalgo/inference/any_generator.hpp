// A generator of any type behind one: for programs that choose theirs at run time.
//
// Holds a reference; the generator must outlive it. One indirect call per generate().
#pragma once

#include <concepts>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/inference/generator.hpp>

namespace rlalgo::inference {

class AnyGenerator {
 public:
  static constexpr WeightSource weights = WeightSource::erased;
  static constexpr GeneratorHooks hooks{.quantizes = true};

  template <Generator G>
  requires(!std::same_as<G, AnyGenerator>)  // that one is copied
      explicit AnyGenerator(G& generator)
      : generate_([&generator](std::span<const Request> requests, const SamplingConfig& sampling, DrawKey key) {
          return generator.generate(requests, sampling, key);
        }),
        source_(source_of(generator)),
        quantizes_(inference::quantizes(generator)) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key) {
    return generate_(requests, sampling, key);
  }
  [[nodiscard]] WeightSource source() const noexcept { return source_; }
  [[nodiscard]] bool quantizes() const noexcept { return quantizes_; }

 private:
  std::function<std::vector<std::vector<data::Completion>>(std::span<const Request>, const SamplingConfig&, DrawKey)>
      generate_;
  WeightSource source_;
  bool quantizes_;
};

static_assert(Generator<AnyGenerator>);

}  // namespace rlalgo::inference
