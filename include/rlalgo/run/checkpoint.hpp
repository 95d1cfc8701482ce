// checkpoint-<step> directories: written whole or not at all, found, validated, and deleted when there are too many.
//
// A checkpoint holds the model's and tokenizer's files (through a callback), whatever else the run's owner writes
// (optimizer.safetensors), trainer_state.json (spec of transformers) and rlalgo_state.json: step, epoch, identity and
// settings of the run, the run's id, the open metric window with the samples of its newest step, the owner's own state
// (sampler cursor, versions …), the name, size and XXH64 digest of every other file, and last the digest of its own text
// before that; and copies of samples.jsonl and pairs.json as they were. It is built as `.checkpoint-<step>.tmp`, flushed
// to disk and renamed, so a kill at any moment leaves the former checkpoints usable and nothing half-written under a
// checkpoint's name.
//
// A checkpoint of format 1 (before digests) is read, its files checked by size. What a run may differ in from the one
// that was saved: run/resume.hpp.
//
// Errors: [rlalgo.run.4] no checkpoint at the path; [rlalgo.run.5] incomplete or damaged; [rlalgo.run.8] cannot be saved;
// [rlalgo.os.1] an old checkpoint cannot be deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/digest.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

inline constexpr const char* state_file = "rlalgo_state.json";
inline constexpr const char* trainer_state_file = "trainer_state.json";
inline constexpr int state_format = 2;

struct Checkpoint {
  std::int64_t step = 0;
  std::filesystem::path path;
};

// The checkpoint directories of a run, by step.
[[nodiscard]] std::vector<Checkpoint> list_checkpoints(const std::filesystem::path& output_dir);

// Removes what a killed run left under construction: checkpoints (`.checkpoint-….tmp`), the trial of its output_dir
// (`.rlalgo-trial-….tmp`) and files that were about to get their name (`<file>.tmp.<process>`). Call only while no other
// run writes in output_dir.
void clean_leftovers(const std::filesystem::path& output_dir);

struct CheckpointParts {
  std::function<void(const std::filesystem::path&)> save_model;  // model and tokenizer files into the directory
  std::function<Json(const std::filesystem::path&)> save_state;  // optimizer.safetensors …; returns the owner's state
  Json state = Json::object();                                   // the loop's own part of rlalgo_state.json
  std::string trainer_state;                                     // text of trainer_state.json
};

// Writes output_dir/checkpoint-<step> whole, replacing one of that name, and returns its path.
std::filesystem::path write_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                                       const CheckpointParts& parts);

// Deletes checkpoints beyond `limit` (≥ 1), never `just_written`: first those with a higher step (left by a run that
// this one overtakes), then the oldest.
void rotate_checkpoints(const std::filesystem::path& output_dir, std::int64_t limit, std::int64_t just_written);

// What a checkpoint brings back.
struct LoadedCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::string run_id;  // of the run that saved it; empty before runs had one
  Json state;          // rlalgo_state.json; "owner" is what save_state returned
  Json history;        // log_history of trainer_state.json
};

namespace detail {

inline constexpr std::uint64_t largest_state_file = std::uint64_t{4} << 30U;  // bytes; it holds rollouts
Json read_json(const std::filesystem::path& path);
// The text of the state file: its last entry is the digest of all text before that entry.
std::string with_digest(const Json& state);
// What is wrong with a text that ends in such an entry; empty: nothing, or there is none (of earlier versions).
std::string digest_problem(std::string_view text);

}  // namespace detail

// Which files of a checkpoint are read when it is opened: their digests need every byte.
enum class Verify { sizes, digests };

namespace detail {

[[noreturn]] void raise_incomplete(const std::filesystem::path& checkpoint, const std::string& found,
                                   const std::string& expected);

void check_file(const std::filesystem::path& checkpoint, const std::string& name, const Json& entry, Verify verify);

}  // namespace detail

// Reads and validates a checkpoint: every file is there as it was when it was written.
[[nodiscard]] LoadedCheckpoint read_checkpoint(const std::filesystem::path& path, Verify verify = Verify::digests);

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/checkpoint_impl.hpp>
#endif
