// Which checkpoint a run goes on from, and what may differ from the run that saved it.
//
// A run has an id, drawn when it starts afresh: run.json and every checkpoint carry it, and a resumed run keeps that of
// its checkpoint. Automatic resume takes the newest whole checkpoint of the run that run.json describes; whatever other
// runs left in output_dir stays out.
//
// `identity` are the settings without which the saved cursor and optimizer make no sense (seed, batch geometry, number
// of rows, parameter names): a difference is an error. `settings` are all others, what the rows, the rewards' code and
// frozen weights hold among them: a difference is an error, too, unless the rules say otherwise.
//
// Errors: [rlalgo.run.6] of another run (identity differs); [rlalgo.run.7] saved without optimizer state;
// [rlalgo.run.12] a setting differs; those of checkpoint.hpp.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/run_info.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

// By the name of a setting.
struct ResumeRules {
  std::set<std::string> free;      // may differ: nothing that is computed from here on depends on it
  std::set<std::string> extended;  // a difference is a warning: the run goes on to another end than it was planned for
  bool force = false;              // every difference is a warning
};

// Sixteen hexadecimal digits that no other run has.
[[nodiscard]] std::string new_run_id();

// The differences of two flat objects, by key: "seed: 7 in the checkpoint, 8 now".
struct Difference {
  std::string key;
  std::string text;
};

[[nodiscard]] std::vector<Difference> differences(const Json& saved, const Json& now);

namespace detail {

std::string joined(const std::vector<Difference>& parts);

}  // namespace detail

// Refuses a checkpoint of another run, or of the same under other settings; returns warnings, one per difference.
[[nodiscard]] std::vector<std::string> check_resumable(const LoadedCheckpoint& checkpoint, const Json& identity,
                                                       const Json& settings, const ResumeRules& rules = {});

// The newest whole checkpoint of output_dir that the run of its run.json saved (auto_resume_from_checkpoints); none:
// the run starts afresh. Without run.json any run's will do. `tell` hears of every newer one that is passed over.
[[nodiscard]] std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& output_dir, const std::function<void(const std::string&)>& tell = {});

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/resume_impl.hpp>
#endif
