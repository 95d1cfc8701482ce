// The order in which prompts meet the generator: successive permutations of the dataset, cut into chunks.
//
// Source: TRL `RepeatSampler`. One generator seeded once permutes the dataset for every epoch anew; each permutation is
// cut into chunks of `prompts_per_chunk`, an incomplete last chunk is dropped; chunk c of the run is the prompts of
// generation c. TRL's index stream (each prompt of a chunk `copies` times, the chunk `repeats` times) is `index(i)`.
// Chunks are addressed by number, so resuming needs no more than that number.
// Errors: [rlalgo.sampler.1] the dataset has fewer prompts than one chunk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/permutation.hpp>

namespace rlalgo::sampler {

class RepeatOrder {
 public:
  struct Config {
    std::size_t prompts = 0;            // size of the dataset
    std::size_t prompts_per_chunk = 1;  // prompts of one generation
    std::size_t copies = 1;             // G: completions of a prompt
    std::size_t repeats = 1;            // μ·S: micro-steps that a generation serves
    bool shuffle = true;
    std::uint64_t seed = 42;
  };

  explicit RepeatOrder(const Config& config) : config_(config) {
    if (config.prompts_per_chunk == 0 || config.prompts < config.prompts_per_chunk)
      core::raise(
          "sampler", 1,
          {.what = "the dataset is smaller than one generation",
           .found = std::to_string(config.prompts) + " prompts",
           .expected = "at least " + std::to_string(config.prompts_per_chunk),
           .remedy = "add rows, or lower micro_batch_size, gradient_accumulation_steps, steps_per_generation or "
                     "generation_batch_size"});
  }

  [[nodiscard]] std::size_t chunks_per_epoch() const noexcept { return config_.prompts / config_.prompts_per_chunk; }
  // Rows of one epoch of TRL's index stream.
  [[nodiscard]] std::size_t length() const noexcept {
    return chunks_per_epoch() * config_.prompts_per_chunk * config_.copies * config_.repeats;
  }

  // The prompts of chunk `number`, counted over the whole run.
  [[nodiscard]] std::vector<std::size_t> chunk(std::uint64_t number) const {
    const std::vector<std::size_t>& order = epoch_order(number / chunks_per_epoch());
    const auto first =
        order.begin() + static_cast<std::ptrdiff_t>(number % chunks_per_epoch() * config_.prompts_per_chunk);
    return {first, first + static_cast<std::ptrdiff_t>(config_.prompts_per_chunk)};
  }

  // Entry i of TRL's index stream, counted over the whole run.
  [[nodiscard]] std::size_t index(std::uint64_t i) const {
    const std::size_t rows = config_.prompts_per_chunk * config_.copies;
    return chunk(i / (rows * config_.repeats))[i % rows / config_.copies];
  }

 private:
  const std::vector<std::size_t>& epoch_order(std::uint64_t epoch) const {
    if (!config_.shuffle) {
      if (order_.empty()) {
        order_.resize(config_.prompts);
        std::iota(order_.begin(), order_.end(), std::size_t{0});
      }
      return order_;
    }
    if (order_.empty() || epoch < epoch_) {
      generator_.seed(static_cast<std::mt19937::result_type>(config_.seed));
      order_ = core::permutation(config_.prompts, generator_);
      epoch_ = 0;
    }
    for (; epoch_ < epoch; ++epoch_) order_ = core::permutation(config_.prompts, generator_);
    return order_;
  }

  Config config_;
  // The permutation of `epoch_`, kept because chunks are mostly asked for in order.
  mutable std::mt19937 generator_;
  mutable std::vector<std::size_t> order_;
  mutable std::uint64_t epoch_ = 0;
};

}  // namespace rlalgo::sampler
