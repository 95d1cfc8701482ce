// Whether files can be made in a directory, found out before a long preparation: its missing parents are made, and a
// directory and a file with names as long as any of ours are written, flushed and removed again. A directory, a device or a
// named pipe that has the name of one of our files would stand in the way of the model when it is saved, at the very end.
//
// What was made and is still empty goes away with the object: a run that fails before it writes leaves nothing.
//
// Errors: [rlalgo.os.1] with the system's reason: a file in the way, no permission, a read-only or full disk, a name
// that is too long; [rlalgo.run.3] another run is writing there.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/detail/output_lock.hpp>

namespace rlalgo::run {

class OutputTrial {
 public:
  // Whether another run may be writing there meanwhile: where what is to be written lies beside its files.
  enum class Others { none, may_write };

  explicit OutputTrial(const std::filesystem::path& directory, Others others = Others::none) {
    if (directory.empty()) os::raise_file_error("cannot create the directory", directory, ENOENT);
    try {
      made_.emplace(directory);
      if (others == Others::none) {
        const detail::OutputLock nobody_else(directory);
      }
      write(directory);
      look_for_obstacles(directory);
    } catch (...) {
      remove_empty();
      throw;
    }
  }
  OutputTrial(const OutputTrial&) = delete;
  OutputTrial& operator=(const OutputTrial&) = delete;
  ~OutputTrial() { remove_empty(); }

 private:
  // As deep and as long as a checkpoint's shard and TensorBoard's events.
  static void write(const std::filesystem::path& directory) {
    const std::string id = std::to_string(::getpid());
    const std::filesystem::path folder = directory / (".rlalgo-trial-" + id + "-" + std::string(70, 'x') + ".tmp");
    struct Removed {
      const std::filesystem::path& path;
      ~Removed() { detail::remove_leftover(path); }
    } const removed{folder};
    detail::make_directory(folder);
    os::AtomicFile file(folder / ("trial-" + std::string(110, 'x')));
    file.write(std::string(65536, ' '));
    file.commit();
  }

  // The files of a run, of a model and of an adapter. A link that leads nowhere is replaced.
  static void look_for_obstacles(const std::filesystem::path& directory) {
    static constexpr const char* files[] = {"metrics.jsonl",
                                            "samples.jsonl",
                                            "ebft_rollouts.jsonl",
                                            "async_schedule.jsonl",
                                            "pairs.json",
                                            "run.json",
                                            "trainer_state.json",
                                            "report.html",
                                            "config.json",
                                            "generation_config.json",
                                            "model.safetensors",
                                            "model.safetensors.index.json",
                                            "adapter_config.json",
                                            "adapter_model.safetensors",
                                            "tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "chat_template.jinja",
                                            "README.md",
                                            "eval_results.json"};
    const auto refuse = [](const std::filesystem::path& path, const std::string& expected) {
      core::raise("os", 1,
                  {.what = "something else has the name of a file or folder that is written",
                   .expected = expected + ", or nothing",
                   .where = path.string(),
                   .remedy = "remove it, or choose another directory"});
    };
    std::error_code error;
    const auto is = [&](const std::filesystem::path& path, std::filesystem::file_type type) {
      const std::filesystem::file_type found = std::filesystem::status(path, error).type();
      return found == type || found == std::filesystem::file_type::not_found ||
             found == std::filesystem::file_type::none;
    };
    for (const char* name : files)
      if (!is(directory / name, std::filesystem::file_type::regular)) refuse(directory / name, "a regular file");
    if (!is(directory / "runs", std::filesystem::file_type::directory)) refuse(directory / "runs", "a folder");
  }

  void remove_empty() noexcept {
    if (made_) made_->remove();
  }

  std::optional<detail::MadeDirectories> made_;
};

}  // namespace rlalgo::run
