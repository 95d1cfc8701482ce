// Which weights asynchronous generate calls had: recorded as they end, or repeated.
//
//   {"generation": 3, "call": 0, "version": 2}      one line a call, in order; calls are counted within their generation
//
// What a run with asynchronous generation computes is a function of its settings, its seed and this. Repeated, a call
// waits until its version is in force, and a version is published when all calls of earlier versions have ended. So
// generation and training wait for each other, and a repeated run trains on the same completions, to the byte. Calls that the record does
// not have take what is in force. Of a generation that was recorded twice (under way when a run ended, made again by the
// one that resumed) the later record counts; calls of versions before the first that this process hands over are past.
//
// Errors: [rlalgo.sync.5] the record cannot be read; [rlalgo.sync.6] the run does not come to the calls of the record
// within `patience_seconds`: it has other settings; [rlalgo.sync.7] the record cannot be written; [rlalgo.os.8] a stop was asked for meanwhile.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/sync/schedule_state.hpp>

namespace rlalgo::sync {

class CallSchedule {
 public:
  // Adds to the file, which is made with the first call.
  explicit CallSchedule(std::filesystem::path record) : file_(std::move(record)) {}

  [[nodiscard]] static CallSchedule repeated(const std::filesystem::path& record, double patience_seconds) {
    return {record, patience_seconds};
  }
  // Whether calls can be recorded there, before anything is computed; nothing is made. [rlalgo.sync.7] they cannot.
  static void require_room(const std::filesystem::path& record) {
    const int fd = ::open(record.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) {
      ::close(fd);
      return;
    }
    if (errno != ENOENT) raise_unwritten(record, errno);
    const std::filesystem::path folder = record.has_parent_path() ? record.parent_path() : ".";
    if (::access(folder.c_str(), W_OK | X_OK) != 0) raise_unwritten(record, errno);
  }
  CallSchedule(CallSchedule&& other) noexcept
      : file_(std::move(other.file_)), state_(std::move(other.state_)), patience_(other.patience_) {}

  // --- the thread that generates

  // Returns when the next call of `generation` may begin. [rlalgo.os.8] `stop` came first.
  void begin(std::uint64_t generation, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    state_.next(generation);
    if (!changed_.wait(lock, stop, [&] { return state_.may_begin(); }))
      os::raise_interrupted("os", 8, {.what = "interrupted while a call was repeated"});
  }
  void end(std::int64_t version) {
    {
      const std::lock_guard lock(mutex_);
      if (patience_ > 0)
        state_.end();
      else
        add(version);
    }
    changed_.notify_all();
  }
  // The thread ends with an exception: nobody waits for its calls.
  void give_up() {
    {
      const std::lock_guard lock(mutex_);
      state_.give_up();
    }
    changed_.notify_all();
  }

  // --- the trainer's thread

  // Returns when `version` may be handed over.
  void before_publish(std::int64_t version) {
    std::unique_lock lock(mutex_);
    state_.begin_publish(version);
    const auto due = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_);
    while (const auto call = state_.earlier_than(version)) {
      if (os::Interruption::requested())
        os::raise_interrupted("os", 8, {.what = "interrupted while a hand-over was repeated"});
      if (std::chrono::steady_clock::now() > due)
        core::raise("sync", 6,
                    {.what = "the run does not come to a call of the recorded schedule",
                     .found = "version " + std::to_string(version) + " is due",
                     .expected = "call " + std::to_string(call->first.second) + " of generation " +
                                 std::to_string(call->first.first) + " with version " + std::to_string(call->second),
                     .where = file_.string(),
                     .remedy = "repeat it with the settings that it was recorded with"});
      changed_.wait_for(lock, std::chrono::milliseconds(50));  // a signal wakes nobody
    }
  }
  void published(std::int64_t version) {
    {
      const std::lock_guard lock(mutex_);
      state_.published(version);
    }
    changed_.notify_all();
  }

 private:
  static constexpr std::uint64_t largest_record = std::uint64_t{1} << 28U;  // bytes: five million calls

  CallSchedule(const std::filesystem::path& record, double patience_seconds)
      : file_(record), patience_(patience_seconds) {
    const auto damaged = [&](const std::string& found) {
      core::raise("sync", 5,
                  {.what = "the recorded schedule cannot be read", .found = found, .where = record.string()});
    };
    const os::FileText file = os::read_regular_file(record, largest_record);
    if (!file.problem.empty()) damaged(file.absent ? "no such file" : file.problem);
    for (std::string_view rest = file.text; !rest.empty();) {
      const std::size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const auto call = core::read_json<nlohmann::ordered_json>(line).value;
      const auto number = [&](const char* name) {
        if (!call.is_object() || !call.contains(name) || !call[name].is_number_unsigned())
          damaged(std::string(line.substr(0, 100)));
        return call[name].get<std::int64_t>();
      };
      state_.expect({static_cast<std::uint64_t>(number("generation")), number("call")}, number("version"));
    }
    if (state_.empty()) damaged("no call");
  }

  void add(std::int64_t version) const {
    const auto [generation, call] = state_.current();
    const std::string line =
        nlohmann::ordered_json{{"generation", generation}, {"call", call}, {"version", version}}.dump() + "\n";
    const int anew = generation == 0 && call == 0 ? O_TRUNC : 0;
    const int fd = ::open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK | anew, 0644);
    const ssize_t written = fd < 0 ? -1 : ::write(fd, line.data(), line.size());
    const int error = errno;
    if (fd >= 0) ::close(fd);
    if (written != static_cast<ssize_t>(line.size())) raise_unwritten(file_, written < 0 ? error : ENOSPC);
  }
  [[noreturn]] static void raise_unwritten(const std::filesystem::path& record, int error) {
    core::raise("sync", 7,
                {.what = "a call cannot be recorded",
                 .found = std::strerror(error),
                 .where = record.string(),
                 .remedy = "make room, name another trl.async_schedule_file, or leave trl.async_schedule at live"});
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::filesystem::path file_;
  ScheduleState state_;
  double patience_ = 0.0;  // seconds; 0: recorded
};

}  // namespace rlalgo::sync
