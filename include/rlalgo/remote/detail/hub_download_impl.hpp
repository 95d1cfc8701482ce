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
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/http/transfer.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/remote/detail/content_digest.hpp>
#include <rlalgo/remote/detail/hub_listing.hpp>
#include <rlalgo/remote/hub_download.hpp>

namespace rlalgo::remote {

namespace detail {

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
    const os::Stopwatch watch;
    for (bool reported = false; ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0;) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;  // a file system without locks: the name is taken at the end
      if (!std::exchange(reported, true) && settings.tell)
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

class HubFetch : HubListing {
 public:
  explicit HubFetch(const HubDownload& settings)
      : HubListing({.id = settings.id,
                    .revision = settings.revision,
                    .endpoint = settings.endpoint,
                    .token = settings.token.empty() ? hub_token() : settings.token,
                    .kind = settings.kind,
                    .idle_seconds = settings.idle_seconds,
                    .window_seconds = settings.window_seconds,
                    .window_bytes = settings.window_bytes,
                    .attempts = settings.attempts,
                    .first_wait = settings.first_wait,
                    .tell = settings.tell,
                    .stop = settings.stop}),
        settings_(settings) {}

  HubSnapshot run() {
    find_repository();
    std::vector<HubFile> files = chosen(list());
    prepare_folder();
    std::vector<HubFile> missing;
    for (const HubFile& file : files)
      if (!os::exists(repository_ / "blobs" / file.etag()) &&
          std::none_of(missing.begin(), missing.end(),
                       [&](const HubFile& other) { return other.etag() == file.etag(); }) &&
          !os::exists(snapshot() / file.path))
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
  [[nodiscard]] fs::path snapshot() const { return repository_ / "snapshots" / commit_; }
  [[nodiscard]] fs::path blob_path(const HubFile& file) const { return repository_ / "blobs" / file.etag(); }

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
    os::AtomicFile file(path);
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
    if (!os::exists(cache / "CACHEDIR.TAG"))
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
    if (os::exists(blob_path(file))) {  // somebody else was faster
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
      if (result.answered() && result.response().ok() && wrong.empty() && at == file.size) {
        if (::fsync(descriptor) != 0) raise_cache(std::strerror(errno), incomplete);
        return;
      }
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
    if (os::exists(pointer)) return;
    make_folder(pointer.parent_path());
    std::error_code error;
    fs::remove(pointer, error);  // a link whose blob was gone
    fs::create_symlink(blob_path(file).lexically_relative(pointer.parent_path()), pointer, error);
    if (error) raise_cache(error.message(), pointer);
  }

  void write_reference() const {
    if (settings_.revision == commit_) return;
    const fs::path reference = repository_ / "refs" / settings_.revision;
    if (os::read_regular_file(reference, 4096).text != commit_) write_file(reference, commit_);
  }

  const HubDownload& settings_;
  fs::path repository_, locks_;
  std::vector<HubFile> all_;
  HubProgress progress_;
  std::uint64_t received_ = 0;
  os::Stopwatch watch_;
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
  return clean(os::read_regular_file(file, longest).text);
}

RLALGO_INLINE HubSnapshot fetch_snapshot(const HubDownload& download) { return detail::HubFetch(download).run(); }

}  // namespace rlalgo::remote
