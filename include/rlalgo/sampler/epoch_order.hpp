// The order in which the examples of a dataset meet the optimizer: a permutation for every epoch, cut into steps.
//
//   step k of an epoch takes the next `per_step` examples, the last one what is left; epoch e is the permutation drawn from
//   seed + e, or the dataset's order
//
// Source: transformers' Trainer (accelerate's seedable sampler). Steps are addressed by number, counted over the whole
// run, so resuming needs no more than that number.
// Errors: [rlalgo.sampler.20] no examples, or a size below 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/permutation.hpp>

namespace rlalgo::sampler {

class EpochOrder {
 public:
  struct Config {
    std::size_t examples = 0;
    std::int64_t micro_batch_size = 1;  // examples
    std::int64_t gradient_accumulation_steps = 1;
    bool shuffle = true;
    std::uint64_t seed = 42;
  };

  explicit EpochOrder(const Config& config) : config_(config) {
    const auto refuse = [](const std::string& found, const std::string& expected) {
      core::raise("sampler", 20, {.what = "no batch can be drawn", .found = found, .expected = expected});
    };
    if (config.examples == 0) refuse("no examples", "at least one");
    if (config.micro_batch_size < 1 || config.gradient_accumulation_steps < 1)
      refuse(std::to_string(config.micro_batch_size) + " examples × " +
                 std::to_string(config.gradient_accumulation_steps) + " micro-batches",
             "at least 1 each");
  }

  // Optimizer steps of one pass over the dataset.
  [[nodiscard]] std::int64_t steps() const {
    return (static_cast<std::int64_t>(config_.examples) + per_step() - 1) / per_step();
  }

  // How many of the micro-batches of a step its last one of a pass has, as a share.
  [[nodiscard]] double last_step_share() const {
    const std::int64_t left = static_cast<std::int64_t>(config_.examples) - (steps() - 1) * per_step();
    return static_cast<double>((left + config_.micro_batch_size - 1) / config_.micro_batch_size) /
           static_cast<double>(config_.gradient_accumulation_steps);
  }

  // The examples of a step, as indices of the dataset.
  [[nodiscard]] std::span<const std::size_t> step(std::int64_t number) {
    const std::vector<std::size_t>& order = epoch(number / steps());
    const auto begin = static_cast<std::size_t>(number % steps() * per_step());
    return std::span(order).subspan(begin, std::min(static_cast<std::size_t>(per_step()), order.size() - begin));
  }

 private:
  [[nodiscard]] std::int64_t per_step() const { return config_.micro_batch_size * config_.gradient_accumulation_steps; }

  const std::vector<std::size_t>& epoch(std::int64_t number) {
    if (number == epoch_) return order_;
    epoch_ = number;
    if (config_.shuffle) {
      std::mt19937 generator(static_cast<std::mt19937::result_type>(config_.seed + static_cast<std::uint64_t>(number)));
      order_ = core::permutation(config_.examples, generator);
    } else if (order_.empty()) {
      order_.resize(config_.examples);
      std::iota(order_.begin(), order_.end(), std::size_t{0});
    }
    return order_;
  }

  Config config_;
  std::vector<std::size_t> order_;  // of epoch_
  std::int64_t epoch_ = -1;
};

}  // namespace rlalgo::sampler
