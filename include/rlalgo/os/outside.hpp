// What templates and Python functions may read of the world around a run: the time, the zone, the language, the host's
// name. Taken once, so that a run that goes on elsewhere or on another day reads the same.
//
// The zone is a name of the time-zone database ("Europe/Berlin"), TZ as it is set, or empty: UTC. Words of the language
// are the variables LANG, LANGUAGE and LC_…. RLALGO_START_TIME (seconds since 1970) is the time instead of the clock.
// Errors (usage): [rlalgo.os.11] RLALGO_START_TIME is no time.
#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>

namespace rlalgo::os {

inline constexpr const char* start_time_variable = "RLALGO_START_TIME";
inline constexpr const char* start_host_variable = "RLALGO_START_HOST";

struct Outside {
  std::time_t time = 0;  // seconds since 1970; 0: not taken
  std::string zone;
  std::string host;
  std::map<std::string, std::string> language;  // variables that are set
  friend bool operator==(const Outside&, const Outside&) = default;

  [[nodiscard]] static Outside now();
};

namespace detail {

inline constexpr std::array<const char*, 9> language_variables = {
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME"};

[[nodiscard]] inline std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

[[nodiscard]] inline std::string zone_now() {
  if (auto set = variable("TZ")) return *std::move(set);
  std::error_code absent;
  const std::string link = std::filesystem::read_symlink("/etc/localtime", absent).string();
  constexpr std::string_view folder = "zoneinfo/";
  const std::size_t at = link.find(folder);
  return at == std::string::npos ? "" : link.substr(at + folder.size());
}

}  // namespace detail

// RLALGO_START_TIME, else the clock.
[[nodiscard]] inline std::time_t start_time() {
  const std::optional<std::string> given = detail::variable(start_time_variable);
  if (!given || given->empty()) return std::time(nullptr);
  const bool digits = given->size() < 12 && given->find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoll(*given) == 0)
    core::raise_usage("os", 11,
                      {.what = "RLALGO_START_TIME is no time",
                       .found = *given,
                       .expected = "seconds since 1970",
                       .where = "environment"});
  return std::stoll(*given);
}

inline Outside Outside::now() {
  Outside out{.time = start_time(), .zone = detail::zone_now(), .host = {}, .language = {}};
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) out.host = name.data();
  if (auto host = detail::variable(start_host_variable)) out.host = *std::move(host);
  for (const char* key : detail::language_variables)
    if (auto value = detail::variable(key)) out.language[key] = *std::move(value);
  return out;
}

// While it lives, this process and those that it starts find the variables of `outside` in their environment, and
// RLALGO_START_TIME and RLALGO_START_HOST. PYTHONHASHSEED is 0 unless it is set: a set of texts then has one order.
// Construct and destroy it while no other thread reads the environment.
class OutsideInEnvironment {
 public:
  explicit OutsideInEnvironment(const Outside& outside) {
    set(start_time_variable, std::to_string(outside.time));
    set(start_host_variable, outside.host);
    if (!outside.zone.empty())
      set("TZ", outside.zone);
    else
      set("TZ", std::nullopt);
    for (const char* key : detail::language_variables) {
      const auto found = outside.language.find(key);
      set(key, found == outside.language.end() ? std::nullopt : std::optional(found->second));
    }
    if (!detail::variable("PYTHONHASHSEED")) set("PYTHONHASHSEED", "0");
    ::tzset();
  }
  OutsideInEnvironment(const OutsideInEnvironment&) = delete;
  OutsideInEnvironment& operator=(const OutsideInEnvironment&) = delete;
  ~OutsideInEnvironment() {
    for (auto before = before_.rbegin(); before != before_.rend(); ++before) put(before->first, before->second);
    ::tzset();
  }

 private:
  void set(const char* name, const std::optional<std::string>& value) {
    before_.emplace_back(name, detail::variable(name));
    put(name, value);
  }
  static void put(const char* name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name, value->c_str(), 1);
    else
      ::unsetenv(name);
  }

  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

}  // namespace rlalgo::os
