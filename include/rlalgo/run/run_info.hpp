// run.json: what a run is and how it stands, beside its logs; the heading of report.html.
//
// Keys: id (of the run, see resume.hpp), title, status (running, finished, interrupted, failed), error, step, max_steps, started (UTC), settings,
// identity. A killed run leaves "running" behind: readers compare with the newest record.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* run_info_file = "run.json";

struct RunInfo {
  std::string id;
  std::string title;
  std::string status = "running";
  std::string error;  // of a failed run
  std::int64_t step = 0;
  std::int64_t max_steps = 0;
  std::string started;
  Json settings = Json::object();
  Json identity = Json::object();
};

[[nodiscard]] inline std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

inline void write_run_info(const std::filesystem::path& output_dir, const RunInfo& info) {
  const Json json = {{"id", info.id},           {"title", info.title},       {"status", info.status},
                     {"error", info.error},     {"step", info.step},         {"max_steps", info.max_steps},
                     {"started", info.started}, {"settings", info.settings}, {"identity", info.identity}};
  core::write_file(output_dir / run_info_file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

// An empty object when the directory has none: the report then has a plainer heading.
[[nodiscard]] inline Json read_run_info(const std::filesystem::path& output_dir) {
  std::ifstream in(output_dir / run_info_file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  Json json = Json::parse(text, nullptr, false);
  return json.is_object() ? json : Json::object();
}

}  // namespace rlalgo::run
