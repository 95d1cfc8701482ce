// Definitions of run_info.hpp.
#pragma once

#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/run_info.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

RLALGO_INLINE std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
  return text;
}

RLALGO_INLINE void write_run_info(const std::filesystem::path& output_dir, const RunInfo& info) {
  const Json json = {{"id", info.id},           {"title", info.title},       {"status", info.status},
                     {"error", info.error},     {"step", info.step},         {"max_steps", info.max_steps},
                     {"started", info.started}, {"settings", info.settings}, {"identity", info.identity}};
  os::write_file(output_dir / run_info_file, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

RLALGO_INLINE Json read_run_info(const std::filesystem::path& output_dir) {
  constexpr std::uint64_t most = std::uint64_t{64} << 20U;  // bytes
  Json json = core::read_json<Json>(os::read_regular_file(output_dir / run_info_file, most).text).value;
  return json.is_object() ? json : Json::object();
}

}  // namespace rlalgo::run
