// Rewards of fresh generations become advantages, and log-probs that must be known before the weights change are taken.
// No gradient.
//
//   assign_advantages   rewards → one advantage per episode, by the method's aggregation and estimator
//   settle              all of that for the generations made for one step: settle_fresh of their rows as they come, and
//                       settle_later when all have
//
// Invariant: when an optimizer step begins, every row that will be trained after the weights change carries
// old_log_probs, or is one that takes its generator's (sampler::RolloutRows::complete). Rows trained in the step that
// generated them need none: ratio 1 by definition.
// A replayed row is as sampler::ReplayConfig says: it brings its generator's log-probs, or has none and gets the policy's.
//
// Errors: [rlalgo.trainer.32] a reward, a weight or a divergence from the reference that is infinite, or larger than
// float32 can hold.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include <rlalgo/aggregation/concept.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/metrics.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/reward/function.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/rollout_rows.hpp>

namespace rlalgo::trainer {

// Σ_t m (o − f) of each episode, over all its rows, both of which they must carry; adds kl, the mean of o − f over the loss tokens,
// nats.
[[nodiscard]] inline std::vector<double> divergences(std::span<const data::Episode> episodes, core::Metrics& metrics) {
  std::vector<double> out;
  double total = 0, tokens = 0;
  for (const data::Episode& episode : episodes) {
    double sum = 0;
    for (const data::Row& row : episode.rows) {
      for (std::size_t t = 0; t < row.completion_ids.size(); ++t)
        if (row.loss_mask.empty() || row.loss_mask[t] != 0)
          sum += static_cast<double>(row.old_log_probs[t]) - static_cast<double>(row.reference_log_probs[t]);
      tokens += static_cast<double>(sampler::loss_tokens(row));
    }
    out.push_back(sum);
    total += sum;
  }
  metrics.mean("kl", total, tokens);
  return out;
}

// Every number that advantages are made of, whichever sampler brings it. A single infinite one would silently give its
// whole group the advantage 0.
inline void require_usable(const core::RewardTable& rewards, std::span<const double> divergence) {
  const auto require = [](double value, const char* what, const std::string& where) {
    if (reward::is_usable(value)) return;
    core::raise("trainer", 32,
                {.what = "no advantage can be made of " + std::string(what),
                 .found = reward::detail::number_text(value),
                 .expected = "a finite number up to 3.4e38",
                 .where = where});
  };
  const auto number = [](double value) {  // NaN says something of a reward only
    return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
  };
  for (std::size_t k = 0; k < rewards.columns(); ++k) {
    require(number(rewards.weights()[k]), "the weight of a reward", rewards.names()[k]);
    for (std::size_t i = 0; i < rewards.rows(); ++i)
      require(rewards(i, k), "a reward", rewards.names()[k] + ", completion " + std::to_string(i + 1));
  }
  for (std::size_t i = 0; i < rewards.rows(); ++i)
    require(rewards.weighted_sum(i), "the weighted sum of the rewards", "completion " + std::to_string(i + 1));
  for (std::size_t i = 0; i < divergence.size(); ++i)
    require(number(divergence[i]), "the divergence from the reference", "completion " + std::to_string(i + 1));
}

namespace detail {

// The rewards and the groups of some episodes of a generation, as a batch of their own.
[[nodiscard]] inline std::pair<core::RewardTable, core::Groups> cut_out(const sampler::FreshEpisodes& some) {
  const core::RewardTable& all = some->rewards;
  std::pair<core::RewardTable, core::Groups> out;
  out.first = core::RewardTable(all.names(), all.weights(), some.end - some.begin);
  for (std::size_t i = some.begin; i < some.end; ++i)
    for (std::size_t k = 0; k < all.columns(); ++k) out.first(i - some.begin, k) = all(i, k);
  for (const core::Span group : some->groups)
    if (group.begin >= some.begin && group.end <= some.end) out.second.append(group.size());
  return out;
}

}  // namespace detail

// Sets Episode::advantage and adds frac_reward_zero_std: the share of episodes whose scaling deviation is at most 1e-8 (an
// undefined deviation counts as non-zero). Episodes of a part of a generation get what they would get in the whole, where
// estimator and aggregation stay within groups.
template <class G, class A>
void assign_advantages(const G& aggregation, const A& estimator, const sampler::FreshEpisodes& some,
                       core::Metrics& metrics) {
  std::vector<double> divergence;
  if (aggregation::needs_divergence(aggregation)) divergence = divergences(some.episodes(), metrics);
  const auto assign = [&](const core::RewardTable& rewards, const core::Groups& groups) {
    require_usable(rewards, divergence);
    const aggregation::Result result = aggregation::aggregate(aggregation, estimator, rewards, groups, divergence);
    const std::span<data::Episode> episodes = some.episodes();
    double zero = 0;
    for (std::size_t i = 0; i < episodes.size(); ++i) {
      episodes[i].advantage = result.advantage[i];
      zero += std::abs(result.spread[i]) <= 1e-8 ? 1.0 : 0.0;
    }
    metrics.mean("frac_reward_zero_std", zero, static_cast<double>(episodes.size()));
  };
  if (some.is_whole()) return assign(some->rewards, some->groups);
  const auto [rewards, groups] = detail::cut_out(some);
  assign(rewards, groups);
}

// The episodes of fresh generations that no micro-batch of this step holds: they are trained on after a weight update.
[[nodiscard]] inline std::vector<data::Episode*> trained_later(const sampler::RolloutBatch& batch) {
  std::unordered_set<const data::Episode*> now;
  for (const auto& part : batch.parts) now.insert(part.begin(), part.end());
  std::vector<data::Episode*> later;
  for (const sampler::FreshEpisodes& fresh : batch.fresh)
    for (data::Episode& episode : fresh.episodes())
      if (!now.contains(&episode)) later.push_back(&episode);
  return later;
}

[[nodiscard]] inline std::vector<data::Row*> all_rows(std::span<const sampler::FreshEpisodes> fresh) {
  std::vector<data::Row*> rows;
  for (const sampler::FreshEpisodes& some : fresh)
    for (data::Episode& episode : some.episodes())
      for (data::Row& row : episode.rows) rows.push_back(&row);
  return rows;
}

struct Settling {
  std::size_t rows_per_pass = 8;
  bool reference = false;               // the loss reads its log-probs
  bool old = false;                     // the loss reads those of the policy that generated
  distributed::World* world = nullptr;  // of more than one rank: each scores its share, and all have all columns
};

namespace detail {

// Whether the old log-probs of a fresh row are its generator's: it was replayed with them, or is of other weights than those
// that are trained and nothing else corrects for that. A replayed row without them gets the policy's.
[[nodiscard]] inline bool keeps_generators(const data::Row& r, bool replayed, const sampler::Scorers& scorers) {
  if (replayed) return !r.old_log_probs.empty();
  return !scorers.corrects_sampling && r.weights_version != scorers.version && !r.completion_ids.empty() &&
         r.sampling_log_probs.size() == r.completion_ids.size();
}

// The fresh rows that the policy is to score before the weights change: those trained later; and of those trained now the
// replayed ones, where the ratio would else be to the weights that drew them.
[[nodiscard]] inline std::vector<data::Row*> lacking_old(const sampler::RolloutBatch& batch,
                                                         const sampler::Scorers& scorers) {
  const std::vector<data::Episode*> all = trained_later(batch);
  const std::unordered_set<data::Episode*> later(all.begin(), all.end());
  std::vector<data::Row*> out;
  for (const sampler::FreshEpisodes& fresh : batch.fresh)
    for (std::size_t i = fresh.begin; i < fresh.end; ++i) {
      data::Episode& episode = fresh->episodes[i];
      const bool replayed = fresh->is_replayed(i), is_later = later.contains(&episode);
      for (data::Row& r : episode.rows) {
        if (keeps_generators(r, replayed, scorers)) continue;
        const bool renewed = replayed && !scorers.corrects_sampling && r.weights_version != scorers.version;
        if (renewed || is_later) out.push_back(&r);
      }
    }
  return out;
}

// `rows` are the same on all ranks.
inline void score_together(model::Policy& policy, std::span<data::Row* const> rows, const Settling& settling,
                           double temperature, sampler::RolloutColumn column) {
  distributed::World* const world = settling.world;
  if (world == nullptr || world->size() == 1)
    return sampler::RolloutRows::score(policy, rows, settling.rows_per_pass, temperature, column);
  const distributed::Share share = world->share_of_rows(rows.size());
  const auto own = rows.subspan(share.begin, share.size());
  sampler::RolloutRows::score(policy, own, settling.rows_per_pass, temperature, column);
  std::vector<float> flat;
  if (world->leads_group())
    for (const data::Row* row : own) flat.insert(flat.end(), (row->*column).begin(), (row->*column).end());
  std::vector<float> all;
  for (const std::string& bytes : world->gather("log-probs", distributed::to_bytes(flat)))
    for (const float value : distributed::floats_of(bytes)) all.push_back(value);
  auto next = all.begin();
  for (data::Row* row : rows) {
    const auto end = next + static_cast<std::ptrdiff_t>(row->completion_ids.size());
    (row->*column).assign(next, end);
    next = end;
  }
}

}  // namespace detail

// Of `fresh`, all or some of those of a batch.
template <class G, class A>
void settle_fresh(std::span<const sampler::FreshEpisodes> fresh, const G& aggregation, const A& estimator,
                  const sampler::Scorers& scorers, const Settling& settling, core::Metrics& metrics) {
  const auto score = [&](model::Policy& policy, sampler::RolloutColumn column) {
    detail::score_together(policy, all_rows(fresh), settling, scorers.temperature, column);
  };
  const bool divergence = aggregation::needs_divergence(aggregation);
  if ((settling.reference || divergence) && scorers.reference != nullptr)
    score(*scorers.reference, &data::Row::reference_log_probs);
  std::vector<std::pair<data::Row*, std::vector<float>>> kept;
  if (divergence) {
    for (const sampler::FreshEpisodes& some : fresh)
      for (std::size_t i = some.begin; i < some.end; ++i)
        for (data::Row& r : some->episodes[i].rows)
          if (detail::keeps_generators(r, some->is_replayed(i), scorers)) kept.emplace_back(&r, r.old_log_probs);
    score(scorers.policy, &data::Row::old_log_probs);
  }
  for (const sampler::FreshEpisodes& some : fresh) assign_advantages(aggregation, estimator, some, metrics);
  for (auto& [row, old] : kept) row->old_log_probs = std::move(old);
}

// Of a batch whose rows have all come.
template <class G>
void settle_later(const sampler::RolloutBatch& batch, const G& aggregation, const sampler::Scorers& scorers,
                  const Settling& settling) {
  if (settling.old && !aggregation::needs_divergence(aggregation))
    detail::score_together(scorers.policy, detail::lacking_old(batch, scorers), settling, scorers.temperature,
                           &data::Row::old_log_probs);
}

template <class G, class A>
void settle(const sampler::RolloutBatch& batch, const G& aggregation, const A& estimator,
            const sampler::Scorers& scorers, const Settling& settling, core::Metrics& metrics) {
  settle_fresh(batch.fresh, aggregation, estimator, scorers, settling, metrics);
  settle_later(batch, aggregation, scorers, settling);
}

}  // namespace rlalgo::trainer
