// Definitions of resume.hpp.
#pragma once

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/resume.hpp>
#include <rlalgo/run/run_info.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

RLALGO_INLINE std::string new_run_id() {
  std::random_device device;
  char text[17];
  std::snprintf(text, sizeof text, "%08x%08x", static_cast<unsigned>(device()), static_cast<unsigned>(device()));
  return text;
}

RLALGO_INLINE std::vector<Difference> differences(const Json& saved, const Json& now) {
  std::vector<Difference> out;
  const auto text = [](const Json& object, const std::string& key) {
    return object.contains(key) ? object[key].dump(-1, ' ', false, Json::error_handler_t::replace) : "absent";
  };
  const auto compare = [&](const std::string& key) {
    const std::string before = text(saved, key), after = text(now, key);
    if (before != after) out.push_back({key, key + ": " + before + " in the checkpoint, " + after + " now"});
  };
  for (const auto& [key, value] : saved.items()) compare(key);
  for (const auto& [key, value] : now.items())
    if (!saved.contains(key)) compare(key);
  return out;
}

namespace detail {

RLALGO_INLINE std::string joined(const std::vector<Difference>& parts) {
  std::string out;
  for (const Difference& part : parts) out += (out.empty() ? "" : "; ") + part.text;
  return out;
}

}  // namespace detail

RLALGO_INLINE std::vector<std::string> check_resumable(const LoadedCheckpoint& checkpoint, const Json& identity,
                                                       const Json& settings, const ResumeRules& rules) {
  const std::vector<Difference> wrong = differences(checkpoint.state["identity"], identity);
  if (!wrong.empty())
    core::raise("run", 6,
                {.what = "the checkpoint belongs to another run",
                 .found = detail::joined(wrong),
                 .where = checkpoint.path.string(),
                 .remedy = "set these keys as in the checkpoint, or start afresh with its directory as base_model"});
  if (!checkpoint.state["has_optimizer"].get<bool>())
    core::raise("run", 7,
                {.what = "the checkpoint was saved with save_only_model",
                 .found = "no optimizer state",
                 .where = checkpoint.path.string(),
                 .remedy = "it cannot be resumed; name it as base_model to start afresh from its weights"});
  if (checkpoint.state["format"] == 1)
    return {"the checkpoint is of an earlier version of rlalgo: whether the settings are the same is not known"};
  std::vector<Difference> refused;
  std::vector<std::string> warnings;
  for (const Difference& difference : differences(checkpoint.state["settings"], settings)) {
    if (rules.free.contains(difference.key)) continue;
    if (rules.force || rules.extended.contains(difference.key))
      warnings.push_back(difference.text);
    else
      refused.push_back(difference);
  }
  if (!refused.empty())
    core::raise("run", 12,
                {.what = "the run is no longer the one that was saved",
                 .found = detail::joined(refused),
                 .where = checkpoint.path.string(),
                 .remedy = "undo the change; or go on with it: force_resume: true (--force-resume); or start afresh "
                           "with the checkpoint as base_model"});
  return warnings;
}

RLALGO_INLINE std::optional<std::filesystem::path> latest_checkpoint(
    const std::filesystem::path& output_dir, const std::function<void(const std::string&)>& tell) {
  const Json info = read_run_info(output_dir);
  const std::string id = info.contains("id") && info["id"].is_string() ? info["id"].get<std::string>() : "";
  const std::vector<Checkpoint> all = list_checkpoints(output_dir);
  for (auto it = all.rbegin(); it != all.rend(); ++it) {
    try {
      if (!info.empty() && read_checkpoint(it->path, Verify::sizes).run_id != id) {
        if (tell) tell(it->path.string() + " is of another run: it is not resumed from");
        continue;
      }
      return read_checkpoint(it->path).path;
    } catch (const core::Error& error) {
      if (tell) tell("warning: a checkpoint is passed over: " + std::string(error.what()));
    }
  }
  return std::nullopt;
}

}  // namespace rlalgo::run
