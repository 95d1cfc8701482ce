// Who watches a run: progress line, TensorBoard, report, or a user's own. Called by the loop, in order of registration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/run/step.hpp>

namespace rlalgo::run {

struct RunStart {
  std::filesystem::path output_dir;
  std::string title;
  std::int64_t first_step = 0;  // steps already done: 0, or that of the checkpoint
  std::int64_t max_steps = 0;
  std::vector<Record> history = {};  // the records of the run so far, when it is resumed
};

struct StepDone {
  std::int64_t step = 0;  // 1-based
  std::int64_t max_steps = 0;
  double seconds = 0.0;
  const StepResult& result;
};

class Observer {
 public:
  virtual ~Observer() = default;
  virtual void on_start(const RunStart&) {}
  virtual void on_step(const StepDone&) {}
  virtual void on_record(const Record&) {}        // a line went to metrics.jsonl
  virtual void on_message(const std::string&) {}  // a notice for the user: saved …, warning …
  virtual void on_finish() {}                     // also after an interruption or an error
};

}  // namespace rlalgo::run
