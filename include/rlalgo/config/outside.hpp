// What a run reads of the world around it (os/outside.hpp): taken when it begins, and kept in run.json, in checkpoints
// and in prepared data as the setting `outside`.
//
//   a run that goes on from a checkpoint, an evaluation of one      what the checkpoint has
//   an evaluation of a finished run's output_dir                    what its run.json has
//   a run whose data were prepared before                           what they were prepared with (load_preferences.hpp)
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
#include <rlalgo/run/run_info.hpp>

namespace rlalgo::config {

[[nodiscard]] inline data::Json to_json(const os::Outside& outside) {
  data::Json language = data::Json::object();
  for (const auto& [name, value] : outside.language) language[name] = value;
  return {{"time", outside.time}, {"zone", outside.zone}, {"host", outside.host}, {"language", std::move(language)}};
}

// Nothing where `json` is no such object: written before it was kept.
[[nodiscard]] inline std::optional<os::Outside> outside_of(const data::Json& json) {
  if (!json.is_object() || !json.contains("time") || !json["time"].is_number_integer()) return std::nullopt;
  os::Outside out{.time = json["time"].get<std::time_t>(),
                  .zone = json.value("zone", ""),
                  .host = json.value("host", ""),
                  .language = {}};
  if (json.contains("language") && json["language"].is_object())
    for (const auto& [name, value] : json["language"].items())
      if (value.is_string()) out.language[name] = value.get<std::string>();
  return out;
}

// Of a checkpoint, or of the directory of a run.
[[nodiscard]] inline std::optional<os::Outside> kept_outside(const std::filesystem::path& directory) {
  const data::Json state = std::filesystem::exists(directory / run::state_file)
                               ? run::read_checkpoint(directory, run::Verify::sizes).state
                               : run::read_run_info(directory);
  const auto settings = state.find("settings");
  if (settings == state.end() || !settings->is_object() || !settings->contains("outside")) return std::nullopt;
  return outside_of((*settings)["outside"]);
}

// Whether the newest checkpoint in output_dir is asked for, by its name.
[[nodiscard]] inline bool resumes_last(const RunConfig& config) {
  return config.resume_from_checkpoint == "last" && !std::filesystem::is_directory("last");
}

// What a training goes on with; nothing where it begins.
[[nodiscard]] inline std::optional<os::Outside> outside_to_resume(const RunConfig& config) {
  const bool last = resumes_last(config);
  if (config.resume_from_checkpoint && !last) return kept_outside(*config.resume_from_checkpoint);
  if (!(config.auto_resume_from_checkpoints || last) || run::list_checkpoints(config.output_dir).empty())
    return std::nullopt;
  return kept_outside(config.output_dir);
}

inline void take_outside(RunConfig& config, distributed::World& world, const std::optional<os::Outside>& kept) {
  config.outside = kept ? *kept : os::Outside::now();
  config.outside_kept = kept.has_value();
  if (world.size() > 1) {
    const data::Json own = {to_json(config.outside), config.outside_kept};
    const data::Json first = data::Json::parse(world.gather("time and place", own.dump()).front());
    config.outside = outside_of(first.at(0)).value();
    config.outside_kept = first.at(1).get<bool>();
  }
  config.settings["outside"] = to_json(config.outside);
}

}  // namespace rlalgo::config
