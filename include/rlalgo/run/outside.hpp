// What a run read of the world around it (os/outside.hpp), as it is kept: the setting `outside` of run.json and of checkpoints.
//
// Errors: those of run/checkpoint.hpp.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/os/outside.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/run_info.hpp>

namespace rlalgo::run {

[[nodiscard]] inline Json to_json(const os::Outside& outside) {
  Json language = Json::object();
  for (const auto& [name, value] : outside.language) language[name] = value;
  return {{"time", outside.time}, {"zone", outside.zone}, {"host", outside.host}, {"language", std::move(language)}};
}

// Nothing where `json` is no such object: written before it was kept.
[[nodiscard]] inline std::optional<os::Outside> outside_of(const Json& json) {
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
  const Json state = std::filesystem::exists(directory / state_file) ? read_checkpoint(directory, Verify::sizes).state
                                                                     : read_run_info(directory);
  const auto settings = state.find("settings");
  if (settings == state.end() || !settings->is_object() || !settings->contains("outside")) return std::nullopt;
  return outside_of((*settings)["outside"]);
}

}  // namespace rlalgo::run
