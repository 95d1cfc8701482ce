// The commit that a revision is, and the files of it, with the names that their contents have.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/http/transfer.hpp>
#include <rlalgo/remote/detail/hub_calls.hpp>

namespace rlalgo::remote::detail {

// Of a path of a repository: it stays below the folder that it is put into.
inline bool is_safe_path(const std::string& path) {
  if (path.empty() || path.front() == '/' || path.find('\0') != std::string::npos ||
      path.find('\\') != std::string::npos)
    return false;
  for (const fs::path& part : fs::path(path))
    if (part == ".." || part == "." || part.empty()) return false;
  return true;
}

struct HubFile {
  std::string path;
  std::uint64_t size = 0;
  std::string blob;    // Git's name of it
  std::string sha256;  // of a large file; "" = Git holds it itself
  std::uint64_t lfs_size = 0;
  std::string xet;

  [[nodiscard]] const std::string& etag() const { return sha256.empty() ? blob : sha256; }
};

class HubListing : protected HubCalls {
 protected:
  using HubCalls::HubCalls;

  // The commit, where there is such a repository; nothing where `kind_` has none of this name.
  std::optional<std::string> commit_of_revision(bool required) {
    const std::string url = api("/revision/" + quoted_url(access_.revision));
    const http::Response response = call(url);
    if (!response.ok()) {
      const std::string* code = http::find_header(response.headers, "X-Error-Code");
      const bool absent =
          (code == nullptr || *code == "RepoNotFound") && (response.status == 401 || response.status == 404);
      if (!required && absent) return std::nullopt;
      raise_status(response, url);
    }
    const HubJson info = parsed(response, url);
    const auto sha = info.is_object() ? info.find("sha") : info.end();
    if (!info.is_object() || sha == info.end() || !sha->is_string() || !is_hexadecimal(sha->get<std::string>(), 40))
      raise_answer("no commit (sha)", url);
    return sha->get<std::string>();
  }

  void find_repository() {
    if (access_.kind) {
      kind_ = *access_.kind;
      commit_ = *commit_of_revision(true);
      return;
    }
    kind_ = data::HubKind::datasets;
    const auto dataset = commit_of_revision(false);
    kind_ = data::HubKind::models;
    const auto model = commit_of_revision(!dataset.has_value());
    if (model && dataset)
      core::raise_usage("remote", 91,
                        {.what = "there are a model and a dataset of this name",
                         .found = access_.id,
                         .remedy = "say which one: --repo-type model, or --repo-type dataset"});
    if (dataset) kind_ = data::HubKind::datasets;
    commit_ = model ? *model : *dataset;
  }

  std::vector<HubFile> list() {
    std::vector<HubFile> out;
    std::string url = api("/tree/" + commit_ + "?recursive=True&expand=False");
    constexpr std::size_t most_pages = 10'000;
    for (std::size_t pages = 0; !url.empty() && pages < most_pages; ++pages) {
      const http::Response response = call(url);
      if (!response.ok()) raise_status(response, url);
      const HubJson items = parsed(response, url);
      if (!items.is_array()) raise_answer("no list of files", url);
      for (const HubJson& item : items)
        if (auto file = file_of(item, url)) out.push_back(std::move(*file));
      url = next_page(response, url);
    }
    return out;
  }

  static std::optional<HubFile> file_of(const HubJson& item, const std::string& url) {
    const auto text = [&](const HubJson& object, const char* name) {
      const auto found = object.find(name);
      return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    const auto number = [&](const HubJson& object, const char* name) {
      const auto found = object.find(name);
      return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : std::uint64_t{0};
    };
    if (!item.is_object()) raise_answer("an entry that is no object", url);
    if (text(item, "type") != "file") return std::nullopt;
    HubFile out{.path = text(item, "path"),
                .size = number(item, "size"),
                .blob = text(item, "oid"),
                .sha256 = {},
                .lfs_size = 0,
                .xet = text(item, "xetHash")};
    if (const auto lfs = item.find("lfs"); lfs != item.end() && lfs->is_object()) {
      out.sha256 = text(*lfs, "oid");
      out.lfs_size = number(*lfs, "size");
      if (!is_hexadecimal(out.sha256, 64)) raise_answer("a large file without its SHA-256: " + out.path, url);
    }
    if (!is_safe_path(out.path)) raise_answer("a path that leaves its folder: " + out.path, url);
    if (!is_hexadecimal(out.blob, 40)) raise_answer("a file without its name in Git: " + out.path, url);
    return out;
  }

  // Of a header Link: <URL>; rel="next".
  [[nodiscard]] std::string next_page(const http::Response& response, const std::string& url) const {
    const std::string* link = http::find_header(response.headers, "Link");
    if (link == nullptr) return {};
    const std::size_t rel = link->find("rel=\"next\"");
    const std::size_t begin = rel == std::string::npos ? rel : link->rfind('<', rel);
    const std::size_t end = begin == std::string::npos ? begin : link->find('>', begin);
    if (end == std::string::npos || end > rel) return {};
    return http::resolve_location(url, link->substr(begin + 1, end - begin - 1));
  }

  std::string commit_;
};

}  // namespace rlalgo::remote::detail
