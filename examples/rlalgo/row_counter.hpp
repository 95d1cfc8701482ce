// How far a preparation is, on standard error: on a terminal one line that counts, else a line every ten seconds.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <iostream>
#include <string>

#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/os/clock.hpp>

namespace rlalgo::cli {

class RowCounter {
 public:
  // The counter must outlive it.
  [[nodiscard]] assembly::RowProgress progress() {
    return [this](const std::string& what, std::int64_t rows) {
      if (terminal_) {
        std::cerr << "\r\033[K" << what << ": " << rows << " rows" << std::flush;
        drawn_ = true;
      } else if (since_.seconds() >= 10) {
        std::cerr << what << ": " << rows << " rows\n";
        since_ = {};
      }
    };
  }

  // Clears the line for what is printed next.
  void end() {
    if (drawn_) std::cerr << "\r\033[K" << std::flush;
    drawn_ = false;
  }

 private:
  const bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool drawn_ = false;
  os::Stopwatch since_;
};

}  // namespace rlalgo::cli
