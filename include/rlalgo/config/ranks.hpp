// A configuration on several ranks: what a file says of one rank, as the run of all of them means it.
//
// micro_batch_size, gradient_accumulation_steps (or batch_size) and trl.steps_per_generation are of one rank, as in axolotl
// and TRL; trl.generation_batch_size is of all. So the run has the batches of one rank whose gradient_accumulation_steps
// (and steps_per_generation) are so many times as large, and its records, checkpoints and settings are that run's: it can be
// resumed on another number of ranks as long as the product stays.
// Of context groups (context_parallel_size) the number of groups counts, not that of ranks: their ranks share tokens, not rows.
//
// Errors: [rlalgo.config.37] what is not done with sharded weights is asked for (usage); [.38] the ranks have different
// versions, settings or inputs; [.39] ddp_timeout below 1 (usage); [.40] context_parallel_size does not divide the ranks (usage);
// [.60] expert_parallel_size does not fit the ranks (usage);
// [.41] dp_shard_size, dp_replicate_size and
// context_parallel_size do not make the number of ranks (usage).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/distributed/rank_cards.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config {

inline constexpr std::int64_t default_ddp_timeout = 60;  // seconds

namespace detail {

[[noreturn]] inline void refuse_context_size(const RunConfig& c, const std::string& expected,
                                             const std::string& remedy) {
  core::raise_usage("config", 40,
                    {.what = "context_parallel_size does not fit",
                     .found = std::to_string(c.context_parallel_size),
                     .expected = expected,
                     .where = c.place("context_parallel_size"),
                     .remedy = remedy});
}

[[noreturn]] inline void refuse_expert_groups(const RunConfig& c, const std::string& expected,
                                              const std::string& remedy) {
  core::raise_usage("config", 60,
                    {.what = "expert_parallel_size does not fit",
                     .found = std::to_string(c.expert_parallel_size),
                     .expected = expected,
                     .where = c.place("expert_parallel_size"),
                     .remedy = remedy});
}

}  // namespace detail

// Before the relations between keys are checked.
inline void spread_over(RunConfig& c, int ranks) {
  c.ranks = ranks;
  if (c.ddp_timeout.value_or(1) < 1)
    core::raise_usage("config", 39,
                      {.what = "ddp_timeout is out of range",
                       .found = std::to_string(*c.ddp_timeout),
                       .expected = "1 or more, in seconds",
                       .where = c.place("ddp_timeout")});
  if (c.context_parallel_size < 1) detail::refuse_context_size(c, "1 or more", "leave it out, or set it to 1");
  if (ranks == 1) return;
  if (ranks % c.context_parallel_size != 0)
    detail::refuse_context_size(
        c, "a divisor of " + std::to_string(ranks) + ", the number of ranks",
        "start a multiple of context_parallel_size ranks: each group of so many shares its rows");
  const std::int64_t groups = ranks / c.context_parallel_size;
  c.gradient_accumulation_steps *= groups;
  if (c.trl.steps_per_generation) *c.trl.steps_per_generation *= groups;
}

// As many GPUs as a machine has, mostly: so far every rank's sending to every other one is no more than a ring sends.
inline constexpr int most_ranks_in_order = 8;

// How ranks add tensors of GPUs, with the key sum_order.
[[nodiscard]] inline distributed::SumOrder sum_order_of(const RunConfig& c) {
  const bool library = c.sum_order == "nccl" || (c.sum_order == "auto" && c.ranks > most_ranks_in_order);
  return library && c.ranks > 1 && !at::Device(c.device).is_cpu() ? distributed::SumOrder::library
                                                                  : distributed::SumOrder::ranks;
}

// Before anything is loaded.
inline void check_sharding(const RunConfig& c, int ranks, std::vector<std::string>& warnings) {
  const ShardingConfig& s = c.sharding;
  const std::int64_t groups = ranks / c.context_parallel_size;  // context groups, which dp_shard_size counts
  const std::int64_t shards = s.shard_size.value_or(s.on() ? groups / s.replicate_size.value_or(1) : 1);
  const std::int64_t replicas =
      s.replicate_size.value_or(std::max<std::int64_t>(1, groups / std::max<std::int64_t>(1, shards)));
  if (ranks > 1 && (s.shard_size || s.replicate_size) && shards * replicas != groups) {
    const bool shared = c.context_parallel_size > 1;
    core::raise_usage("config", 41,
                      {.what = std::string("dp_shard_size × dp_replicate_size") +
                               (shared ? " × context_parallel_size" : "") + " is not the number of ranks",
                       .found = std::to_string(shards) + " × " + std::to_string(replicas) +
                                (shared ? " × " + std::to_string(c.context_parallel_size) : std::string()) + " for " +
                                std::to_string(ranks) + " ranks",
                       .where = c.place(s.shard_size ? "dp_shard_size" : "dp_replicate_size")});
  }
  if (s.on() && ranks == 1) warnings.push_back(s.key + " has no effect: one rank holds everything");
  if (c.sum_order == "nccl" && sum_order_of(c) == distributed::SumOrder::ranks)
    warnings.push_back(std::string("sum_order: nccl has no effect: ") +
                       (ranks == 1 ? "one rank has nothing to add" : "on the CPU sums are in the order of the ranks"));
  if (ranks == 1 || !c.divides_model()) return;
  const std::int64_t experts = c.expert_parallel_size, holders = s.on() ? shards * c.context_parallel_size : 1;
  if (ranks % experts != 0)
    detail::refuse_expert_groups(
        c, "a divisor of " + std::to_string(ranks) + ", the number of ranks",
        "start a multiple of expert_parallel_size ranks: each group of so many shares the experts");
  if (std::max(experts, holders) % std::min(experts, holders) != 0)
    detail::refuse_expert_groups(
        c, "a divisor or a multiple of " + std::to_string(holders) + ", the ranks that share the other weights",
        "set dp_shard_size to a divisor or a multiple of expert_parallel_size");
  const auto refuse = [&](const std::string& what, const std::string& key, const std::string& remedy) {
    core::raise_usage("config", 37,
                      {.what = what + " (" + key + ") is not done with sharded weights",
                       .found = (experts > 1 ? "expert_parallel_size: " + std::to_string(experts) + ", " : "") +
                                (s.on() ? s.layout.value_or("") + ", " : "") + std::to_string(ranks) + " ranks",
                       .where = c.place(key),
                       .remedy = remedy});
  };
  if (moments_of(c.optimizer) == Moments::blockwise_8bit)
    refuse("optimizer: " + c.optimizer, "optimizer",
           "set optimizer: adamw_torch_fused: blocks of 8-bit moments are of whole tensors; or take no shards");
  if (const UpdateRule rule = optimizer_named(c.optimizer).rule;
      rule == UpdateRule::adafactor || rule == UpdateRule::muon)
    refuse("optimizer: " + c.optimizer, "optimizer",
           "its updates are of whole matrices: take adamw_torch_fused or lion, or no shards");
  const bool parted = s.weights() || experts > 1;
  if (parted && c.quantisation())
    refuse("a base in 4 or 8 bits", c.bnb.load_in_4bit ? "load_in_4bit" : "load_in_8bit",
           experts > 1 ? "each rank holds its own copy of such a base: remove expert_parallel_size"
                       : "each rank holds its own copy of such a base: take stage 1 or 2, or no shards");
  if (parted && !is_preference(c) && c.trl.serves())
    refuse("a generation server in this process", "nemo_gym_multi_turn",
           experts > 1 ? "set trl.use_vllm, or remove expert_parallel_size" : "deepspeed stage 2, or no shards");
}

// The ranks of a run: those that it was given, or one.
[[nodiscard]] inline std::shared_ptr<distributed::World> world_of(const RunConfig& c) {
  return c.world != nullptr ? c.world : std::make_shared<distributed::World>();
}

// The context groups of a training.
inline void form_groups(const RunConfig& c, distributed::World& world) {
  if (world.size() % c.context_parallel_size != 0)
    detail::refuse_context_size(
        c,
        world.size() == 1 ? "1 on one rank" : "a divisor of " + std::to_string(world.size()) + ", the number of ranks",
        "start the run with `rlalgo train CONFIG --nproc-per-node " + std::to_string(c.context_parallel_size) +
            "` (or a multiple), or set context_parallel_size: 1");
  if (c.expert_parallel_size > 1 && world.size() == 1)
    detail::refuse_expert_groups(c, "1 on one rank",
                                 "start the run with `rlalgo train CONFIG --nproc-per-node " +
                                     std::to_string(c.expert_parallel_size) +
                                     "` (or a multiple), or remove expert_parallel_size");
  world.set_context_size(static_cast<int>(c.context_parallel_size));
  world.set_sum_order(sum_order_of(c));
}

[[nodiscard]] inline model::Dealing dealing_of(const RunConfig& c) {
  const std::string name = c.ring_attn_func.value_or("");
  if (name == "batch_ring") return model::Dealing::neighbours;
  return name == "batch_stripe" ? model::Dealing::stripes : model::Dealing::balanced;
}

namespace detail {

// Every key of every rank's `own`, a list of sections, has the value that it has on rank 0; the first that has not is named.
inline void require_same(distributed::World& world, const std::string& operation, const run::Json& own,
                         const std::string& remedy) {
  if (world.size() == 1) return;
  const auto all = world.gather(operation, own.dump(-1, ' ', false, run::Json::error_handler_t::replace));
  const run::Json first = run::Json::parse(all.front());
  const auto value = [](const run::Json& one, const std::string& key) {
    const auto found = one.find(key);
    return found == one.end() ? std::string("no value") : found->dump();
  };
  for (std::size_t r = 1; r < all.size(); ++r) {
    const run::Json other = run::Json::parse(all[r]);
    for (std::size_t section = 0; section < own.size(); ++section) {
      const run::Json &ours = first.at(section), &theirs = other.at(section);
      for (const run::Json* side : {&ours, &theirs})
        for (const auto& [key, held] : side->items())
          if (value(theirs, key) != value(ours, key))
            core::raise("config", 38,
                        {.what = "the ranks do not have the same " + key,
                         .found = value(theirs, key) + " on rank " + std::to_string(r),
                         .expected = value(ours, key) + " as on rank 0",
                         .remedy = remedy});
    }
  }
}

}  // namespace detail

// The first thing that ranks compare: the version of the program and every setting.
inline void require_agreement(const RunConfig& c, distributed::World& world) {
  run::Json own = run::Json::array();
  own.push_back({{"version of rlalgo", version}});
  own.push_back(c.settings);
  detail::require_same(world, "settings", own, "start all ranks with the same program, configuration file and options");
}

// On GPUs: that ranks can meet over NCCL, each on its own.
inline void require_cards(const RunConfig& c, distributed::World& world) {
  const at::Device device(c.device);
  if (world.size() == 1 || device.is_cpu()) return;
  const auto library = distributed::NcclLibrary::load();
  distributed::require_own_cards(world, distributed::rank_card_here(*library, std::max<int>(0, device.index())));
}

// What they have read of what the configuration names (fingerprints.hpp).
inline void require_same_inputs(distributed::World& world, const run::Json& fingerprints) {
  run::Json own = run::Json::array();
  own.push_back(fingerprints);
  detail::require_same(world, "inputs", own, "give all ranks the same files under the same paths");
}

namespace detail {

// What leaves files for the others: rank 0 does it before they do.
template <class F>
auto first_rank_first(distributed::World& world, const std::string& what, const F& work) {
  if (world.rank() > 0) world.barrier(what);
  auto out = work();
  if (world.rank() == 0) world.barrier(what);
  return out;
}

}  // namespace detail

}  // namespace rlalgo::config
