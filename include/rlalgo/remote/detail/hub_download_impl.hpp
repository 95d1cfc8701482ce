// Definitions of hub_download.hpp.
#pragma once

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/atomic_file.hpp>
#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/clock.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/regular_file.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/http/reply_message.hpp>
#include <rlalgo/http/retry.hpp>
#include <rlalgo/http/transfer.hpp>
#include <rlalgo/remote/detail/content_digest.hpp>
#include <rlalgo/remote/hub_download.hpp>

namespace rlalgo::remote {

namespace detail {

namespace fs = std::filesystem;
using HubJson = nlohmann::ordered_json;

inline std::string hub_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

inline bool hub_switch(const char* name) {
  std::string value = hub_variable(name);
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

// As in a URL: everything but letters, digits and -._~ (and `kept`) by its bytes.
inline std::string quoted_url(std::string_view text, std::string_view kept = {}) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos ||
                       kept.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
      continue;
    }
    out += '%';
    out += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4U];
    out += "0123456789ABCDEF"[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

// False when the token was used before the seconds were over.
inline bool wait_a_while(double seconds, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, stop, std::chrono::duration<double>(seconds), [] { return false; });
  return !stop.stop_requested();
}

inline bool is_hexadecimal(const std::string& text, std::size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

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

// Held while a blob is made: huggingface_hub takes the same one.
class BlobLock {
 public:
  BlobLock(const fs::path& path, const HubDownload& settings) {
    descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (descriptor_ < 0)
      core::raise("remote", 89,
                  {.what = "cannot write to the cache",
                   .found = std::strerror(errno),
                   .where = path.string(),
                   .remedy = "check its permissions, or set HF_HUB_CACHE to another folder"});
    const core::Stopwatch watch;
    for (bool told = false; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0;) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks: the name is taken at the end
      if (!std::exchange(told, true) && settings.tell)
        settings.tell("waiting for another program that fetches this file: " + path.string());
      if (watch.seconds() > settings.lock_seconds)
        core::raise("remote", 89,
                    {.what = "another program holds the lock of a file for too long",
                     .found = std::to_string(static_cast<std::int64_t>(watch.seconds())) + " s",
                     .where = path.string(),
                     .remedy = "wait for it, or end it and start again"});
      if (!wait_a_while(0.2, settings.stop)) return;
    }
  }
  BlobLock(const BlobLock&) = delete;
  BlobLock& operator=(const BlobLock&) = delete;
  ~BlobLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

 private:
  int descriptor_ = -1;
};

class HubFetch {
 public:
  explicit HubFetch(const HubDownload& settings) : settings_(settings) {
    if (hub_switch("HF_HUB_OFFLINE"))
      core::raise_usage("remote", 91,
                        {.what = "fetching is switched off",
                         .found = "HF_HUB_OFFLINE is set",
                         .remedy = "unset it for this command"});
    if (!data::is_hub_id(settings_.id))
      core::raise_usage("remote", 91,
                        {.what = "this is no name of a repository", .found = settings_.id, .expected = "OWNER/NAME"});
    if (settings_.revision.empty() || settings_.revision.front() == '/' ||
        settings_.revision.find("..") != std::string::npos)
      core::raise_usage(
          "remote", 91,
          {.what = "this is no revision", .found = settings_.revision, .expected = "a branch, a tag or a commit"});
    endpoint_ = !settings_.endpoint.empty() ? settings_.endpoint : hub_variable("HF_ENDPOINT");
    if (endpoint_.empty()) endpoint_ = "https://huggingface.co";
    while (endpoint_.ends_with('/')) endpoint_.pop_back();
    origin_ = http::origin_of(endpoint_);
    token_ = !settings_.token.empty() ? settings_.token : hub_token();
  }

  HubSnapshot run() {
    find_repository();
    std::vector<HubFile> files = chosen(list());
    prepare_folder();
    std::vector<HubFile> missing;
    for (const HubFile& file : files)
      if (!core::exists(repository_ / "blobs" / file.etag()) &&
          std::none_of(missing.begin(), missing.end(),
                       [&](const HubFile& other) { return other.etag() == file.etag(); }) &&
          !core::exists(snapshot() / file.path))
        missing.push_back(file);
    require_room(missing);
    progress_.files = missing.size();
    for (const HubFile& file : missing) progress_.of_bytes += file.size;
    for (const HubFile& file : missing) {
      progress_.file = file.path;
      ++progress_.number;
      fetch_blob(file);
      report(true);
    }
    for (const HubFile& file : files) link(file);
    write_reference();
    return {.directory = snapshot(),
            .commit = commit_,
            .kind = kind_,
            .files = files.size(),
            .fetched = missing.size(),
            .bytes = received_};
  }

 private:
  [[nodiscard]] std::string kind_name() const { return kind_ == data::HubKind::models ? "model" : "dataset"; }
  [[nodiscard]] std::string api(const std::string& rest) const {
    return endpoint_ + "/api/" + kind_name() + "s/" + settings_.id + rest;
  }
  [[nodiscard]] std::string page() const {
    return endpoint_ + (kind_ == data::HubKind::datasets ? "/datasets/" : "/") + settings_.id;
  }
  [[nodiscard]] fs::path snapshot() const { return repository_ / "snapshots" / commit_; }
  [[nodiscard]] fs::path blob_path(const HubFile& file) const { return repository_ / "blobs" / file.etag(); }

  // --- calls ------------------------------------------------------------------------------------------------------

  [[nodiscard]] http::TransferRequest request(const std::string& url) const {
    http::TransferRequest out{.url = url,
                              .idle_seconds = settings_.idle_seconds,
                              .window_seconds = settings_.window_seconds,
                              .window_bytes = settings_.window_bytes,
                              .stop = settings_.stop};
    if (!token_.empty() && http::origin_of(url) == origin_)
      out.headers.push_back({"Authorization", "Bearer " + token_});
    return out;
  }

  // Follows redirects; `prepare` completes each request. The last answer, and its address.
  template <class Prepare>
  std::pair<http::Result, std::string> follow(std::string url, const Prepare& prepare) const {
    for (int hops = 0;; ++hops) {
      http::TransferRequest one = request(url);
      prepare(one);
      http::Result result = http::transfer(one);
      if (!result.answered() || result.response().status / 100 != 3) return {std::move(result), url};
      const std::string* location = http::find_header(result.response().headers, "Location");
      if (location == nullptr || location->empty()) return {std::move(result), url};
      const std::string next = http::resolve_location(url, *location);
      if (hops == 10 || (url.starts_with("https://") && !next.starts_with("https://")))
        core::raise("remote", 87,
                    {.what = hops == 10 ? "the Hub redirects without end" : "the Hub redirects from https to http",
                     .found = next.substr(0, next.find('?')),
                     .where = url.substr(0, url.find('?'))});
      url = next;
    }
  }

  [[nodiscard]] std::optional<double> wait_after(const http::Result& result, int attempt) const {
    if (attempt >= settings_.attempts) return std::nullopt;
    double wait = settings_.first_wait * static_cast<double>(1LL << std::min(attempt - 1, 30));
    if (result.answered()) {
      const int status = result.response().status;
      if (status != 408 && status != 429 && status / 100 != 5) return std::nullopt;
      wait = std::max(wait, http::retry_after(result.response(), std::chrono::system_clock::now()).value_or(0.0));
    } else if (result.failure().kind == http::Failure::Kind::cancelled ||
               result.failure().kind == http::Failure::Kind::malformed ||
               result.failure().kind == http::Failure::Kind::too_large) {
      return std::nullopt;
    }
    return std::min(wait, 60.0);
  }
  void pause(double seconds, const std::string& what, const std::string& why) const {
    if (settings_.tell) {
      char text[32];
      std::snprintf(text, sizeof text, "%.1f", seconds);
      settings_.tell(what + ": " + why + "; again in " + text + " s");
    }
    if (!wait_a_while(seconds, settings_.stop)) raise_given_up();
  }
  [[noreturn]] void raise_given_up() const {
    core::raise(
        "remote", 87,
        {.what = "fetching was given up", .where = settings_.id, .remedy = "the same command goes on from here"});
  }

  // An answer of the API, and its headers; with a status that is not 2xx only where `absent` is one.
  http::Response call(const std::string& url) const {
    for (int attempt = 1;; ++attempt) {
      auto [result, last] = follow(url, [](http::TransferRequest&) {});
      const auto wait = wait_after(result, attempt);
      if (!wait) {
        if (!result.answered()) raise_failure(result.failure(), last);
        return std::move(result.response());
      }
      pause(*wait, endpoint_, result.text());
    }
  }
  static HubJson parsed(const http::Response& response, const std::string& url) {
    auto [value, problem] = core::read_json<HubJson>(response.body, {.depth = 200, .members = 100'000});
    if (!problem.text.empty()) raise_answer("no JSON: " + problem.text, url);
    return std::move(value);
  }

  [[noreturn]] static void raise_answer(const std::string& found, const std::string& url) {
    core::raise("remote", 90,
                {.what = "the Hub's answer is not understood",
                 .found = found,
                 .where = url.substr(0, url.find('?')),
                 .remedy = "check HF_ENDPOINT"});
  }
  [[noreturn]] void raise_failure(const http::Failure& failure, const std::string& url) const {
    if (failure.kind == http::Failure::Kind::cancelled) raise_given_up();
    core::raise(
        "remote", 87,
        {.what = "the Hub cannot be reached, or breaks off",
         .found = failure.text(),
         .where = url.substr(0, url.find('?')),
         .remedy =
             failure.reason.find("certificate") != std::string::npos
                 ? "install the authorities (Debian: ca-certificates), or name the one of a proxy in SSL_CERT_FILE"
                 : "check the network, HTTPS_PROXY and HF_ENDPOINT; the same command goes on from here"});
  }
  [[noreturn]] void raise_status(const http::Response& response, const std::string& url) const {
    const std::string* code = http::find_header(response.headers, "X-Error-Code");
    const std::string* said = http::find_header(response.headers, "X-Error-Message");
    const std::string kind = code != nullptr ? *code : "";
    const std::string message = said != nullptr ? *said : http::reply_message(response.body).substr(0, 300);
    const std::string found = "HTTP " + std::to_string(response.status) + (kind.empty() ? "" : " " + kind) +
                              (message.empty() ? "" : ": " + message);
    const std::string token = token_.empty() ? "give a token: HF_TOKEN, --token, or `hf auth login`"
                                             : "give a token that may read it (HF_TOKEN, --token)";
    core::ErrorText text{.what = "the Hub refuses", .found = found, .where = url.substr(0, url.find('?'))};
    if (kind == "GatedRepo") {
      text.what = "the " + kind_name() + " is gated";
      text.remedy = "ask for access at " + page() + ", and " + token;
    } else if (kind == "RevisionNotFound") {
      text.what = "there is no such revision";
      text.remedy = "check --revision " + settings_.revision;
    } else if (kind == "EntryNotFound") {
      text.what = "the file is not there any more";
    } else if (message.find("Invalid credentials") != std::string::npos) {
      text.what = "the Hub does not accept the token";
      text.remedy = "check HF_TOKEN, --token or the file of `hf auth login`";
    } else if (response.status == 401 || response.status == 404 || kind == "RepoNotFound") {
      text.what = "there is no such " + kind_name() + ", or it is private";
      text.remedy = "check the name and --repo-type; if it is private, " + token;
    } else if (response.status == 403) {
      text.what = "the token may not read the " + kind_name();
      text.remedy = token;
    } else if (response.status == 429) {
      text.what = "the Hub has had too many requests from here";
      text.remedy = "wait some minutes" + std::string(token_.empty() ? ", or " + token : "");
    } else if (response.status / 100 == 5) {
      text.what = "the Hub has a failure of its own";
      text.remedy = "try later; the same command goes on from here";
    }
    core::raise("remote", 86, text);
  }

  // --- what there is ----------------------------------------------------------------------------------------------

  // The commit, where there is such a repository; nothing where `kind_` has none of this name.
  std::optional<std::string> commit_of_revision(bool required) {
    const std::string url = api("/revision/" + quoted_url(settings_.revision));
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
    if (settings_.kind) {
      kind_ = *settings_.kind;
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
                         .found = settings_.id,
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

  [[nodiscard]] std::vector<HubFile> chosen(std::vector<HubFile> files) {
    all_ = files;
    const auto named = [](const std::vector<std::string>& patterns, const std::string& path) {
      return std::any_of(patterns.begin(), patterns.end(), [&](std::string pattern) {
        if (pattern.ends_with('/')) pattern += '*';
        return ::fnmatch(pattern.c_str(), path.c_str(), FNM_NOESCAPE) == 0;
      });
    };
    std::erase_if(files, [&](const HubFile& file) {
      return (!settings_.include.empty() && !named(settings_.include, file.path)) ||
             named(settings_.exclude, file.path);
    });
    if (!files.empty()) return files;
    std::string some;
    for (std::size_t i = 0; i < std::min<std::size_t>(all_.size(), 8); ++i) some += (i > 0 ? ", " : "") + all_[i].path;
    core::raise(
        "remote", 92,
        {.what = all_.empty() ? "the repository has no files" : "no file has such a name",
         .found =
             all_.empty() ? "none" : std::to_string(all_.size()) + " files: " + some + (all_.size() > 8 ? ", …" : ""),
         .where = page(),
         .remedy = all_.empty() ? "" : "check --include and --exclude"});
  }

  // --- the cache --------------------------------------------------------------------------------------------------

  [[noreturn]] static void raise_cache(const std::string& why, const fs::path& path) {
    core::raise("remote", 89,
                {.what = "cannot write to the cache",
                 .found = why,
                 .where = path.string(),
                 .remedy = "check its permissions and free space, or set HF_HUB_CACHE to another folder"});
  }
  static void make_folder(const fs::path& path) {
    std::error_code error;
    fs::create_directories(path, error);
    if (error) raise_cache(error.message(), path);
  }
  static void write_file(const fs::path& path, const std::string& text) {
    make_folder(path.parent_path());
    core::AtomicFile file(path);
    file.write(text.data(), text.size());
    file.commit();
  }

  void prepare_folder() {
    const fs::path cache = settings_.cache.empty() ? data::hub_cache_directory() : settings_.cache;
    std::string name = kind_name() + "s--";
    for (const char c : settings_.id) name += c == '/' ? std::string("--") : std::string(1, c);
    repository_ = cache / name;
    locks_ = cache / ".locks" / name;
    make_folder(repository_ / "blobs");
    make_folder(locks_);
    if (!core::exists(cache / "CACHEDIR.TAG"))
      write_file(cache / "CACHEDIR.TAG",
                 "Signature: 8a477f597d28d172789f06886806bc55\n"
                 "# This file is a cache directory tag created by huggingface_hub.\n"
                 "# For information about cache directory tags, see:\n"
                 "#\thttps://bford.info/cachedir/\n");
    std::map<std::string, const HubFile*> sorted;
    for (const HubFile& file : all_) sorted[file.path] = &file;
    HubJson listed = HubJson::object();
    for (const auto& [path, file] : sorted) {
      HubJson entry = {{"size", file->size}, {"blob_id", file->blob}};
      if (!file->sha256.empty()) {
        entry["lfs_sha256"] = file->sha256;
        entry["lfs_size"] = file->lfs_size;
      }
      if (!file->xet.empty()) entry["xet_hash"] = file->xet;
      listed[path] = entry;
    }
    write_file(repository_ / "trees" / (commit_ + ".json"),
               HubJson({{"format_version", 1}, {"files", listed}}).dump(1, ' ', true));
  }

  void require_room(const std::vector<HubFile>& files) const {
    std::uint64_t needed = 0;
    for (const HubFile& file : files) {
      std::error_code error;
      const auto there = fs::file_size(blob_path(file).string() + ".incomplete", error);
      needed += file.size - (error ? 0 : std::min<std::uint64_t>(there, file.size));
    }
    struct statvfs disk {};
    if (::statvfs(repository_.c_str(), &disk) != 0) return;
    const std::uint64_t room = std::uint64_t{disk.f_bavail} * disk.f_frsize;
    if (room >= needed) return;
    core::raise("remote", 89,
                {.what = "the disk has no room",
                 .found = std::to_string(room >> 20U) + " MiB free",
                 .expected = std::to_string((needed >> 20U) + 1) + " MiB",
                 .where = repository_.string(),
                 .remedy = "free some, fetch less (--include, --exclude), or set HF_HUB_CACHE to another disk"});
  }

  void report(bool done = false) {
    progress_.seconds = watch_.seconds();
    progress_.file_done = done;
    if (settings_.progress) settings_.progress(progress_);
  }

  void fetch_blob(const HubFile& file) {
    const BlobLock lock(locks_ / (file.etag() + ".lock"), settings_);
    if (settings_.stop.stop_requested()) raise_given_up();
    if (core::exists(blob_path(file))) {  // somebody else was faster
      progress_.bytes += file.size;
      return;
    }
    const fs::path incomplete = blob_path(file).string() + ".incomplete";
    const std::uint64_t before = progress_.bytes;
    for (bool again = false;; again = true) {
      download(file, incomplete);
      const std::string found =
          file.sha256.empty()
              ? digest_of_file(incomplete, false, "blob " + std::to_string(file.size) + std::string(1, '\0'))
              : digest_of_file(incomplete, true);
      if (found == file.etag()) break;
      std::error_code ignored;
      fs::remove(incomplete, ignored);
      if (again)
        core::raise("remote", 88,
                    {.what = "what was fetched is not the file that the Hub announced",
                     .found = (file.sha256.empty() ? "blob " : "SHA-256 ") + found,
                     .expected = file.etag(),
                     .where = file.path,
                     .remedy = "try again; if it stays so, something between here and the Hub changes files"});
      progress_.bytes = before;
      if (settings_.tell)
        settings_.tell(file.path + ": what was fetched is not what the Hub announced; from the beginning");
    }
    std::error_code error;
    fs::rename(incomplete, blob_path(file), error);
    if (error) raise_cache(error.message(), blob_path(file));
  }

  // Until `incomplete` has all bytes of the file.
  void download(const HubFile& file, const fs::path& incomplete) {
    const int descriptor = ::open(incomplete.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) raise_cache(std::strerror(errno), incomplete);
    struct Close {
      int descriptor;
      ~Close() { ::close(descriptor); }
    } const closing{descriptor};
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) raise_cache("it is no regular file", incomplete);
    std::uint64_t at = static_cast<std::uint64_t>(status.st_size);
    if (at > file.size) at = 0;
    const std::uint64_t base = progress_.bytes;
    const std::string url = page() + "/resolve/" + commit_ + "/" + quoted_url(file.path, "/");
    for (int attempt = 1; at < file.size || (file.size == 0 && attempt == 1);) {
      if (::ftruncate(descriptor, static_cast<off_t>(at)) != 0) raise_cache(std::strerror(errno), incomplete);
      progress_.bytes = base + at;
      report();
      const std::uint64_t begin = at;
      std::string wrong;
      int failed_write = 0;
      auto [result, last] = follow(url, [&](http::TransferRequest& one) {
        if (begin > 0) one.headers.push_back({"Range", "bytes=" + std::to_string(begin) + "-"});
        one.on_head = [&](const http::Response& head) {
          if (!head.ok()) return true;
          at = head.status == 206 ? begin : 0;  // a server that knows no ranges begins anew
          const std::string* range = http::find_header(head.headers, "Content-Range");
          if (head.status == 206 &&
              (range == nullptr || range->find(" " + std::to_string(begin) + "-") == std::string::npos))
            wrong = "another part than was asked for";
          return wrong.empty();
        };
        one.on_body = [&](std::string_view part) {
          if (failed_write != 0 || !wrong.empty()) return;
          if (at + part.size() > file.size) {
            wrong = "more bytes than the file has";
            return;
          }
          for (std::size_t done = 0; done < part.size();) {
            const ssize_t n = ::pwrite(descriptor, part.data() + done, part.size() - done, static_cast<off_t>(at));
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
              failed_write = n < 0 ? errno : EIO;
              return;
            }
            done += static_cast<std::size_t>(n);
            at += static_cast<std::uint64_t>(n);
          }
          received_ += part.size();
          progress_.bytes = base + at;
          report();
        };
      });
      if (failed_write != 0) raise_cache(std::strerror(failed_write), incomplete);
      if (!wrong.empty()) {
        at = 0;
        if (attempt >= settings_.attempts) raise_answer(wrong, last);
      }
      if (result.answered() && result.response().ok() && wrong.empty() && at == file.size) return;
      if (at > begin && wrong.empty()) attempt = 1;  // bytes have come
      if (result.answered() && result.response().status == 416) at = 0;
      http::Result why = result;
      if (result.answered() && (result.response().ok() || result.response().status == 416))
        why = http::Failure{http::Failure::Kind::broken, file.path,
                            std::to_string(at) + " of " + std::to_string(file.size) + " bytes came"};
      const auto wait = wait_after(why, attempt++);
      if (!wait) {
        if (why.answered()) raise_status(why.response(), last);
        raise_failure(why.failure(), last);
      }
      pause(*wait, file.path, why.text());
    }
  }

  void link(const HubFile& file) const {
    const fs::path pointer = snapshot() / file.path;
    if (core::exists(pointer)) return;
    make_folder(pointer.parent_path());
    std::error_code error;
    fs::remove(pointer, error);  // a link whose blob was gone
    fs::create_symlink(blob_path(file).lexically_relative(pointer.parent_path()), pointer, error);
    if (error) raise_cache(error.message(), pointer);
  }

  void write_reference() const {
    if (settings_.revision == commit_) return;
    const fs::path reference = repository_ / "refs" / settings_.revision;
    if (core::read_regular_file(reference, 4096).text != commit_) write_file(reference, commit_);
  }

  const HubDownload& settings_;
  std::string endpoint_, origin_, token_, commit_;
  data::HubKind kind_ = data::HubKind::models;
  fs::path repository_, locks_;
  std::vector<HubFile> all_;
  HubProgress progress_;
  std::uint64_t received_ = 0;
  core::Stopwatch watch_;
};

}  // namespace detail

RLALGO_INLINE std::string hub_token() {
  const auto clean = [](std::string text) {
    text.erase(std::remove_if(text.begin(), text.end(), [](char c) { return c == '\r' || c == '\n'; }), text.end());
    const std::size_t begin = text.find_first_not_of(" \t");
    return begin == std::string::npos ? std::string() : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  };
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
    if (const std::string token = clean(detail::hub_variable(name)); !token.empty()) return token;
  std::filesystem::path file = detail::hub_variable("HF_TOKEN_PATH");
  if (file.empty()) {
    std::filesystem::path home = detail::hub_variable("HF_HOME");
    if (home.empty()) {
      const std::string xdg = detail::hub_variable("XDG_CACHE_HOME");
      home =
          (xdg.empty() ? std::filesystem::path(detail::hub_variable("HOME")) / ".cache" : std::filesystem::path(xdg)) /
          "huggingface";
    }
    file = home / "token";
  }
  constexpr std::uint64_t longest = 65536;  // bytes
  return clean(core::read_regular_file(file, longest).text);
}

RLALGO_INLINE HubSnapshot fetch_snapshot(const HubDownload& download) { return detail::HubFetch(download).run(); }

}  // namespace rlalgo::remote
