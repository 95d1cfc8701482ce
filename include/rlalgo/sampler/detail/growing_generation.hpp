// A generation that is made part by part, the first groups first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/open_generation.hpp>
#include <rlalgo/sampler/weighted_reward.hpp>

namespace rlalgo::sampler::detail {

// Some groups of a generation, drawn, and scored.
struct GenerationPart {
  std::shared_ptr<Generation> generation;
  std::int64_t tokens = 0;  // of prompts and completions
  CompletionLengths lengths;
  RolloutBatch about;                        // metrics of its rewards and episodes, and warnings
  double generating = 0.0, rewarding = 0.0;  // seconds
};

// Tokens of prompts and completions, in all rows.
std::int64_t tokens_of(const Generation& generation);

// Texts, masks, rewards, and the metrics that belong to this part alone.
void score(GenerationPart& part, std::span<const WeightedReward> rewards, const Decode& decode, const Ends& ends,
           bool mask_truncated, std::int64_t step);

// The table of so many rows, with names and weights.
core::RewardTable table_of(std::span<const WeightedReward> rewards, std::size_t rows);

class GrowingGeneration : public OpenGeneration {
 public:
  // With room for so many groups. `prompts`: Generation::prompts.
  GrowingGeneration(std::int64_t number, std::size_t groups, std::size_t copies, std::vector<std::size_t> prompts,
                    std::span<const WeightedReward> rewards);

  // Behind what is there.
  void add(Generation&& rows);
  // What is said of these rows, their seconds excepted.
  void note(const GenerationPart& part);
  [[nodiscard]] bool has_all_rows() const { return rows_ == made_.generation->episodes.size(); }
  // With all rows: the rest of made(). `num_tokens` of the run, with these; nothing: it is not reported.
  void complete(std::optional<std::int64_t> num_tokens);

 protected:
  [[nodiscard]] std::size_t rows() const { return rows_; }
  double generating_ = 0.0, rewarding_ = 0.0;  // seconds

 private:
  std::size_t rows_ = 0;
  CompletionLengths lengths_;
  core::Metrics metrics_;  // of the parts
};

}  // namespace rlalgo::sampler::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/growing_generation_impl.hpp>
#endif
