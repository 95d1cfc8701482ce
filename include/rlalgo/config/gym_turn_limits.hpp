// nemo_gym_max_turns: what a Gym that is started gets for its agents, whose own name of that limit is max_steps.
//
//   NAME: {responses_api_agents: {KIND: {…}}}     in a configuration → "+NAME.responses_api_agents.KIND.max_steps=N"
//
// Configurations are looked for as ng_run looks for them: below the Gym's directory, then in the package of its .venv. One
// that is not found there is left to ng_run, which says so.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/document.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::config {

namespace detail {

[[nodiscard]] inline std::optional<std::filesystem::path> gym_configuration(const std::filesystem::path& directory,
                                                                            const std::string& path) {
  namespace fs = std::filesystem;
  std::vector<fs::path> places = {directory / path};  // an absolute one is itself
  std::error_code none;
  for (const fs::directory_entry& python : fs::directory_iterator(directory / ".venv" / "lib", none))
    places.push_back(python.path() / "site-packages" / path);
  const auto found =
      std::find_if(places.begin(), places.end(), [](const fs::path& place) { return os::exists(place); });
  return found == places.end() ? std::nullopt : std::optional(*found);
}

}  // namespace detail

// Arguments of ng_run; none where the configurations have no agents.
[[nodiscard]] inline std::vector<std::string> gym_turn_limits(const std::filesystem::path& directory,
                                                              const std::vector<std::string>& config_paths,
                                                              std::int64_t turns) {
  std::vector<std::string> out;
  for (const std::string& path : config_paths) {
    const auto file = detail::gym_configuration(directory, path);
    if (!file) continue;
    const auto root = to_json(load_document(*file).root);
    for (const auto& [name, entry] : root.items()) {
      if (!entry.is_object() || !entry.contains("responses_api_agents")) continue;
      const auto& kinds = entry["responses_api_agents"];
      if (!kinds.is_object()) continue;
      for (const auto& [kind, settings] : kinds.items())
        out.push_back("+" + name + ".responses_api_agents." + kind + ".max_steps=" + std::to_string(turns));
    }
  }
  return out;
}

}  // namespace rlalgo::config
