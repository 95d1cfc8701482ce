// Fetches a model or a dataset of the Hugging Face Hub into the local cache, when a user asks for it; nothing else downloads.
//
//   commit and list:  GET ENDPOINT/api/{models,datasets}/ID/revision/REVISION, …/tree/COMMIT?recursive=True&expand=False
//   a file:           GET ENDPOINT/[datasets/]ID/resolve/COMMIT/PATH, and where it redirects to
//   the cache:        blobs/ETAG, snapshots/COMMIT/PATH → ../../blobs/ETAG, refs/REVISION, trees/COMMIT.json, .locks/…: what
//                     huggingface_hub 2.4 writes and reads
//
// A file is written to blobs/ETAG.incomplete, resumed from there (Range) by the same call or a later one, and takes its
// name once its bytes are those that the Hub announced: SHA-256 of large files, Git's SHA-1 of the others. Links and the
// reference appear when all files are there, so that no half of a snapshot is ever found. The token goes to the endpoint
// alone, never to a host that it redirects to; from https no redirect leads to http. Attempts are repeated as long as bytes
// come; a file that somebody else fetches is waited for.
//
// Source: huggingface_hub 2.4 (snapshot_download). Departures: broken transfers are resumed by a later call; contents of
// small files are verified; a reference is written last.
//
// Errors: [rlalgo.remote.86] there is no such repository or revision, or it may not be read; [rlalgo.remote.87] the Hub
// cannot be reached, or breaks off; [rlalgo.remote.88] a file is not what the Hub announced; [rlalgo.remote.89] the cache
// cannot be written, or the disk has no room; [rlalgo.remote.90] an answer of the Hub is not understood;
// [rlalgo.remote.91] fetching is switched off, or the request is no valid one (exit 2); [rlalgo.remote.92] no file has such
// a name; those of http/transfer.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/data/hub_cache.hpp>

namespace rlalgo::remote {

// How far a download is.
struct HubProgress {
  std::string file;
  std::size_t number = 0, files = 0;      // of the files that are fetched, from 1
  std::uint64_t bytes = 0, of_bytes = 0;  // of all of them, those resumed from included
  double seconds = 0.0;                   // so far
  bool file_done = false;
};

struct HubDownload {
  std::string id = {};
  std::optional<data::HubKind> kind = {};  // nothing: whichever of the two there is
  std::string revision = "main";           // a branch, a tag or a commit
  std::vector<std::string> include = {};   // patterns of paths (`*` crosses `/`); none: all files
  std::vector<std::string> exclude = {};
  std::string endpoint = {};         // "" = $HF_ENDPOINT, else https://huggingface.co
  std::string token = {};            // "" = hub_token()
  std::filesystem::path cache = {};  // "" = data::hub_cache_directory()
  double idle_seconds = 30.0;        // see http/transfer.hpp; $HF_HUB_DOWNLOAD_TIMEOUT comes first
  double window_seconds = 60.0;
  std::uint64_t window_bytes = 60'000;
  int attempts = 6;              // in a row without a byte
  double first_wait = 1.0;       // seconds before the second of them; it doubles up to a minute
  double lock_seconds = 3600.0;  // that a file of somebody else's is waited for
  std::function<void(const HubProgress&)> progress = {};
  std::function<void(const std::string&)> tell = {};  // one line: what is tried again
  std::stop_token stop = {};
};

struct HubSnapshot {
  std::filesystem::path directory;
  std::string commit;
  data::HubKind kind = data::HubKind::models;
  std::size_t files = 0, fetched = 0;  // of the snapshot, of this call
  std::uint64_t bytes = 0;             // fetched
};

// $HF_TOKEN, else $HUGGING_FACE_HUB_TOKEN, else the file $HF_TOKEN_PATH, else $HF_HOME/token; "" = none.
[[nodiscard]] std::string hub_token();

[[nodiscard]] HubSnapshot fetch_snapshot(const HubDownload& download);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/hub_download_impl.hpp>
#endif
