// Prompts that failed come back: a group whose completions all got nothing is generated again later.
//
// A group has failed when every reward function that applies gave all its completions the same value, of magnitude
// below 1e-6. Its prompt waits in a list, in order and without doubles, `capacity` prompts at most (a later one is then
// not noted). From optimizer step `first_step` on, each generation takes up to `max_groups` of them, first come first
// served, in the place of its last groups; their completions are drawn with the weights that are in force by then. A prompt
// that the generation has anyway leaves the list. Prompts whose places are taken come again in the next pass over the data.
// A generation that is made anew (Prefetch::max_staleness) keeps its prompts.
//
// Source: axolotl's RerollDataProducer, which notes such prompts and never takes them.
// Departures: it is done; no doubles; a bound; steps count in runs of epochs, too.
// Metrics of a generation: reroll_buffered, prompts noted; reroll_injected, groups generated again; reroll_buffer_size.
// Errors: [rlalgo.sampler.8] settings out of range (usage); those of the source.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/generation_batches.hpp>

namespace rlalgo::sampler {

struct RerollConfig {
  bool on = false;              // off: what passes through is as it was
  std::int64_t first_step = 0;  // optimizer step, 0-based; failures are noted from the start
  std::int64_t max_groups = 1;  // of a generation
  std::size_t capacity = 4096;  // prompts
};

// A source whose generations can be of given prompts.
template <class S>
concept ChoosesPrompts = GenerationSource<S> && requires(S& source, const std::vector<std::size_t>& chosen) {
  { source.produce(std::int64_t{0}, std::int64_t{0}, chosen, Pieces{}) } -> std::same_as<Made>;
};

template <class S>
class Reroll : public GenerationBatches<Reroll<S>> {
  static_assert(ChoosesPrompts<S>,
                "sampler::Reroll<Sampler>: the sampler within does not generate for given prompts; it needs "
                "`produce(number, step, indices of prompts)` (sampler::Rollouts has it)");

 public:
  using Config = RerollConfig;
  using Generator = typename S::Generator;
  static constexpr Hooks hooks{.needs_weights = true, .draws_ahead = hooks_of<S>().draws_ahead, .in_pieces = true};

  Reroll(RerollConfig config, std::shared_ptr<S> source) : config_(config), source_(std::move(source)) {
    if (config.max_groups < 1 || config.first_step < 0)
      core::raise_usage(
          "sampler", 8,
          {.what = "a setting of re-rolls is out of range",
           .found = std::to_string(config.max_groups) + " groups from step " + std::to_string(config.first_step),
           .expected = "1 group or more, from step 0 or later"});
  }

  [[nodiscard]] const auto& root() const { return source_->root(); }

  Made produce(std::int64_t number, std::int64_t step, const Pieces& pieces = {}) {
    if (!config_.on) return source_->produce(number, step, pieces);
    const auto ordered = root().order().chunk(static_cast<std::uint64_t>(number));
    auto failed = failed_;
    auto chosen = ordered;
    std::size_t injected = 0;
    if (const auto before = assigned_.find(number); before != assigned_.end()) {
      chosen = before->second;
    } else {
      std::erase_if(failed,
                    [&](std::size_t i) { return std::find(ordered.begin(), ordered.end(), i) != ordered.end(); });
      const std::size_t most = std::min({failed.size(), static_cast<std::size_t>(config_.max_groups), chosen.size()});
      for (; step >= config_.first_step && injected < most; ++injected) {
        chosen[chosen.size() - 1 - injected] = failed.front();
        failed.pop_front();
      }
    }
    Made made = source_->produce(number, step, chosen, pieces);
    if (chosen != ordered) made.generation->prompts = chosen;
    std::size_t buffered = 0;
    for (std::size_t g = 0; g < chosen.size(); ++g)
      if (failed.size() < config_.capacity && has_failed(*made.generation, g, chosen.size()) &&
          std::find(failed.begin(), failed.end(), chosen[g]) == failed.end()) {
        failed.push_back(chosen[g]);
        ++buffered;
      }
    failed_ = std::move(failed);
    if (chosen != ordered) assigned_[number] = chosen;
    assigned_.erase(assigned_.begin(), assigned_.lower_bound(number - remembered));
    made.about.metrics.mean("reroll_buffered", static_cast<double>(buffered), 1.0);
    made.about.metrics.mean("reroll_injected", static_cast<double>(injected), 1.0);
    made.about.metrics.last("reroll_buffer_size", static_cast<double>(failed_.size()));
    return made;
  }

  // What fails decides on the prompts of the next generation.
  [[nodiscard]] bool draws_ahead() const requires(hooks_of<S>().draws_ahead) {
    return !config_.on && source_->draws_ahead();
  }
  Made draw(std::int64_t number) requires(hooks_of<S>().draws_ahead) { return source_->draw(number); }
  void score(Made& made, std::int64_t step) requires(hooks_of<S>().draws_ahead) { source_->score(made, step); }

  [[nodiscard]] std::function<Json()> capture() const {
    if (!config_.on) return source_->capture();
    return [within = source_->capture(), failed = failed_, assigned = assigned_] {
      Json out = within(), chosen = Json::array();
      for (const auto& [number, prompts] : assigned) chosen.push_back({number, prompts});
      out["reroll"] = {{"failed", failed}, {"assigned", std::move(chosen)}};
      return out;
    };
  }

  void restore_source(const Json& state) {
    std::deque<std::size_t> failed;
    std::map<std::int64_t, std::vector<std::size_t>> assigned;
    const std::size_t groups = static_cast<std::size_t>(root().geometry().prompts());
    const auto known = [&](std::size_t i) {
      if (i >= root().prompts().size()) detail::raise_state("a prompt outside the dataset", std::to_string(i));
    };
    if (state.contains("reroll")) {
      failed = state["reroll"].at("failed").template get<std::deque<std::size_t>>();
      for (const Json& entry : state["reroll"].at("assigned")) {
        auto chosen = entry.at(1).template get<std::vector<std::size_t>>();
        if (chosen.size() != groups) detail::raise_state("another number of groups", std::to_string(chosen.size()));
        std::for_each(chosen.begin(), chosen.end(), known);
        assigned[entry.at(0).template get<std::int64_t>()] = std::move(chosen);
      }
    }
    std::for_each(failed.begin(), failed.end(), known);
    source_->restore_source(state);
    failed_ = std::move(failed);
    assigned_ = std::move(assigned);
  }

 private:
  static constexpr std::int64_t remembered = 1100;  // generations: more than any queue is deep

  [[nodiscard]] static bool has_failed(const Generation& generation, std::size_t group, std::size_t groups) {
    const core::RewardTable& rewards = generation.rewards;
    const std::size_t size = generation.rollouts.size() / groups;
    bool any = false;
    for (std::size_t k = 0; k < rewards.columns(); ++k) {
      double first = std::numeric_limits<double>::quiet_NaN();
      for (std::size_t i = group * size; i < (group + 1) * size; ++i) {
        const double reward = rewards(i, k);
        if (std::isnan(reward)) continue;
        if (std::isnan(first)) first = reward;
        if (reward != first || std::abs(reward) >= 1e-6) return false;
        any = true;
      }
    }
    return any;
  }

  RerollConfig config_;
  std::shared_ptr<S> source_;
  std::deque<std::size_t> failed_;  // indices of prompts
  std::map<std::int64_t, std::vector<std::size_t>>
      assigned_;  // generation → its prompts, where they are not the order's
};

}  // namespace rlalgo::sampler
