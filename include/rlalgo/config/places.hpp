// What a command writes must not destroy what it reads.
//
//   refuse_overlap("output_dir", written, {{"base_model", directory}, …})
//
// Places are compared as the file system knows them: symbolic links, `.` and `..`, other spellings of one directory. A
// directory that is read is out of bounds altogether: nothing is written to it, into it, or around it. Of a file that
// is read, only the directories above it count.
//
// Errors (usage): [rlalgo.config.31] the two overlap. Those of data/dataset_files.hpp; [rlalgo.sync.5] a recorded
// schedule cannot be read; [rlalgo.sync.7] none can be written.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/config/fingerprints.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/refusals.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/dataset_files.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/run/output_trial.hpp>
#include <rlalgo/sync/call_schedule.hpp>

namespace rlalgo::config {

struct ReadPlace {
  std::string what;  // "base_model"
  std::filesystem::path path;
  bool may_hold = false;  // what is written may lie inside (a merged model in the adapter's directory)
};

namespace detail {

inline std::filesystem::path as_known(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path out = std::filesystem::weakly_canonical(std::filesystem::absolute(path), error);
  if (error) out = std::filesystem::absolute(path).lexically_normal();
  return out.has_filename() ? out : out.parent_path();
}

// Whether `inner` is `outer` or lies somewhere below it. Both as_known().
inline bool is_within(std::filesystem::path inner, const std::filesystem::path& outer) {
  for (;; inner = inner.parent_path()) {
    std::error_code absent;
    if (inner == outer || std::filesystem::equivalent(inner, outer, absent)) return true;
    if (!inner.has_relative_path()) return false;
  }
}

// In output_dir there is room, or who writes the first call says that there is none.
inline void check_schedule(const RunConfig& config) {
  if (!config.trl.is_asynchronous()) return;
  if (config.trl.async_schedule == "record" && config.trl.async_schedule_file)
    sync::CallSchedule::require_room(config.schedule_file());
  if (config.trl.async_schedule == "recorded") (void)sync::CallSchedule::repeated(config.schedule_file(), 1.0);
}

}  // namespace detail

inline void refuse_overlap(const std::string& key, const std::filesystem::path& written,
                           std::span<const ReadPlace> read, const std::string& where = {}) {
  const std::filesystem::path to = detail::as_known(written);
  for (const ReadPlace& place : read) {
    const std::filesystem::path from = detail::as_known(place.path);
    std::error_code absent;
    const bool directory = std::filesystem::is_directory(from, absent);
    const bool around = detail::is_within(from, to);
    const bool inside = directory && detail::is_within(to, from);
    const bool same = around && inside;
    if (!around && (!inside || place.may_hold)) continue;
    core::raise_usage(
        "config", 31,
        {.what = key +
                 (same     ? " is the directory of "
                  : around ? " contains "
                           : " lies in ") +
                 place.what + ", which would be overwritten or mixed up",
         .found = written.string() + (to == written ? "" : " (" + to.string() + ")") + " and " + place.path.string(),
         .where = where,
         .remedy = "choose another directory for " + key});
  }
}

// The directories of models that `config` reads, as far as they can be found; what is missing is an error of who loads it.
[[nodiscard]] inline std::vector<ReadPlace> model_places(const RunConfig& config) {
  std::vector<ReadPlace> out;
  const auto add = [&](const std::string& what, const std::string& name, const std::string& revision = {}) {
    std::error_code absent;
    if (std::filesystem::exists(name, absent))
      out.push_back({what, name});
    else if (data::is_hub_id(name))
      if (const auto cached = data::find_in_hub_cache(data::HubKind::models, name, revision))
        out.push_back({what, *cached});
  };
  add("base_model", config.base_model, config.model_revision.value_or(""));
  if (!out.empty() && model::is_adapter_directory(out.back().path))
    add("the base model of base_model", model::adapter_base_model(out.back().path));
  if (config.tokenizer_config) add("tokenizer_config", *config.tokenizer_config);
  if (config.lora_model_dir) add("lora_model_dir", *config.lora_model_dir);
  if (config.ebft.feature_model) add("ebft.feature_model", *config.ebft.feature_model);
  for (const std::string& name : config.trl.reward_funcs)
    if (assembly::names_reward_model(name)) add("the reward model " + name, name);
  return out;
}

// The files and directories of datasets that `config` names; an entry that has none is refused.
[[nodiscard]] inline std::vector<ReadPlace> data_places(const RunConfig& config, Refusals& refusals) {
  std::vector<ReadPlace> out;
  for (const auto* list : {&config.datasets, &config.test_datasets})
    for (const DatasetConfig& entry : *list) {
      const data::DatasetSource& source = entry.source;
      const std::string what = "the dataset " + source.label();
      std::error_code absent;
      if (!source.has_data_files() && std::filesystem::is_directory(source.path, absent)) {
        out.push_back({what, source.path});
        continue;
      }
      refusals.judge_found(entry.where, [&] {
        for (const auto& [split, files] : data::detail::files_of(source))
          for (const std::filesystem::path& file : files) out.push_back({what, file});
      });
    }
  return out;
}

// The same; raises what is refused.
[[nodiscard]] inline std::vector<ReadPlace> data_places(const RunConfig& config) {
  Refusals refusals(config.file);
  std::vector<ReadPlace> out = data_places(config, refusals);
  refusals.raise();
  return out;
}

namespace detail {

// Models that are named and not there.
inline void judge_models(const RunConfig& config, Refusals& refusals) {
  const auto found = [&](const std::string& key, const std::string& name, const std::string& revision = {}) {
    return !refusals.distrusts(key) && refusals.judge_found(config.place(key), [&] {
      (void)assembly::resolve_model(name, config.place(key), revision);
    });
  };
  if (config.was_set("base_model") && found("base_model", config.base_model, config.model_revision.value_or("")))
    refusals.judge_found(config.place("base_model"), [&] {
      RunConfig base = config;  // of an adapter that stands in its place
      base.tokenizer_config.reset();
      (void)find_model(base);
    });
  if (config.tokenizer_config) found("tokenizer_config", *config.tokenizer_config);
  if (config.lora_model_dir) found("lora_model_dir", *config.lora_model_dir);
  if (config.ebft.feature_model) found("ebft.feature_model", *config.ebft.feature_model);
  for (const std::string& name : config.trl.reward_funcs)
    if (assembly::names_reward_model(name)) found("trl.reward_funcs", name);
}

}  // namespace detail

// All that a run names and finds, or does not: models, data, directories that overlap, a schedule. dataset_prepared_path is a
// cache, and may lie beside the data. Keys whose values were not taken are not looked at.
inline void judge_places(const RunConfig& config, Refusals& refusals) {
  detail::judge_models(config, refusals);
  const std::vector<ReadPlace> models = model_places(config);
  std::vector<ReadPlace> rows;
  if (!refusals.distrusts("datasets") && !refusals.distrusts("test_datasets")) rows = data_places(config, refusals);
  const auto apart = [&](const std::string& key, const std::string& written, const std::vector<ReadPlace>& read) {
    if (!refusals.distrusts(key) &&
        !refusals.judge_found(config.place(key), [&] { refuse_overlap(key, written, read, config.place(key)); }))
      refusals.distrust(key);  // nothing is tried out there
  };
  apart("output_dir", config.output_dir, models);
  apart("output_dir", config.output_dir, rows);
  if (config.preference.dataset_prepared_path)
    apart("dataset_prepared_path", *config.preference.dataset_prepared_path, models);
  if (!refusals.distrusts("trl."))
    refusals.judge_found(config.place("trl.async_schedule"), [&] { detail::check_schedule(config); });
}

// Whether files can be made where a run writes.
inline void judge_outputs(const RunConfig& config, Refusals& refusals) {
  const auto writable = [&](const std::string& key, const std::string& directory) {
    if (!refusals.distrusts(key))
      refusals.judge_found(config.place(key), [&] { const run::OutputTrial trial(directory); });
  };
  writable("output_dir", config.output_dir);
  if (config.preference.dataset_prepared_path)
    writable("dataset_prepared_path", *config.preference.dataset_prepared_path);
}

// Of `rlalgo train` and `preprocess`: raises what judge_places() finds.
inline void check_places(const RunConfig& config) {
  Refusals refusals(config.file);
  judge_places(config, refusals);
  refusals.raise();
}

}  // namespace rlalgo::config
