// A NeMo Gym that this program starts itself: `ng_run` in a session of its own, its output in a log file.
//
// It ends with this object (SIGTERM, which ends its servers in order; after `stop_seconds` the whole session is killed), and
// with this program, however that ends (Linux). Ray, on which it stands, gives its first process 30 s, which a busy machine
// may not have: such a start is tried again, three times in all. Posix only.
//
// Errors: [rlalgo.remote.78] there is no ng_run to start; [.79] it ended, with the end of its log.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>

namespace rlalgo::remote {

struct GymProcessConfig {
  std::filesystem::path directory{};        // a NeMo Gym: with .venv/bin/ng_run
  std::vector<std::string> config_paths{};  // as ng_run takes them: below `directory`, or of the installed package
  std::int64_t head_port = 11000;
  bool waits_for_model = false;             // whether the Gym is to wait for its model endpoint
  std::vector<std::string> overrides = {};  // further arguments, as Hydra has them: +key=value
  std::filesystem::path log{};
  double stop_seconds = 30.0;
};

class GymProcess {
 public:
  explicit GymProcess(GymProcessConfig config);
  GymProcess(const GymProcess&) = delete;
  GymProcess& operator=(const GymProcess&) = delete;
  ~GymProcess();

  // Raises when it has ended; starts it again when that may help.
  void require_running();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

 private:
  void start();
  [[nodiscard]] std::string log_end(std::size_t lines) const;

  GymProcessConfig config_;
  pid_t pid_ = -1;
  int starts_ = 0;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/gym_process_impl.hpp>
#endif
