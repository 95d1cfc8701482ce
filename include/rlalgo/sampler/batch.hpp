// What a sampler hands over for one optimizer step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>

namespace rlalgo::sampler {

// The samples of one optimizer step, cut into micro-batches. The batch owns them: pointers are valid as long as it lives.
template <class Sample>
struct Batch {
  std::vector<std::vector<Sample*>> parts{};              // micro-batches
  std::vector<std::shared_ptr<void>> owners{};            // of what the parts point into
  core::Metrics metrics{};                                // of making the batch
  std::vector<std::pair<std::string, double>> seconds{};  // what it took, for time/<name>; empty: measured as `data`
  std::vector<std::string> warnings{};                    // one line each, for the log
};

// One call of the generator, scored: N episodes in groups.
struct Generation {
  std::vector<data::Episode> episodes;  // [N]
  core::Groups groups;                  // over episodes
  core::RewardTable rewards;            // [N, K]
  // Of each group the index of its prompt in the dataset, where it is not that of the order; empty: it is.
  std::vector<std::size_t> prompts = {};
  // Of each group whether it was drawn for an earlier generation and is trained on again; empty: of none.
  std::vector<std::uint8_t> replayed = {};
  [[nodiscard]] bool is_replayed(std::size_t episode) const {
    return !replayed.empty() && replayed[episode * replayed.size() / episodes.size()] != 0;
  }
};

// Episodes of a generation that have no advantages yet: whole groups.
struct FreshEpisodes {
  FreshEpisodes(std::shared_ptr<Generation> whole) : FreshEpisodes(whole, 0, whole->episodes.size()) {}
  FreshEpisodes(std::shared_ptr<Generation> of, std::size_t first, std::size_t last)
      : generation(std::move(of)), begin(first), end(last) {}
  [[nodiscard]] Generation* operator->() const { return generation.get(); }
  [[nodiscard]] std::span<data::Episode> episodes() const {
    return std::span(generation->episodes).subspan(begin, end - begin);
  }
  [[nodiscard]] bool is_whole() const { return begin == 0 && end == generation->episodes.size(); }

  std::shared_ptr<Generation> generation;
  std::size_t begin, end;  // of its episodes
};

// Episodes with rewards. Metrics are those of the fresh generations: reward/…, completions/…, num_tokens.
struct RolloutBatch : Batch<data::Episode> {
  std::vector<FreshEpisodes> fresh;       // made for this step
  std::vector<std::string> reward_names;  // of Episode::rewards, for samples.jsonl
  // Micro-batches whose episodes are there, of a step that is trained on while they are made (Hooks::streams of the sampler): each
  // pull() of the sampler adds the next one. The others hold null pointers; with the last the rest of the batch is there, too.
  std::size_t pulled = everything;
  static constexpr std::size_t everything = ~std::size_t{0};
  [[nodiscard]] bool is_open() const { return pulled < parts.size(); }
};

// A generation as it was made, with what is to be logged of making it.
struct Made {
  std::int64_t number = 0;  // counted over the whole run
  std::shared_ptr<Generation> generation;
  std::int64_t tokens = 0;  // of prompts and completions
  RolloutBatch about;       // metrics, seconds and warnings
};

}  // namespace rlalgo::sampler
