#include <rlalgo/run/resume.hpp>

#include <csignal>
#include <fstream>
#include <set>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

#include <rlalgo/run/metrics_log.hpp>

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

CheckpointParts parts(const std::string& run) {
  CheckpointParts p;
  p.save_model = [](const fs::path& dir) { rlalgo::os::write_file(dir / "model.safetensors", "weights"); };
  p.save_state = [](const fs::path&) { return Json::object(); };
  p.state = {{"epoch", 0.5},
             {"run", run},
             {"identity", {{"seed", 7}}},
             {"settings", {{"lr", 0.1}, {"steps", 5}, {"place", "a"}}},
             {"totals", Json::object()},
             {"window", Json::object()}};
  p.trainer_state = "{\"log_history\": []}";
  return p;
}

const ResumeRules rules{.free = {"place"}, .extended = {"steps"}};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

struct Told {
  std::string text;
  std::function<void(const std::string&)> ear() {
    return [this](const std::string& line) { text += line + "\n"; };
  }
};

}  // namespace

TEST_CASE("the latest checkpoint is the highest-numbered whole one, and damaged ones are named") {
  const fake::TempDir dir;
  CHECK_FALSE(latest_checkpoint(dir.path));
  CHECK_FALSE(latest_checkpoint(dir.path / "absent"));
  for (const int step : {4, 10, 12}) write_checkpoint(dir.path, step, parts("one"));
  CHECK(latest_checkpoint(dir.path) == dir.path / "checkpoint-12");
  fs::remove(dir.path / "checkpoint-12/model.safetensors");
  rlalgo::os::write_file(dir.path / "checkpoint-10/model.safetensors", "weighty");  // of the same size
  Told told;
  CHECK(latest_checkpoint(dir.path, told.ear()) == dir.path / "checkpoint-4");
  CHECK(told.text.find("checkpoint-12") != std::string::npos);
  CHECK(told.text.find("the checkpoint is damaged") != std::string::npos);
  CHECK(told.text.find("checkpoint-10") != std::string::npos);
}

TEST_CASE("checkpoints of another run are not resumed automatically") {
  const fake::TempDir dir;
  write_checkpoint(dir.path, 4, parts("new"));
  write_checkpoint(dir.path, 40, parts("old"));
  write_run_info(dir.path, {.id = "new"});
  Told told;
  CHECK(latest_checkpoint(dir.path, told.ear()) == dir.path / "checkpoint-4");
  CHECK(told.text.find("checkpoint-40 is of another run") != std::string::npos);
  write_run_info(dir.path, {.id = "third"});
  CHECK_FALSE(latest_checkpoint(dir.path));
  fs::remove(dir.path / run_info_file);
  CHECK(latest_checkpoint(dir.path) == dir.path / "checkpoint-40");
}

TEST_CASE("a fresh run over an old output_dir, killed at any moment: the old run's checkpoints stay out") {
  const fake::TempDir dir;
  {
    fake::Run run;
    Loop(fake::config(dir.path, 12), run.callbacks()).run();
  }
  const std::string old_id = read_run_info(dir.path)["id"];
  REQUIRE(latest_checkpoint(dir.path) == dir.path / "checkpoint-12");
  for (const std::int64_t death : {0, 1, 3}) {
    fake::Run run;
    run.before_step = [&](std::int64_t step) {
      if (step == death) throw std::runtime_error("power cut");
    };
    CHECK_THROWS(Loop(fake::config(dir.path, 12), run.callbacks()).run());
    CHECK(read_run_info(dir.path)["id"] != old_id);
    const auto found = latest_checkpoint(dir.path);
    INFO("died before step " << death + 1);
    if (death < 2) CHECK_FALSE(found);
    if (death == 3) CHECK(found == dir.path / "checkpoint-2");
  }
}

TEST_CASE("a resumed run keeps its id") {
  const fake::TempDir dir;
  fake::Run run;
  Loop(fake::config(dir.path, 4), run.callbacks()).run();
  const std::string id = read_run_info(dir.path)["id"];
  CHECK(id.size() == 16);
  LoopConfig config = fake::config(dir.path, 8);
  config.resume_from_checkpoint = dir.path / "checkpoint-2";
  fake::Run resumed;
  Loop(config, resumed.callbacks()).run();
  CHECK(read_run_info(dir.path)["id"] == id);
  CHECK(read_checkpoint(dir.path / "checkpoint-8").run_id == id);
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) ids.insert(new_run_id());
  CHECK(ids.size() == 100);
}

TEST_CASE("another run's checkpoint is an error, so is a changed setting unless the rules say otherwise") {
  const fake::TempDir dir;
  const LoadedCheckpoint loaded = read_checkpoint(write_checkpoint(dir.path, 6, parts("one")));
  const Json same = {{"lr", 0.1}, {"steps", 5}, {"place", "a"}};
  CHECK(check_resumable(loaded, {{"seed", 7}}, same, rules).empty());
  CHECK(check_resumable(loaded, {{"seed", 7}}, {{"lr", 0.1}, {"steps", 5}, {"place", "b"}}, rules).empty());
  CHECK(check_resumable(loaded, {{"seed", 7}}, {{"lr", 0.1}, {"steps", 9}, {"place", "a"}}, rules) ==
        std::vector<std::string>{"steps: 5 in the checkpoint, 9 now"});
  const Json changed = {{"lr", 0.2}, {"steps", 5}, {"beta", 0.04}};
  const std::string message = message_of([&] { (void)check_resumable(loaded, {{"seed", 7}}, changed, rules); });
  CHECK(message.starts_with("[rlalgo.run.12]"));
  CHECK(message.find("lr: 0.1 in the checkpoint, 0.2 now; beta: absent in the checkpoint, 0.04 now") !=
        std::string::npos);
  CHECK(message.find("place") == std::string::npos);
  CHECK(message.find("--force-resume") != std::string::npos);
  ResumeRules forced = rules;
  forced.force = true;
  CHECK(check_resumable(loaded, {{"seed", 7}}, changed, forced).size() == 2);
  const std::string other = message_of([&] { (void)check_resumable(loaded, {{"seed", 8}}, same, forced); });
  CHECK(other.starts_with("[rlalgo.run.6]"));
  CHECK(other.find("seed: 7 in the checkpoint, 8 now") != std::string::npos);
}

TEST_CASE("saved without optimizer: refused; of an earlier version: its settings are not compared") {
  const fake::TempDir dir;
  CheckpointParts model_only = parts("one");
  model_only.save_state = nullptr;
  const LoadedCheckpoint bare = read_checkpoint(write_checkpoint(dir.path, 8, model_only));
  CHECK(fake::error_of([&] { (void)check_resumable(bare, {{"seed", 7}}, Json::object()); }) == "run.7");
  LoadedCheckpoint old = read_checkpoint(write_checkpoint(dir.path, 10, parts("")));
  old.state["format"] = 1;
  const auto warnings = check_resumable(old, {{"seed", 7}}, {{"lr", 3}});
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("earlier version") != std::string::npos);
}

namespace {

// A run whose every output is compared: evaluations, samples, pairs.json, events. `point` is told of each thing that
// happens, in order, so that a test can end the process at any of them.
struct Watched : Observer {
  fake::Run run;
  LoopConfig config;
  Callbacks callbacks;
  std::function<void(const std::string&)> point = [](const std::string&) {};

  Watched(const fs::path& output_dir, std::int64_t max_steps) : config(fake::config(output_dir, max_steps)) {
    config.report = true;
    config.save_total_limit = 2;
    config.eval = Cadence::steps(5);
    config.eval_first = true;
    callbacks = run.callbacks();
    run.before_step = [this](std::int64_t) { point("step"); };
    callbacks.evaluate = [this] {
      point("evaluate");
      rlalgo::core::Metrics metrics;
      metrics.mean("loss", run.weights()[1], 1.0);
      return metrics;
    };
    callbacks.before_record = [this, output_dir] {
      point("before record");
      rlalgo::os::write_file(output_dir / pairs_file, Json{{"weight", run.weights()[0]}}.dump());
      point("pairs");
    };
    wrap(callbacks.save_model, "save model");
    wrap(callbacks.samples, "samples");
    callbacks.save_state = [this, save = callbacks.save_state](const fs::path& dir) {
      point("save state");
      const Json state = save(dir);
      point("saved state");
      return state;
    };
    callbacks.restore_state = [this, restore = callbacks.restore_state](const fs::path& dir, const Json& state) {
      point("restore");
      restore(dir, state);
    };
  }
  template <class R, class Argument>
  void wrap(std::function<R(Argument)>& callback, const std::string& name) {
    callback = [this, name, inner = callback](Argument argument) {
      point(name);
      return inner(argument);
    };
  }

  void on_start(const RunStart&) override { point("start"); }
  void on_step(const StepDone&) override { point("stepped"); }
  void on_record(const Record&) override { point("record"); }
  void on_message(const std::string&) override { point("message"); }
  void on_finish() override { point("finish"); }

  Outcome operator()() {
    Loop loop(config, callbacks);
    loop.observe(*this);
    return loop.run();
  }
  Outcome resumed() {
    config.resume_from_checkpoint = latest_checkpoint(config.output_dir);
    return (*this)();
  }
};

std::map<std::string, std::string> undisturbed(std::int64_t steps) {
  const fake::TempDir dir;
  Watched run(dir.path, steps);
  run();
  return fake::comparable(dir.path);
}

// The process ends at the n-th thing that happens, as by kill -9; false when the run was over before.
bool killed_at(const fs::path& output_dir, std::int64_t steps, int n) {
  const int status = fake::in_child([&] {
    Watched run(output_dir, steps);
    int count = 0;
    run.point = [&](const std::string&) {
      if (++count == n) ::kill(::getpid(), SIGKILL);
    };
    run.resumed();
    return 0;
  });
  return WIFSIGNALED(status);
}

}  // namespace

TEST_CASE("killed at every point of the loop, twice in a row, and resumed: the files of a run that was never killed") {
  const auto expected = undisturbed(8);
  CHECK(expected.contains("runs"));
  CHECK(expected.contains("checkpoint-8/pairs.json"));
  int points = 0;
  for (bool more = true; more; ++points) {
    const fake::TempDir dir;
    more = killed_at(dir.path, 8, points + 1);
    killed_at(dir.path, 8, 1 + 7 * points % 40);
    Watched run(dir.path, 8);
    run.resumed();
    INFO("killed at point " << points + 1);
    REQUIRE(fake::comparable(dir.path) == expected);
  }
  CHECK(points > 60);
}

TEST_CASE("killed between two of the files that a record goes to") {
  const auto expected = undisturbed(8);
  const std::vector<std::string> logs = {"pairs.json", "samples.jsonl", "metrics.jsonl", "runs"};
  // Killed after the record of step 6, whose checkpoint was not yet begun; then some of its files are as they were before.
  for (std::size_t written = 0; written < logs.size(); ++written) {
    const fake::TempDir dir;
    const int status = fake::in_child([&] {
      Watched run(dir.path, 8);
      std::map<std::string, std::string> saved;
      run.point = [&](const std::string& what) {
        if (what == "before record") saved = fake::tree(dir.path);
        if (what != "record") return;
        std::ifstream in(dir.path / metrics_file);
        std::string newest;
        for (std::string line; std::getline(in, line);) newest = line;
        if (Json::parse(newest)["step"] != 6) return;
        for (const auto& [name, content] : saved)
          for (std::size_t i = written; i < logs.size(); ++i)
            if (name.starts_with(logs[i])) rlalgo::os::write_file(dir.path / name, content);
        ::kill(::getpid(), SIGKILL);
      };
      run();
      return 0;
    });
    REQUIRE(WIFSIGNALED(status));
    Watched run(dir.path, 8);
    run.resumed();
    INFO(written << " of the files were written");
    CHECK(fake::comparable(dir.path) == expected);
  }
}

TEST_CASE("a finished run that is run again changes nothing") {
  for (const std::int64_t steps : {6, 8, 10}) {  // the last step is logged or a leftover, evaluated on schedule or not
    const fake::TempDir dir;
    {
      Watched run(dir.path, steps);
      run();
    }
    const auto expected = fake::comparable(dir.path);
    for (int again = 0; again < 2; ++again) {
      Watched run(dir.path, steps);
      CHECK(run.resumed().step == steps);
      INFO(steps << " steps");
      CHECK(fake::comparable(dir.path) == expected);
    }
  }
}

TEST_CASE("a finished run that is extended, resumed elsewhere or from an earlier checkpoint has the logs of one run") {
  const auto expected = undisturbed(12);
  const std::vector<std::string> logs = {"pairs.json", "samples.jsonl", "metrics.jsonl", "runs", "model.safetensors"};
  for (const std::int64_t end : {5, 7, 10}) {  // an evaluation on schedule; neither record nor evaluation; both
    const fake::TempDir dir;
    {
      Watched run(dir.path, end);
      run();
    }
    Watched run(dir.path, 12);
    run.resumed();
    const auto found = fake::comparable(dir.path);
    for (const std::string& name : logs) {
      INFO(name << " of a run that was to end after step " << end);
      CHECK(found.at(name) == expected.at(name));
    }
    const fake::TempDir other;
    Watched elsewhere(other.path, 12);
    elsewhere.config.resume_from_checkpoint = dir.path / "checkpoint-10";
    elsewhere();
    const auto moved = fake::comparable(other.path);
    for (const std::string& name : logs) CHECK(moved.at(name) == expected.at(name));
  }
  // The later checkpoint is taken again after the earlier one was, whatever that did to the logs.
  const fake::TempDir dir;
  Watched whole(dir.path, 12);
  whole();
  killed_at(dir.path, 12, 1);
  const int status = fake::in_child([&] {
    Watched run(dir.path, 12);
    run.point = [](const std::string& what) {
      if (what == "step") ::kill(::getpid(), SIGKILL);
    };
    run.config.resume_from_checkpoint = dir.path / "checkpoint-10";
    run();
    return 0;
  });
  REQUIRE(WIFSIGNALED(status));
  Watched run(dir.path, 12);
  run.resumed();
  CHECK(fake::comparable(dir.path) == expected);
}

TEST_CASE("a fresh run shows nothing of the run before it") {
  const fake::TempDir dir;
  Watched former(dir.path, 8);
  former();
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 2);
  Loop(config, run.callbacks()).run();
  CHECK_FALSE(fs::exists(dir.path / pairs_file));
  CHECK(fake::event_files(dir.path).size() == 1);
  CHECK(fake::read(dir.path / samples_file).find("answer 3") == std::string::npos);
}

TEST_CASE("a checkpoint of before samples were carried is resumed, its samples cut by step") {
  const fake::TempDir dir;
  fake::Run run;
  Loop(fake::config(dir.path, 6), run.callbacks()).run();
  const std::string whole = fake::read(dir.path / samples_file);
  const fs::path checkpoint = dir.path / "checkpoint-4";
  Json state = Json::parse(fake::read(checkpoint / state_file));
  state["samples"] = 7;
  rlalgo::os::write_file(checkpoint / state_file, state.dump());
  CHECK(fake::error_of([&] { (void)read_checkpoint(checkpoint); }) == "run.5");
  state.erase("samples");
  state["files"].erase("samples.jsonl");
  rlalgo::os::write_file(checkpoint / state_file, state.dump());
  fs::remove(checkpoint / samples_file);
  LoopConfig config = fake::config(dir.path, 6);
  config.resume_from_checkpoint = checkpoint;
  fake::Run resumed;
  Loop(config, resumed.callbacks()).run();
  CHECK(fake::read(dir.path / samples_file) == whole);
}
