// Groups that taught something are trained on again, in the place of groups that teach nothing.
//
//   a group has signal where some reward function gave its completions different values
//   priority = Σ_i |A_i| · Σ_k std₁ of function k over the group,   A: advantages of the group alone
//
// Of each generation the groups without signal are replaced, each by another group of the buffer, drawn with probability
// ∝ priority and without doubles; then its own groups with signal are stored. So no group is replayed within the
// generation that drew it. The buffer holds `capacity` groups in host memory: a full one gives up its lowest priority, and only
// for a higher one. Groups that are more than `max_age` updates older than the generation are thrown away.
//
// Groups are stored as they were drawn and scored, so everything that follows is computed anew for the batch that they
// are put into: advantages, the denominators of the step, reference and old log-probs, and the correction to the weights
// that drew them. With recompute_log_probs off, their old log-probs are those of the generator: the clipped ratio is to the
// weights that drew them, and a correction has nothing left to correct. With it on the ratio begins at 1, and only a
// correction tells how far the policy has moved; rows of this generation, where they are of the very weights that are trained
// and drawn in this process, get NaN for their sampling log-probs, so that it is exactly 1 for them (sampler/prefetch.hpp).
// Draws are a function of seed, number of the generation and place.
//
// Source: axolotl's ReplayBuffer. Departures: stored after the replacement, not before; nothing stale is kept; an age; in
// checkpoints; replayed groups count as what they are in every denominator.
// Metrics: replay_buffer_replacements, groups of this generation; replay_buffer_size. Metrics of rewards and lengths are
// of what was drawn.
// Errors: [rlalgo.sampler.8] settings out of range (usage); [rlalgo.sampler.7]; those of the source.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/core/moments.hpp>
#include <rlalgo/core/philox.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/detail/unmoved_rows.hpp>
#include <rlalgo/sampler/generation_batches.hpp>
#include <rlalgo/sampler/open_generation.hpp>

namespace rlalgo::sampler {

struct ReplayConfig {
  std::size_t capacity = 0;         // groups; 0: off, what passes through is as it was
  std::int64_t max_age = -1;        // updates; below 0: no limit
  bool recompute_log_probs = true;  // old log-probs are those of the policy when they are trained on again
  // Advantages [samples] of one group alone, by the method's own estimator and aggregation; empty: all 1.
  std::function<std::vector<double>(const core::RewardTable&, const core::Groups&)> advantages = {};
};

template <class S>
class Replay : public GenerationBatches<Replay<S>> {
  static_assert(GenerationSource<S>,
                "sampler::Replay<Sampler>: the sampler within is no source of generations; it needs `Generator`, "
                "`open(call)`, `draws_ahead() const`, `capture() const`, `restore_source(state)` and `root() const` "
                "(sampler::Rollouts has them)");

 public:
  using Config = ReplayConfig;
  using Generator = typename S::Generator;

  Replay(ReplayConfig config, std::shared_ptr<S> source) : config_(std::move(config)), source_(std::move(source)) {
    if (config_.capacity > 1'000'000)
      core::raise_usage("sampler", 8,
                        {.what = "the replay buffer is out of range",
                         .found = std::to_string(config_.capacity) + " groups",
                         .expected = "at most 1000000"});
  }

  [[nodiscard]] const auto& root() const { return source_->root(); }

  [[nodiscard]] std::unique_ptr<OpenGeneration> open(GenerationCall call) {
    if (config_.capacity == 0) return source_->open(std::move(call));
    return std::make_unique<Replayed>(*this, std::move(call));
  }
  [[nodiscard]] bool draws_ahead() const { return source_->draws_ahead(); }

  [[nodiscard]] std::function<Json()> capture() const {
    if (config_.capacity == 0) return source_->capture();
    return [within = source_->capture(), entries = entries_] {
      Json out = within(), groups = Json::array();
      for (const Entry& entry : entries)
        groups.push_back({{"priority", entry.priority}, {"group", detail::pack_generation(*entry.group, 0)}});
      out["replay"] = std::move(groups);
      return out;
    };
  }

  void restore_source(const Json& state) {
    std::vector<Entry> entries;
    if (state.contains("replay"))
      for (const Json& packed : state["replay"]) {
        const auto group =
            detail::unpack_generation(packed.at("group"), root().prompts(), {0}, root().geometry().num_generations);
        if (group->prompts.size() != 1) detail::raise_state("a stored group without its prompt");
        for (data::Episode& r : group->episodes) detail::decode_rows(r, [&](auto ids) { return root().decode(ids); });
        entries.push_back({packed.at("priority").template get<double>(), group});
      }
    source_->restore_source(state);
    entries_ = std::move(entries);
  }

 private:
  // One group, as it was drawn and scored. Never changes: captures share it.
  struct Entry {
    double priority = 0.0;
    std::shared_ptr<const Generation> group;  // prompts: its one
  };

  // Which groups are replaced is known of a whole generation: it is finished in one.
  class Replayed final : public OpenGeneration {
   public:
    Replayed(Replay& replay, GenerationCall call) : replay_(replay), step_(call.step) {
      call.groups = 0;
      source_ = replay.source_->open(std::move(call));
      made_.number = source_->made().number;
    }
    void draw() override { source_->draw(); }
    std::size_t pull() override {
      made_ = finish(*source_);
      replay_.replay(made_, step_);
      return finish_rows(made_.generation->episodes.size());
    }

   private:
    Replay& replay_;
    std::int64_t step_;
    std::unique_ptr<OpenGeneration> source_;
  };

  // Replaces groups of a generation that is scored, and keeps what it teaches.
  void replay(Made& made, std::int64_t step) {
    Generation& generation = *made.generation;
    const std::size_t groups = groups_of(generation);
    std::vector<Entry> fresh;
    std::vector<std::size_t> empty;
    const std::vector<std::size_t> prompts = chosen(generation, made.number);
    for (std::size_t g = 0; g < groups; ++g) {
      Entry entry = take(generation, g, prompts[g]);
      if (entry.priority > 0)
        fresh.push_back(std::move(entry));
      else
        empty.push_back(g);
    }
    const std::int64_t now = generation.episodes.front().first().weights_version;
    if (config_.max_age >= 0)
      std::erase_if(entries_, [&](const Entry& e) {
        return now - e.group->episodes.front().first().weights_version > config_.max_age;
      });
    const std::size_t replaced = replace(generation, empty, made.number);
    for (Entry& entry : fresh) add(std::move(entry));
    if (config_.recompute_log_probs && inference::draws_as_trained(root().generator()))
      detail::forget_sampling(generation, 0, generation.episodes.size(), step);
    made.about.metrics.mean("replay_buffer_replacements", static_cast<double>(replaced), 1.0);
    made.about.metrics.last("replay_buffer_size", static_cast<double>(entries_.size()));
  }

  [[nodiscard]] std::size_t groups_of(const Generation& generation) const {
    return generation.episodes.size() / static_cast<std::size_t>(root().geometry().num_generations);
  }
  [[nodiscard]] std::vector<std::size_t> chosen(const Generation& generation, std::int64_t number) const {
    return generation.prompts.empty() ? root().order().chunk(static_cast<std::uint64_t>(number)) : generation.prompts;
  }

  [[nodiscard]] Entry take(const Generation& generation, std::size_t g, std::size_t prompt) const {
    const auto size = static_cast<std::size_t>(root().geometry().num_generations);
    const core::RewardTable& all = generation.rewards;
    auto group = std::make_shared<Generation>();
    group->rewards = core::RewardTable(all.names(), all.weights(), size);
    group->groups.append(size);
    group->prompts = {prompt};
    double spread = 0.0;
    std::vector<double> column(size);
    for (std::size_t k = 0; k < all.columns(); ++k) {
      for (std::size_t i = 0; i < size; ++i) column[i] = group->rewards(i, k) = all(g * size + i, k);
      if (const double deviation = core::moments(column).deviation; deviation > 0) spread += deviation;
    }
    if (spread == 0.0) return {};
    double total = static_cast<double>(size);
    if (config_.advantages) {
      total = 0.0;
      for (const double a : config_.advantages(group->rewards, group->groups)) total += std::abs(a);
    }
    for (std::size_t i = 0; i < size; ++i) {
      group->episodes.push_back(generation.episodes[g * size + i]);
      if (!config_.recompute_log_probs)
        for (data::Row& r : group->episodes.back().rows) r.old_log_probs = r.sampling_log_probs;
    }
    return {std::max(total * spread, 1e-8), std::move(group)};
  }

  // Puts stored groups into the places `empty`; how many there were for them.
  std::size_t replace(Generation& generation, const std::vector<std::size_t>& empty, std::int64_t number) const {
    const auto size = static_cast<std::size_t>(root().geometry().num_generations);
    std::vector<const Entry*> left;
    for (const Entry& entry : entries_) left.push_back(&entry);
    std::size_t replaced = 0;
    for (const std::size_t g : empty) {
      if (left.empty()) break;
      double total = 0.0;
      for (const Entry* entry : left) total += entry->priority;
      double draw = total * core::uniform({root().config().seed, core::Stream::data},
                                          static_cast<std::uint64_t>(number), (std::uint64_t{1} << 40U) + g);
      std::size_t drawn = 0;
      while (drawn + 1 < left.size() && (draw -= left[drawn]->priority) >= 0) ++drawn;
      const Generation& group = *left[drawn]->group;
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(drawn));
      if (generation.prompts.empty()) generation.prompts = chosen(generation, number);
      if (generation.replayed.empty()) generation.replayed.assign(groups_of(generation), 0);
      generation.prompts[g] = group.prompts[0];
      generation.replayed[g] = 1;
      for (std::size_t i = 0; i < size; ++i) {
        generation.episodes[g * size + i] = group.episodes[i];
        for (std::size_t k = 0; k < group.rewards.columns(); ++k)
          generation.rewards(g * size + i, k) = group.rewards(i, k);
      }
      ++replaced;
    }
    return replaced;
  }

  void add(Entry entry) {
    if (entries_.size() < config_.capacity) {
      entries_.push_back(std::move(entry));
      return;
    }
    const auto lowest = std::min_element(entries_.begin(), entries_.end(),
                                         [](const Entry& a, const Entry& b) { return a.priority < b.priority; });
    if (entry.priority > lowest->priority) *lowest = std::move(entry);
  }

  ReplayConfig config_;
  std::shared_ptr<S> source_;
  std::vector<Entry> entries_;
};

}  // namespace rlalgo::sampler
