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
#include <rlalgo/sampler/open_generation.hpp>

namespace rlalgo::sampler {

struct RerollConfig {
  bool on = false;              // off: what passes through is as it was
  std::int64_t first_step = 0;  // optimizer step, 0-based; failures are noted from the start
  std::int64_t max_groups = 1;  // of a generation
  std::size_t capacity = 4096;  // prompts
};

template <class S>
class Reroll : public GenerationBatches<Reroll<S>> {
  static_assert(
      GenerationSource<S>,
      "sampler::Reroll<Sampler>: the sampler within is no source of generations; it needs `Generator`, `open(call)`, "
      "`draws_ahead() const`, `capture() const`, `restore_source(state)` and `root() const` (sampler::Rollouts has "
      "them)");

 public:
  using Config = RerollConfig;
  using Generator = typename S::Generator;

  Reroll(RerollConfig config, std::shared_ptr<S> source) : config_(config), source_(std::move(source)) {
    if (config.max_groups < 1 || config.first_step < 0)
      core::raise_usage(
          "sampler", 8,
          {.what = "a setting of re-rolls is out of range",
           .found = std::to_string(config.max_groups) + " groups from step " + std::to_string(config.first_step),
           .expected = "1 group or more, from step 0 or later"});
  }

  [[nodiscard]] const auto& root() const { return source_->root(); }

  [[nodiscard]] std::unique_ptr<OpenGeneration> open(GenerationCall call) {
    if (!config_.on) return source_->open(std::move(call));
    return std::make_unique<Injected>(*this, std::move(call));
  }

  // What fails decides on the prompts of the next generation.
  [[nodiscard]] bool draws_ahead() const { return !config_.on && source_->draws_ahead(); }

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

  // A generation with prompts of the list in the places of its last ones. The list changes when it is whole.
  class Injected final : public OpenGeneration {
   public:
    Injected(Reroll& reroll, GenerationCall call) : reroll_(reroll), number_(call.number), failed_(reroll.failed_) {
      const std::vector<std::size_t> ordered = reroll.root().prompts_of(call);
      chosen_ = ordered;
      if (const auto before = reroll.assigned_.find(number_); before != reroll.assigned_.end()) {
        chosen_ = before->second;
      } else {
        std::erase_if(failed_,
                      [&](std::size_t i) { return std::find(ordered.begin(), ordered.end(), i) != ordered.end(); });
        const std::size_t most =
            std::min({failed_.size(), static_cast<std::size_t>(reroll.config_.max_groups), chosen_.size()});
        for (; call.step >= reroll.config_.first_step && injected_ < most; ++injected_) {
          chosen_[chosen_.size() - 1 - injected_] = failed_.front();
          failed_.pop_front();
        }
      }
      others_ = chosen_ != ordered;
      call.prompts = chosen_;
      source_ = reroll.source_->open(std::move(call));
      made_.number = number_;
    }

    std::size_t pull() override {
      const std::size_t rows = source_->pull();
      made_.generation = source_->made().generation;
      if (source_->whole()) {
        made_ = std::move(source_->made());
        close();
      }
      return finish_rows(rows);
    }

   private:
    void close() {
      std::size_t buffered = 0;
      for (std::size_t g = 0; g < chosen_.size(); ++g)
        if (failed_.size() < reroll_.config_.capacity && has_failed(*made_.generation, g, chosen_.size()) &&
            std::find(failed_.begin(), failed_.end(), chosen_[g]) == failed_.end()) {
          failed_.push_back(chosen_[g]);
          ++buffered;
        }
      reroll_.failed_ = std::move(failed_);
      auto& assigned = reroll_.assigned_;
      if (others_) assigned[number_] = chosen_;
      assigned.erase(assigned.begin(), assigned.lower_bound(number_ - remembered));
      core::Metrics& metrics = made_.about.metrics;
      metrics.mean("reroll_buffered", static_cast<double>(buffered), 1.0);
      metrics.mean("reroll_injected", static_cast<double>(injected_), 1.0);
      metrics.last("reroll_buffer_size", static_cast<double>(reroll_.failed_.size()));
    }

    Reroll& reroll_;
    std::int64_t number_;
    std::deque<std::size_t> failed_;   // as it will be
    std::vector<std::size_t> chosen_;  // prompts
    bool others_ = false;              // than those of the order
    std::size_t injected_ = 0;         // groups
    std::unique_ptr<OpenGeneration> source_;
  };

  [[nodiscard]] static bool has_failed(const Generation& generation, std::size_t group, std::size_t groups) {
    const core::RewardTable& rewards = generation.rewards;
    const std::size_t size = generation.episodes.size() / groups;
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
