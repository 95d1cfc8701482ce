// Definitions of checkpoint.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/file_digest.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

RLALGO_INLINE std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& output_dir) {
  std::vector<Checkpoint> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view prefix = "checkpoint-";
    if (!name.starts_with(prefix) || !entry.is_directory()) continue;
    const std::string digits = name.substr(prefix.size());
    if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos) continue;
    found.push_back({std::stoll(digits), entry.path()});
  }
  std::sort(found.begin(), found.end(), [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
  return found;
}

RLALGO_INLINE void clean_leftovers(const std::filesystem::path& output_dir) {
  const auto unfinished_file = [](const std::string& name) {
    for (const std::string_view file : {"metrics.jsonl", "samples.jsonl", "ebft_rollouts.jsonl", "pairs.json",
                                        "run.json", "report.html", trainer_state_file})
      if (name.starts_with(std::string(file) + ".tmp.")) return true;
    return false;
  };
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(output_dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool folder = name.starts_with(".checkpoint-") || name.starts_with(".rlalgo-trial-");
    if ((folder && name.ends_with(".tmp")) || unfinished_file(name)) leftovers.push_back(entry.path());
  }
  for (const auto& path : leftovers) detail::remove_leftover(path);
}

namespace detail {

inline constexpr std::string_view digest_key = ",\n \"xxh64\": \"", digest_end = "\"\n}\n";

RLALGO_INLINE std::string with_digest(const Json& state) {
  std::string text = state.dump(1);
  text.resize(text.size() - 2);  // "\n}"
  const std::string digest = core::Digest().update(text).hex();
  return text.append(digest_key).append(digest).append(digest_end);
}

RLALGO_INLINE std::string digest_problem(std::string_view text) {
  const std::size_t at = text.rfind(digest_key);
  if (at == std::string_view::npos || !text.ends_with(digest_end)) return {};
  const std::string_view kept =
      text.substr(at + digest_key.size(), text.size() - at - digest_key.size() - digest_end.size());
  const std::string digest = core::Digest().update(text.substr(0, at)).hex();
  return digest == kept ? "" : "text with the digest " + digest + ", saved with " + std::string(kept.substr(0, 32));
}

}  // namespace detail

RLALGO_INLINE std::filesystem::path write_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                                                     const CheckpointParts& parts) {
  const std::filesystem::path path = output_dir / ("checkpoint-" + std::to_string(step));
  try {
    detail::AtomicDirectory directory(path);
    const std::filesystem::path& building = directory.building();
    if (parts.save_model) parts.save_model(building);
    Json state = {{"format", state_format}, {"step", step}};
    state.update(parts.state);
    state["has_optimizer"] = static_cast<bool>(parts.save_state);
    state["owner"] = parts.save_state ? parts.save_state(building) : Json::object();
    os::write_file(building / trainer_state_file, parts.trainer_state);
    state["files"] = Json::object();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(building))
      if (entry.is_regular_file())
        state["files"][entry.path().lexically_relative(building).generic_string()] = {
            {"bytes", entry.file_size()}, {"xxh64", os::file_digest(entry.path())}};
    os::write_file(building / state_file, detail::with_digest(state));
    directory.commit();
  } catch (const std::exception& error) {
    core::raise(
        "run", 8,
        {.what = "the checkpoint cannot be saved; nothing of it was kept",
         .found = error.what(),
         .where = path.string(),
         .remedy =
             "free disk space or fix the cause; earlier checkpoints are intact, resume_from_checkpoint takes them"});
  }
  return path;
}

RLALGO_INLINE void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t limit,
                                      std::int64_t just_written) {
  std::vector<Checkpoint> all = list_checkpoints(output_dir);
  std::stable_partition(all.begin(), all.end(), [&](const Checkpoint& c) { return c.step > just_written; });
  auto excess = static_cast<std::int64_t>(all.size()) - std::max<std::int64_t>(limit, 1);
  for (const Checkpoint& old : all) {
    if (excess <= 0) break;
    if (old.step == just_written) continue;
    // Renamed first: a kill in the middle of the deletion leaves no half checkpoint under its name.
    const std::filesystem::path doomed = output_dir / ("." + old.path.filename().string() + ".old.tmp");
    detail::remove_leftover(doomed);
    std::error_code error;
    std::filesystem::rename(old.path, doomed, error);
    if (error) os::raise_file_error("cannot delete the old checkpoint", old.path, error.value());
    detail::remove_leftover(doomed);
    --excess;
  }
}

namespace detail {

RLALGO_INLINE Json read_json(const std::filesystem::path& path) {
  const auto damaged = [&](const std::string& found) {
    core::raise("run", 5,
                {.what = "the checkpoint is damaged",
                 .found = found,
                 .where = path.string(),
                 .remedy = "resume from another checkpoint"});
  };
  const os::FileText file = os::read_regular_file(path, largest_state_file);
  if (!file.problem.empty()) damaged("a file that cannot be read (" + file.problem + ")");
  if (const std::string wrong = digest_problem(file.text); !wrong.empty()) damaged(wrong);
  auto [json, problem] = core::read_json<Json>(file.text);
  if (!problem.text.empty()) damaged("text that is not JSON (" + problem.text + ")");
  return std::move(json);
}

}  // namespace detail

namespace detail {

RLALGO_INLINE void raise_incomplete(const std::filesystem::path& checkpoint, const std::string& found,
                                    const std::string& expected) {
  core::raise("run", 5,
              {.what = "the checkpoint is incomplete",
               .found = found,
               .expected = expected,
               .where = checkpoint.string(),
               .remedy = "copy it again, or resume from another checkpoint"});
}

RLALGO_INLINE void check_file(const std::filesystem::path& checkpoint, const std::string& name, const Json& entry,
                              Verify verify) {
  const Json& bytes = entry.is_object() ? entry.at("bytes") : entry;  // a number in format 1
  std::error_code error;
  const auto found = std::filesystem::file_size(checkpoint / name, error);
  if (error) raise_incomplete(checkpoint, "no readable file " + name, name + " of " + bytes.dump() + " bytes");
  if (found != bytes.get<std::uintmax_t>())
    raise_incomplete(checkpoint, name + " of " + std::to_string(found) + " bytes", bytes.dump() + " bytes");
  if (verify == Verify::sizes || !entry.is_object()) return;
  const std::string digest = os::file_digest(checkpoint / name), expected = entry.at("xxh64").get<std::string>();
  if (digest == expected) return;
  core::raise("run", 5,
              {.what = "the checkpoint is damaged",
               .found = name + " with the digest " + digest,
               .expected = expected + ", as it was saved",
               .where = checkpoint.string(),
               .remedy = "copy it again, or resume from another checkpoint"});
}

}  // namespace detail

RLALGO_INLINE LoadedCheckpoint read_checkpoint(const std::filesystem::path& path, Verify verify) {
  if (!os::is_directory(path))
    core::raise("run", 4,
                {.what = "resume_from_checkpoint names no checkpoint",
                 .found = os::exists(path) ? "a file" : "nothing",
                 .expected = "a checkpoint-<step> directory",
                 .where = path.string(),
                 .remedy = "give the path of a checkpoint of this run, or leave the key out to start afresh"});
  if (!os::exists(path / state_file))
    core::raise("run", 4,
                {.what = "resume_from_checkpoint names a directory that is no checkpoint",
                 .found = std::string("no ") + state_file,
                 .expected = "a checkpoint-<step> directory that rlalgo wrote",
                 .where = path.string(),
                 .remedy = "to start from the weights of a model directory, name it as base_model instead"});
  LoadedCheckpoint loaded{path, 0, {}, detail::read_json(path / state_file), Json::array()};
  const auto incomplete = [&](const std::string& found, const std::string& expected) {
    detail::raise_incomplete(path, found, expected);
  };
  try {
    const Json format = loaded.state.is_object() ? loaded.state.value("format", Json()) : Json();
    if (format != state_format && format != 1)
      incomplete("format " + (loaded.state.is_object() ? format.dump() : "of another kind"),
                 "format " + std::to_string(state_format) + " in " + state_file);
    for (const char* key :
         {"step", "epoch", "identity", "settings", "totals", "window", "owner", "has_optimizer", "files"})
      if (!loaded.state.contains(key)) incomplete(std::string("no \"") + key + "\" in " + state_file, "all entries");
    for (const auto& [name, entry] : loaded.state["files"].items()) detail::check_file(path, name, entry, verify);
    loaded.step = loaded.state["step"].get<std::int64_t>();
    loaded.run_id = loaded.state.value("run", "");
    (void)loaded.state.value("samples", "");  // a string, if there is one
    const Json trainer_state = detail::read_json(path / trainer_state_file);
    if (!trainer_state.is_object() || !trainer_state.contains("log_history") ||
        !trainer_state["log_history"].is_array())
      incomplete(std::string("no log_history in ") + trainer_state_file, "the records so far");
    loaded.history = trainer_state["log_history"];
    for (const Json& record : loaded.history) (void)to_record(record);
  } catch (const Json::exception& error) {
    incomplete("an entry of another type (" + core::json_reason(error.what()) + ")", "the entries that rlalgo writes");
  }
  return loaded;
}

}  // namespace rlalgo::run
