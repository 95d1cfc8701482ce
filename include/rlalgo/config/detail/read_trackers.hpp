// The keys of trackers, and the variables that their clients read (trackers.hpp).
//
// Source: axolotl 0.19, utils/wandb_.py, mlflow_.py, comet_.py, trackio_.py.
#pragma once

#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

struct TrackerKeys {
  const char* name;
  const char* use;                                         // turns it on
  const char* project;                                     // … and so does this, where it is named
  std::vector<std::pair<const char*, const char*>> texts;  // key → variable
};

// What a key of a tracker may be; empty: any text.
[[nodiscard]] inline std::vector<std::string> tracker_words(std::string_view key) {
  if (key == "wandb_mode") return {"online", "offline", "disabled", "shared"};
  return {};
}

[[nodiscard]] inline const std::vector<TrackerKeys>& tracker_keys() {
  static const std::vector<TrackerKeys> keys = {
      {"wandb",
       "use_wandb",
       "wandb_project",
       {{"wandb_project", "WANDB_PROJECT"},
        {"wandb_entity", "WANDB_ENTITY"},
        {"wandb_name", "WANDB_NAME"},
        {"wandb_run_id", "WANDB_RUN_ID"},
        {"wandb_mode", "WANDB_MODE"}}},
      {"mlflow",
       "use_mlflow",
       "mlflow_experiment_name",
       {{"mlflow_tracking_uri", "MLFLOW_TRACKING_URI"},
        {"mlflow_experiment_name", "MLFLOW_EXPERIMENT_NAME"},
        {"mlflow_run_name", "MLFLOW_RUN_NAME"}}},
      {"trackio",
       "use_trackio",
       "trackio_project_name",
       {{"trackio_project_name", "TRACKIO_PROJECT_NAME"},
        {"trackio_run_name", "TRACKIO_RUN_NAME"},
        {"trackio_space_id", "TRACKIO_SPACE_ID"}}},
      {"comet",
       "use_comet",
       "comet_project_name",
       {{"comet_api_key", "COMET_API_KEY"},
        {"comet_workspace", "COMET_WORKSPACE"},
        {"comet_project_name", "COMET_PROJECT_NAME"},
        {"comet_experiment_key", "COMET_EXPERIMENT_KEY"},
        {"comet_mode", "COMET_START_MODE"}}},
  };
  return keys;
}

// Entries of comet_experiment_config: of those below the variable, of others COMET_ and the name.
inline void read_comet_experiment(Reader& reader, std::map<std::string, std::string>& environment) {
  static const std::map<std::string, std::string> named = {{"name", "COMET_START_EXPERIMENT_NAME"},
                                                           {"tags", "COMET_START_EXPERIMENT_TAGS"},
                                                           {"offline_directory", "COMET_OFFLINE_DIRECTORY"}};
  data::Json entries = nullptr;
  if (!reader.read("comet_experiment_config", entries) || !entries.is_object()) return;
  for (const auto& [name, value] : entries.items()) {
    const auto at = named.find(name);
    if (at == named.end()) {
      reader.findings().warnings.push_back("comet_experiment_config." + name +
                                           " has no effect: nothing but metrics and settings is logged");
      continue;
    }
    std::string text = value.is_string() ? value.get<std::string>() : "";
    if (value.is_array())
      for (const data::Json& one : value)
        if (one.is_string()) text += (text.empty() ? "" : ",") + one.get<std::string>();
    if (!text.empty()) environment[at->second] = text;
  }
}

inline void read_trackers(Reader& reader, RunConfig& config) {
  for (const TrackerKeys& tracker : tracker_keys()) {
    bool used = false;
    reader.read(tracker.use, used);
    TrackerSettings settings{.name = tracker.name, .environment = {}};
    std::vector<std::string> written;
    for (const auto& [key, variable] : tracker.texts) {
      std::optional<std::string> text;
      if (const auto words = tracker_words(key); !words.empty())
        reader.read_choice(key, text, words);
      else
        reader.read(key, text);
      if (!text || text->empty()) continue;
      settings.environment[variable] = *text;
      written.emplace_back(key);
    }
    if (tracker.name == std::string_view("comet")) {
      std::optional<bool> online;
      reader.read("comet_online", online);
      if (online) settings.environment["COMET_START_ONLINE"] = *online ? "true" : "false";
      read_comet_experiment(reader, settings.environment);
    }
    const bool named = reader.given(tracker.project) && !reader.section().find(tracker.project)->text.empty();
    const bool off = settings.environment.contains("WANDB_MODE") && settings.environment["WANDB_MODE"] == "disabled";
    if ((used || named) && !off) {
      if (settings.environment.contains("WANDB_RUN_ID") && !settings.environment.contains("WANDB_NAME"))
        settings.environment["WANDB_NAME"] = settings.environment["WANDB_RUN_ID"];
      config.trackers.push_back(std::move(settings));
    } else if (!written.empty() && !off) {
      reader.findings().warnings.push_back(written.front() + " has no effect: neither " + std::string(tracker.use) +
                                           ": true nor " + tracker.project + " is set");
    }
  }
}

}  // namespace rlalgo::config::detail
