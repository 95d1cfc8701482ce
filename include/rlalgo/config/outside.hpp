// What a run reads of the world around it (os/outside.hpp): taken when it begins, and kept (run/outside.hpp).
//
//   a run that goes on from a checkpoint, an evaluation of one      what the checkpoint has
//   an evaluation of a finished run's output_dir                    what its run.json has
//   a run whose data were prepared before                           what they were prepared with (assembly/load_preferences.hpp)
//   any other                                                       what there is now
// On several ranks it is rank 0's.
//
// Errors: those of os/outside.hpp and run/checkpoint.hpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/config/ranks.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/os/outside.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/outside.hpp>

namespace rlalgo::config {

// Whether the newest checkpoint in output_dir is asked for, by its name.
[[nodiscard]] inline bool resumes_last(const RunConfig& config) {
  return config.resume_from_checkpoint == "last" && !std::filesystem::is_directory("last");
}

// What a training goes on with; nothing where it begins.
[[nodiscard]] inline std::optional<os::Outside> outside_to_resume(const RunConfig& config) {
  const bool last = resumes_last(config);
  if (config.resume_from_checkpoint && !last) return run::kept_outside(*config.resume_from_checkpoint);
  if (!(config.auto_resume_from_checkpoints || last) || run::list_checkpoints(config.output_dir).empty())
    return std::nullopt;
  return run::kept_outside(config.output_dir);
}

inline void take_outside(RunConfig& config, distributed::World& world, const std::optional<os::Outside>& kept) {
  config.outside = kept ? *kept : os::Outside::now();
  config.outside_kept = kept.has_value();
  if (world.size() > 1) {
    const data::Json own = {run::to_json(config.outside), config.outside_kept};
    const data::Json first = data::Json::parse(world.gather("time and place", own.dump()).front());
    config.outside = run::outside_of(first.at(0)).value();
    config.outside_kept = first.at(1).get<bool>();
  }
  config.settings["outside"] = run::to_json(config.outside);
}

}  // namespace rlalgo::config
