// Definitions of hub_cache.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

RLALGO_INLINE std::filesystem::path hub_cache_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return std::filesystem::path(home) / "hub";
  if (const std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty())
    return std::filesystem::path(xdg) / "huggingface" / "hub";
  return std::filesystem::path(variable("HOME")) / ".cache" / "huggingface" / "hub";
}

RLALGO_INLINE bool is_hub_id(std::string_view id) {
  if (id.empty() || id.front() == '/' || id.back() == '/' || id.front() == '.' ||
      id.find("..") != std::string_view::npos)
    return false;
  int slashes = 0;
  for (const char c : id) {
    if (c == '/') ++slashes;
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '/' && c != '-' && c != '_' && c != '.') return false;
  }
  return slashes <= 1;
}

RLALGO_INLINE std::optional<std::filesystem::path> find_in_hub_cache(HubKind kind, std::string_view id,
                                                                     const std::string& revision) {
  namespace fs = std::filesystem;
  if (!is_hub_id(id)) return std::nullopt;
  std::string folder = kind == HubKind::models ? "models--" : "datasets--";
  for (const char c : id) folder += c == '/' ? std::string("--") : std::string(1, c);
  const fs::path repository = hub_cache_directory() / folder;
  const fs::path snapshots = repository / "snapshots";
  std::error_code error;
  const auto snapshot = [&](const std::string& commit) -> std::optional<fs::path> {
    if (commit.empty() || !fs::is_directory(snapshots / commit, error)) return std::nullopt;
    return snapshots / commit;
  };
  constexpr std::uint64_t longest_ref = 4096;  // bytes; it holds the 40 digits of a commit
  const std::string wanted = revision.empty() ? "main" : revision;
  if (std::string commit = os::read_regular_file(repository / "refs" / wanted, longest_ref).text; !commit.empty()) {
    commit.erase(std::min(commit.find_first_of(" \t\r\n"), commit.size()));
    if (auto found = snapshot(commit)) return found;
  }
  if (!revision.empty()) return snapshot(revision);
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(snapshots, error))
    if (entry.is_directory(error)) all.push_back(entry.path());
  if (all.size() == 1) return all.front();
  return std::nullopt;
}

}  // namespace rlalgo::data
