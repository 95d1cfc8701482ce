#include <rlalgo/run/loss_watchdog.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/run/loop.hpp>
#include <rlalgo/run/run_info.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;
using rlalgo::support::lacks;

namespace {

// The step after which axolotl's callback stops a run whose records come after their step; 0: none.
std::int64_t stops_after(const std::vector<double>& losses, LossWatchdogConfig config) {
  LossWatchdog dog(config);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    dog.step_ended();
    dog.see({.values = {{"loss", losses[i]}}});
    if (dog.barks()) return static_cast<std::int64_t>(i + 1);
  }
  return 0;
}

LoopConfig high(const fs::path& path, std::int64_t max_steps) {
  LoopConfig config = fake::config(path, max_steps);
  config.logging_steps = 1;
  return config;
}

// The loss is 1 until step `from` (1-based), 9 from there on.
Callbacks jumping(fake::Run& run, std::int64_t from) {
  Callbacks out = run.callbacks();
  out.train_step = [&run, from](std::int64_t step) {
    StepResult result = run.train_step(step);
    result.loss = step + 1 >= from ? 9.0 : 1.0;
    return result;
  };
  return out;
}

std::vector<std::int64_t> saved(const fs::path& path) {
  std::vector<std::int64_t> out;
  for (const Checkpoint& one : list_checkpoints(path)) out.push_back(one.step);
  return out;
}

}  // namespace

TEST_CASE("violations in a row end a run, one step after the record of the last of them") {
  CHECK(stops_after({9, 9, 9, 9, 9}, {.threshold = 5.0}) == 4);  // seen at the ends of steps 2, 3 and 4
  CHECK(stops_after({9, 9, 9, 9, 9}, {.threshold = 5.0, .patience = 1}) == 2);
  CHECK(stops_after({9, 9, 1, 9, 9, 9, 9}, {.threshold = 5.0}) == 7);  // one below begins anew
  CHECK(stops_after({5, 5, 5, 5, 5}, {.threshold = 5.0}) == 0);        // above, not at
  CHECK(stops_after({9, 9, 9, 9, 9}, {}) == 0);
}

TEST_CASE("an evaluation's record counts neither way, a record of several steps for each of them") {
  LossWatchdog dog({.threshold = 5.0});
  dog.see({.values = {{"loss", 9.0}}});
  dog.step_ended();
  dog.see({.values = {{"eval_loss", 1.0}}});
  dog.step_ended();
  CHECK(dog.state()["violations"] == 1);
  dog.see({.values = {{"loss", 8.0}}});
  dog.step_ended();
  CHECK_FALSE(dog.barks());
  dog.step_ended();
  CHECK(dog.barks());
  CHECK(lacks(dog.reason(), {"loss_watchdog_threshold 5.0", "3 steps", "now 8.0"}) == "");
}

TEST_CASE("a run that is ended says so, saves its model, and is no interruption") {
  const rlalgo::support::ScratchDirectory scratch;
  LoopConfig config = high(scratch.path(), 12);
  config.watchdog = {.threshold = 5.0};
  fake::Run run;
  const Outcome outcome = Loop(config, jumping(run, 4)).run();
  CHECK(outcome.step == 7);
  CHECK_FALSE(outcome.interrupted);
  CHECK(outcome.exit_code() == 0);
  CHECK(lacks(outcome.stopped, {"loss_watchdog_threshold", "3 steps"}) == "");
  CHECK(saved(scratch.path()) == std::vector<std::int64_t>{2, 4, 6});  // none of its own, as transformers
  CHECK(fs::exists(scratch.path() / "model.safetensors"));
  CHECK(read_run_info(scratch.path())["status"] == "stopped");
  CHECK(read_run_info(scratch.path())["error"] == outcome.stopped);
  // Where epochs end with a checkpoint, so does the run.
  config.output_dir = scratch.path() / "epochs";
  config.save = Cadence::epochs();
  fake::Run other;
  CHECK(Loop(config, jumping(other, 4)).run().step == 7);
  CHECK(saved(config.output_dir) == std::vector<std::int64_t>{4, 7});
}

TEST_CASE("a resumed run ends where it would have ended, and another threshold begins anew") {
  const rlalgo::support::ScratchDirectory scratch;
  LoopConfig config = high(scratch.path(), 12);
  config.watchdog = {.threshold = 5.0};
  for (const std::int64_t at : {4, 6}) {
    fake::Run whole;
    CHECK(Loop(config, jumping(whole, 4)).run().step == 7);
    config.resume_from_checkpoint = scratch.path() / ("checkpoint-" + std::to_string(at));
    fake::Run half;
    CHECK(Loop(config, jumping(half, 4)).run().step == 7);
    CHECK(half.weights() == whole.weights());
    config.resume_from_checkpoint.reset();
  }
  config.resume_from_checkpoint = scratch.path() / "checkpoint-6";
  config.watchdog.threshold = 8.5;
  fake::Run looser;
  CHECK(Loop(config, jumping(looser, 4)).run().step == 9);  // the records of steps 6, 7 and 8
  config.watchdog.threshold = 9.0;
  fake::Run whole;
  CHECK(Loop(config, jumping(whole, 4)).run().step == 12);
}
