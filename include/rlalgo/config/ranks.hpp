// A configuration on several ranks: what a file says of one rank, as the run of all of them means it.
//
// micro_batch_size, gradient_accumulation_steps (or batch_size) and trl.steps_per_generation are of one rank, as in axolotl
// and TRL; trl.generation_batch_size is of all. So the run has the batches of one rank whose gradient_accumulation_steps
// (and steps_per_generation) are so many times as large, and its records, checkpoints and settings are that run's: it can be
// resumed on another number of ranks as long as the product stays.
//
// Errors: [rlalgo.config.37] what is not done with several ranks is asked for (usage); [.38] the ranks have different
// versions or settings; [.39] ddp_timeout below 1 (usage).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/version.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/run/resume.hpp>

namespace rlalgo::config {

inline constexpr std::int64_t default_ddp_timeout = 60;  // seconds

// Before the relations between keys are checked.
inline void spread_over(RunConfig& c, int ranks) {
  if (c.ddp_timeout.value_or(1) < 1)
    core::raise_usage("config", 39,
                      {.what = "ddp_timeout is out of range",
                       .found = std::to_string(*c.ddp_timeout),
                       .expected = "1 or more, in seconds",
                       .where = c.place("ddp_timeout")});
  if (ranks == 1) return;
  c.gradient_accumulation_steps *= ranks;
  if (c.trl.steps_per_generation) *c.trl.steps_per_generation *= ranks;
  const auto refuse = [&](const std::string& what, const std::string& key, const std::string& remedy) {
    core::raise_usage("config", 37,
                      {.what = what + " (" + key + ") is not done with several ranks",
                       .found = std::to_string(ranks) + " ranks",
                       .where = c.place(key),
                       .remedy = remedy});
  };
  if (is_preference(c)) return;
  if (c.trl.generates_beside() && c.trl.streaming_partial_batch)
    refuse("training on groups while the others are made", "trl.streaming_partial_batch",
           "set trl.streaming_partial_batch: false, or train on one rank");
}

// The ranks of a run: those that it was given, or one.
[[nodiscard]] inline std::shared_ptr<distributed::World> world_of(const RunConfig& c) {
  return c.world != nullptr ? c.world : std::make_shared<distributed::World>();
}

// The first thing that ranks compare: the version of the program and every setting.
inline void require_agreement(const RunConfig& c, distributed::World& world) {
  if (world.size() == 1) return;
  const run::Json own = {{"version", version}, {"settings", c.settings}};
  const auto all = world.gather("settings", own.dump(-1, ' ', false, run::Json::error_handler_t::replace));
  const run::Json first = run::Json::parse(all.front());
  for (std::size_t r = 1; r < all.size(); ++r) {
    const run::Json theirs = run::Json::parse(all[r]);
    const auto refuse = [&](const std::string& key, const std::string& found, const std::string& expected) {
      core::raise("config", 38,
                  {.what = "the ranks do not have the same " + key,
                   .found = found + " on rank " + std::to_string(r),
                   .expected = expected + " as on rank 0",
                   .remedy = "start all ranks with the same program, configuration file and options"});
    };
    if (theirs.at("version") != first.at("version"))
      refuse("version of rlalgo", theirs.at("version").dump(), first.at("version").dump());
    const auto value = [](const run::Json& one, const std::string& key) {
      const auto found = one.at("settings").find(key);
      return found == one.at("settings").end() ? std::string("no value") : found->dump();
    };
    for (const run::Json* side : {&first, &theirs})
      for (const auto& [key, held] : side->at("settings").items())
        if (value(theirs, key) != value(first, key)) refuse(key, value(theirs, key), value(first, key));
  }
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
