// run.json: what a run is and how it stands, beside its logs; the heading of report.html.
//
// Keys: id (of the run, see resume.hpp), title, status (running, finished, stopped by its watchdog, interrupted, failed), error, step, max_steps, started (UTC), settings,
// identity. A killed run leaves "running" behind: readers compare with the newest record.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* run_info_file = "run.json";

struct RunInfo {
  std::string id;
  std::string title;
  std::string status = "running";
  std::string error;  // of a failed run; why one was stopped
  std::int64_t step = 0;
  std::int64_t max_steps = 0;
  std::string started;
  Json settings = Json::object();
  Json identity = Json::object();
};

[[nodiscard]] std::string utc_now();

void write_run_info(const std::filesystem::path& output_dir, const RunInfo& info);

// An empty object when the directory has none: the report then has a plainer heading.
[[nodiscard]] Json read_run_info(const std::filesystem::path& output_dir);

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/run_info_impl.hpp>
#endif
