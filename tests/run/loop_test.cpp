#include <rlalgo/run/loop.hpp>

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <ctime>
#include <fstream>
#include <limits>

#include <rlalgo/os/interruption.hpp>

#include <support/catch.hpp>
#include <support/not_run.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

// The files of an uninterrupted run of `steps` steps.
std::map<std::string, std::string> uninterrupted(std::int64_t steps, std::int64_t kept = 4) {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, steps);
  config.save_total_limit = kept;
  Loop(config, run.callbacks()).run();
  return fake::comparable(dir.path);
}

std::vector<std::int64_t> recorded_steps(const fs::path& output_dir) {
  std::vector<std::int64_t> out;
  std::ifstream in(output_dir / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line)["step"].get<std::int64_t>());
  return out;
}

std::vector<std::int64_t> saved_steps(const fs::path& output_dir) {
  std::vector<std::int64_t> out;
  for (const Checkpoint& c : list_checkpoints(output_dir)) out.push_back(c.step);
  return out;
}

using Steps = std::vector<std::int64_t>;

struct Messages : Observer {
  std::string text;
  void on_message(const std::string& message) override { text += message + "\n"; }
};

}  // namespace

TEST_CASE("a run writes its outputs") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path / "new" / "folder", 7);
  const Outcome outcome = Loop(config, run.callbacks()).run();
  CHECK(outcome.step == 7);
  CHECK(outcome.exit_code() == 0);
  CHECK(recorded_steps(config.output_dir) == Steps{1, 3, 6, 7});
  CHECK(saved_steps(config.output_dir) == Steps{2, 4, 6, 7});
  CHECK(fake::read(config.output_dir / "model.safetensors") ==
        fake::read(config.output_dir / "checkpoint-7/model.safetensors"));
  const Json state = Json::parse(fake::read(config.output_dir / "trainer_state.json"));
  CHECK(state["global_step"] == 7);
  CHECK(state["num_input_tokens_seen"] == 70);
  REQUIRE(state["log_history"].size() == 5);  // four records and the summary
  CHECK(state["log_history"][4].contains("train_loss"));
  CHECK(state["log_history"][4].contains("train_runtime"));
  for (const auto& entry : fs::directory_iterator(config.output_dir)) CHECK(entry.path().filename().string()[0] != '.');
}

TEST_CASE("an output_dir that vanishes while the run goes on is made anew, and nothing that is known is lost") {
  const fake::TempDir dir, other;
  for (const bool moved : {false, true}) {
    fake::Run run;
    LoopConfig config = fake::config(dir.path / (moved ? "moved" : "deleted"), 7);
    config.report = config.tensorboard = true;
    auto callbacks = run.callbacks();
    callbacks.train_step = [&, inner = callbacks.train_step](std::int64_t step) {
      if (step == 4 && moved) fs::rename(config.output_dir, other.path / "elsewhere");
      if (step == 4 && !moved) fs::remove_all(config.output_dir);
      if (step == 6) fs::remove_all(config.output_dir);  // and again, behind the last record
      return inner(step);
    };
    Messages messages;
    Loop loop(config, callbacks);
    loop.observe(messages);
    CHECK(loop.run().step == 7);
    CHECK(recorded_steps(config.output_dir) == Steps{1, 3, 6, 7});
    CHECK(saved_steps(config.output_dir) == Steps{7});
    CHECK(fs::exists(config.output_dir / "report.html"));
    CHECK(fs::exists(config.output_dir / "model.safetensors"));
    const std::string samples = fake::read(config.output_dir / "samples.jsonl");
    for (const char* step : {"1", "3", "6", "7"})
      CHECK(samples.find(std::string("\"step\": ") + step + ",") != std::string::npos);
    CHECK(Json::parse(fake::read(config.output_dir / "run.json"))["status"] == "finished");
    CHECK(messages.text.find("was deleted or moved away while the run went on") != std::string::npos);
  }
}

TEST_CASE("logged values are means of the window, whatever was logged first") {
  const fake::TempDir dir;
  fake::Run run;
  auto callbacks = run.callbacks();
  callbacks.train_step = [](std::int64_t step) {
    StepResult result;
    result.loss = static_cast<double>(step + 1);
    result.grad_norm = 1;
    return result;
  };
  Loop(fake::config(dir.path, 6), callbacks).run();
  std::ifstream in(dir.path / "metrics.jsonl");
  std::vector<double> losses;
  for (std::string line; std::getline(in, line);) losses.push_back(Json::parse(line)["loss"].get<double>());
  CHECK(losses == std::vector<double>{1.0, 2.5, 5.0});  // {1}, {2, 3}, {4, 5, 6}
}

TEST_CASE("a run that dies at any step and is resumed equals one that never stopped") {
  const auto expected = uninterrupted(12);
  for (std::int64_t death = 2; death < 12; ++death) {
    const fake::TempDir dir;
    LoopConfig config = fake::config(dir.path, 12);
    {
      fake::Run run;
      run.before_step = [&](std::int64_t step) {
        if (step == death) throw std::runtime_error("power cut");
      };
      CHECK_THROWS(Loop(config, run.callbacks()).run());
    }
    config.resume_from_checkpoint = latest_checkpoint(dir.path);
    REQUIRE(config.resume_from_checkpoint);
    fake::Run run;
    CHECK(Loop(config, run.callbacks()).run().step == 12);
    INFO("died before step " << death + 1);
    CHECK(fake::comparable(dir.path) == expected);
  }
}

TEST_CASE("a finished run that is extended equals a longer one") {
  const auto expected = uninterrupted(10);
  const fake::TempDir dir;
  {
    fake::Run run;
    Loop(fake::config(dir.path, 5), run.callbacks()).run();
    CHECK(recorded_steps(dir.path) == Steps{1, 3, 5});  // step 5 is the flush at the end, and does not survive
  }
  LoopConfig config = fake::config(dir.path, 10);
  config.resume_from_checkpoint = dir.path / "checkpoint-5";
  fake::Run run;
  Loop(config, run.callbacks()).run();
  auto found = fake::comparable(dir.path);
  for (const char* file :
       {"metrics.jsonl", "samples.jsonl", "model.safetensors", "trainer_state.json", "checkpoint-10/model.safetensors",
        "checkpoint-10/optimizer.safetensors", "checkpoint-10/rlalgo_state.json", "checkpoint-10/trainer_state.json"}) {
    INFO(file);
    CHECK(found[file] == expected.at(file));
  }
}

TEST_CASE("a run can be resumed into another directory") {
  const auto expected = uninterrupted(8);
  const fake::TempDir first;
  const fake::TempDir second;
  fake::Run run;
  Loop(fake::config(first.path, 4), run.callbacks()).run();
  LoopConfig config = fake::config(second.path, 8);
  config.resume_from_checkpoint = first.path / "checkpoint-4";
  fake::Run resumed;
  Loop(config, resumed.callbacks()).run();
  const auto found = fake::comparable(second.path);
  CHECK(found.at("metrics.jsonl") == expected.at("metrics.jsonl"));
  CHECK(found.at("model.safetensors") == expected.at("model.safetensors"));
}

namespace {

// kill -9 of this process, `microseconds` from now.
void kill_soon(double microseconds) {
  sigevent event = {};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer = {};
  itimerspec at = {};
  at.it_value.tv_nsec = 1 + static_cast<long>(1000.0 * microseconds);
  if (::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || ::timer_settime(timer, 0, &at, nullptr) != 0) ::_exit(2);
}

}  // namespace

// A run writes 104 pieces of weights: 16 for each of six checkpoints, 8 at the end. Each attempt dies up to 3 ms after a
// piece that is drawn from its first 8 + 4·attempts ones: by progress, so that a busy machine changes nothing. (A piece
// takes half a millisecond at least: no attempt among the first three comes to its end, and some attempt does.)
TEST_CASE("kill -9 at random moments, most of them while saving") {
  const auto expected = uninterrupted(12);
  const auto every_checkpoint = uninterrupted(12, 100);
  const auto seed = GENERATE(1U, 2U, 3U);
  const fake::TempDir dir;
  int kills = 0;
  int rounds = 0;
  for (bool finished = false; !finished; ++rounds) {
    REQUIRE(rounds < 200);
    const auto draw = [&](std::uint64_t index) {
      return rlalgo::core::uniform({seed, rlalgo::core::Stream::test}, static_cast<std::uint64_t>(rounds), index);
    };
    const int last_piece = 1 + static_cast<int>(draw(0) * (8 + 4 * rounds));
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        LoopConfig config = fake::config(dir.path, 12);
        config.resume_from_checkpoint = latest_checkpoint(dir.path);
        fake::Run run;
        run.chunks = 8;
        run.pause = std::chrono::microseconds(500);
        run.after_chunk = [&, pieces = 0]() mutable {
          if (++pieces == last_piece) kill_soon(3000 * draw(1));
        };
        Loop(config, run.callbacks()).run();
      } catch (const std::exception& error) {
        ::write(STDERR_FILENO, error.what(), std::strlen(error.what()));
        ::_exit(1);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    finished = WIFEXITED(status);
    if (finished) REQUIRE(WEXITSTATUS(status) == 0);
    kills += finished ? 0 : 1;
    // Whatever stands under a checkpoint's name is whole and right.
    for (const Checkpoint& checkpoint : list_checkpoints(dir.path)) {
      REQUIRE(read_checkpoint(checkpoint.path).step == checkpoint.step);
      const std::string name = checkpoint.path.filename().string();
      for (const auto& [file, content] : fake::comparable(checkpoint.path)) {
        INFO(name << "/" << file);
        REQUIRE(content == every_checkpoint.at(name + "/" + file));
      }
    }
  }
  INFO("killed " << kills << " times");
  CHECK(kills >= 3);
  CHECK(fake::comparable(dir.path) == expected);
}

TEST_CASE("a file that cannot grow while saving: numbered error, nothing half-written, earlier checkpoint usable") {
  const fake::TempDir dir;
  const int status = fake::in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    fake::Run run(8192);  // 64 KiB of weights
    run.before_step = [](std::int64_t step) {
      if (step != 3) return;
      const rlimit small{32768, 32768};
      ::setrlimit(RLIMIT_FSIZE, &small);
    };
    const std::string error = fake::error_of([&] { Loop(fake::config(dir.path, 8), run.callbacks()).run(); });
    return error == "run.8" ? 0 : 1;
  });
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  CHECK(saved_steps(dir.path) == Steps{2});
  for (const auto& [name, content] : fake::tree(dir.path)) CHECK(name.find(".tmp") == std::string::npos);
  CHECK(read_run_info(dir.path)["status"] == "failed");
  LoopConfig config = fake::config(dir.path, 8);
  config.resume_from_checkpoint = latest_checkpoint(dir.path);
  fake::Run run;
  CHECK(Loop(config, run.callbacks()).run().step == 8);
}

TEST_CASE("a full disk") {
  const fake::TempDir dir;
  constexpr int cannot_mount = 77;
  const int status = fake::in_child([&] {
    // A file system of 400 KiB in a mount namespace of this child's own.
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path.c_str(), "tmpfs", 0, "size=400k") != 0)
      return cannot_mount;
    {
      fake::Run run(8192);  // a checkpoint takes 128 KiB and a little
      LoopConfig config = fake::config(dir.path / "out", 40);
      const std::string error = fake::error_of([&] { Loop(config, run.callbacks()).run(); });
      if (error != "run.8") return 1;
    }
    if (saved_steps(dir.path / "out") != Steps{2, 4}) return 2;
    for (const auto& [name, content] : fake::tree(dir.path))
      if (name.find(".tmp") != std::string::npos) return 3;
    // The space is back: a limit of one fits, if room for the next is made by hand.
    fs::remove_all(dir.path / "out/checkpoint-2");
    LoopConfig config = fake::config(dir.path / "out", 6);
    config.save_total_limit = 1;
    config.resume_from_checkpoint = latest_checkpoint(config.output_dir);
    fake::Run run;
    return Loop(config, run.callbacks()).run().step == 6 ? 0 : 4;
  });
  rlalgo::support::needs(!WIFEXITED(status) || WEXITSTATUS(status) != cannot_mount,
                         "no permission to mount a small file system");
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("Ctrl-C finishes the step, saves, exits 130, and the run can go on") {
  const auto expected = uninterrupted(12);
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 12);
  bool inside = false;
  {
    fake::Run run;
    run.before_step = [&](std::int64_t step) {
      if (step == 4) std::raise(SIGINT), inside = true;
    };
    Messages messages;
    Loop loop(config, run.callbacks());
    loop.observe(messages);
    const Outcome outcome = loop.run();
    CHECK(inside);
    CHECK(outcome.interrupted);
    CHECK(outcome.exit_code() == 130);
    CHECK(outcome.step == 5);
    CHECK(messages.text.find("checkpoint-5") != std::string::npos);
  }
  CHECK(saved_steps(dir.path) == Steps{2, 4, 5});
  CHECK(fs::exists(dir.path / "model.safetensors"));
  CHECK(read_run_info(dir.path)["status"] == "interrupted");
  config.resume_from_checkpoint = latest_checkpoint(dir.path);
  CHECK(config.resume_from_checkpoint == dir.path / "checkpoint-5");
  fake::Run run;
  Loop(config, run.callbacks()).run();
  const auto found = fake::comparable(dir.path);
  CHECK(found.at("metrics.jsonl") == expected.at("metrics.jsonl"));
  CHECK(found.at("model.safetensors") == expected.at("model.safetensors"));
}

TEST_CASE("a loop that is asked for neither takes no signals and writes no checkpoint") {
  const fake::TempDir dir;
  LoopConfig config;
  config.output_dir = dir.path;
  config.max_steps = 4;
  config.progress = false;
  fake::Run run;
  static int received = 0;
  received = 0;
  const auto mine = [](int) { ++received; };
  const auto before = std::signal(SIGINT, mine);
  run.before_step = [](std::int64_t step) {
    if (step == 1) std::raise(SIGINT);
  };
  const Outcome outcome = Loop(config, run.callbacks()).run();
  std::signal(SIGINT, before);
  CHECK(received == 1);
  CHECK_FALSE(outcome.interrupted);
  CHECK(outcome.step == 4);
  CHECK(saved_steps(dir.path).empty());
  CHECK(fs::exists(dir.path / "model.safetensors"));
}

TEST_CASE("an interruption before the first step saves nothing") {
  const fake::TempDir dir;
  fake::Run run;
  auto callbacks = run.callbacks();
  callbacks.evaluate = [] {
    std::raise(SIGTERM);
    return rlalgo::core::Metrics();
  };
  LoopConfig config = fake::config(dir.path, 4);
  config.eval_first = true;
  const Outcome outcome = Loop(config, callbacks).run();
  CHECK(outcome.interrupted);
  CHECK(outcome.step == 0);
  CHECK(saved_steps(dir.path).empty());
}

TEST_CASE("the final model replaces weights of an earlier run under any name, and nothing else") {
  const fake::TempDir dir;
  for (const char* name : {"model-00001-of-00002.safetensors", "model.safetensors.index.json",
                           "adapter_model.safetensors", "model.safetensors", "notes.txt", "modelling.md"})
    std::ofstream(dir.path / name) << "old";
  fake::Run run;
  Loop(fake::config(dir.path, 2), run.callbacks()).run();
  std::string names;
  for (const auto& [name, content] : fake::tree(dir.path))
    if (name.find('/') == std::string::npos) names += name + (content == "old" ? " old; " : "; ");
  CHECK(names ==
        "metrics.jsonl; model.safetensors; modelling.md old; notes.txt old; run.json; samples.jsonl; "
        "trainer_state.json; ");
}

TEST_CASE("a failure in the final save keeps the former model") {
  const fake::TempDir dir;
  std::ofstream(dir.path / "model.safetensors") << "former";
  fake::Run run;
  auto callbacks = run.callbacks();
  callbacks.save_model = [](const fs::path& to) {
    std::ofstream(to / "model.safetensors") << "half";
    throw std::runtime_error("No space left on device");
  };
  LoopConfig config = fake::config(dir.path, 2);
  config.save = Cadence::never();
  CHECK_THROWS_WITH(Loop(config, callbacks).run(), "No space left on device");
  CHECK(fake::read(dir.path / "model.safetensors") == "former");
  for (const auto& [name, content] : fake::tree(dir.path)) CHECK(name.find(".tmp") == std::string::npos);
}

TEST_CASE("when to save") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 10);
  config.save_total_limit = 100;
  SECTION("whenever an epoch ends (four steps each), and at the end") {
    config.save = Cadence::epochs();
    Loop(config, run.callbacks()).run();
    CHECK(saved_steps(dir.path) == Steps{4, 8, 10});
  }
  SECTION("never") {
    config.save = Cadence::never();
    Loop(config, run.callbacks()).run();
    CHECK(saved_steps(dir.path).empty());
    CHECK(fs::exists(dir.path / "model.safetensors"));
  }
  SECTION("after the first step too") {
    config.save = Cadence::steps(5);
    config.save_first_step = true;
    Loop(config, run.callbacks()).run();
    CHECK(saved_steps(dir.path) == Steps{1, 5, 10});
  }
  SECTION("four are kept unless another number is asked for") {
    config.save = Cadence::steps(1);
    config.save_total_limit = 0;
    Loop(config, run.callbacks()).run();
    CHECK(saved_steps(dir.path) == Steps{7, 8, 9, 10});
  }
  SECTION("without optimizer state there is nothing to resume") {
    config.save_only_model = true;
    Loop(config, run.callbacks()).run();
    CHECK_FALSE(fs::exists(dir.path / "checkpoint-10/optimizer.safetensors"));
    config.resume_from_checkpoint = dir.path / "checkpoint-10";
    CHECK(fake::error_of([&] { Loop(config, run.callbacks()).run(); }) == "run.7");
  }
}

TEST_CASE("an epoch made of fractions ends once") {
  const Cadence cadence = Cadence::epochs();
  double epoch = 0;
  int ends = 0;
  for (int i = 0; i < 30; ++i) {
    const double before = epoch;
    epoch += 0.1;
    ends += cadence.due(i + 1, before, epoch) ? 1 : 0;
  }
  CHECK(ends == 3);
}

TEST_CASE("evaluations are records of their own with prefixed names") {
  const fake::TempDir dir;
  fake::Run run;
  auto callbacks = run.callbacks();
  callbacks.evaluate = [] {
    rlalgo::core::Metrics m;
    m.mean("reward", 3, 4);
    return m;
  };
  LoopConfig config = fake::config(dir.path, 4);
  config.eval = Cadence::steps(2);
  config.eval_first = true;
  Loop(config, callbacks).run();
  std::ifstream in(dir.path / "metrics.jsonl");
  std::string shape;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line);
    shape += json["step"].dump() + (json.contains("eval_reward") ? "e" : "") + " ";
    if (json.contains("eval_reward")) {
      CHECK(json["eval_reward"] == 0.75);
      CHECK(json.contains("eval_num_tokens"));
      CHECK_FALSE(json.contains("loss"));
    }
  }
  CHECK(shape == "0e 1 2e 3 4e 4 ");
}

TEST_CASE("an evaluation says how many tokens the method has counted, else those of all steps; after a resume too") {
  for (const bool counts : {true, false}) {
    const fake::TempDir dir;
    const auto evaluated = [&](std::int64_t steps, bool resumes) {
      fake::Run run;
      auto callbacks = run.callbacks();
      callbacks.train_step = [counts, inner = callbacks.train_step](std::int64_t step) {
        StepResult out = inner(step);
        out.metrics = {};
        if (counts && step % 2 == 0) out.metrics.last("num_tokens", 1000.0 + static_cast<double>(step));
        return out;
      };
      callbacks.evaluate = [] { return rlalgo::core::Metrics(); };
      LoopConfig config = fake::config(dir.path, steps);
      config.eval = Cadence::steps(steps);
      if (resumes) config.resume_from_checkpoint = latest_checkpoint(dir.path);
      Loop(config, callbacks).run();
      std::ifstream in(dir.path / "metrics.jsonl");
      std::int64_t out = -1;
      for (std::string line; std::getline(in, line);)
        if (const Json json = Json::parse(line); json.contains("eval_num_tokens"))
          out = json["eval_num_tokens"].get<std::int64_t>();
      CHECK(Json::parse(fake::read(dir.path / "trainer_state.json"))["num_input_tokens_seen"] == out);
      return out;
    };
    CHECK(evaluated(3, false) == (counts ? 1002 : 30));
    CHECK(evaluated(4, true) == (counts ? 1002 : 40));
    CHECK(evaluated(5, true) == (counts ? 1004 : 50));
  }
}

TEST_CASE("the last step is evaluated whatever the interval, once, after a resume too") {
  const fake::TempDir dir;
  fake::Run run;
  int evaluations = 0;
  const auto callbacks_of = [&](fake::Run& of) {
    auto callbacks = of.callbacks();
    callbacks.evaluate = [&] {
      ++evaluations;
      return rlalgo::core::Metrics();
    };
    return callbacks;
  };
  const auto evaluated = [&] {
    std::ifstream in(dir.path / "metrics.jsonl");
    Steps out;
    for (std::string line; std::getline(in, line);)
      if (const Json json = Json::parse(line); json.contains("time/eval")) out.push_back(json["step"]);
    return out;
  };
  LoopConfig config = fake::config(dir.path, 5);
  config.eval = Cadence::steps(3);
  Loop(config, callbacks_of(run)).run();
  CHECK(evaluated() == Steps{3, 5});
  config.resume_from_checkpoint = latest_checkpoint(dir.path);  // of the last step, taken before its evaluation
  fake::Run again;
  Loop(config, callbacks_of(again)).run();
  CHECK(evaluated() == Steps{3, 5});
  CHECK(evaluations == 3);
  config.max_steps = 6;  // a longer run has no evaluation of the former end
  fake::Run longer;
  Loop(config, callbacks_of(longer)).run();
  CHECK(evaluated() == Steps{3, 6});
  CHECK(evaluations == 4);
}

TEST_CASE("resuming another run is refused, a changed setting too unless it is forced") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 4);
  Loop(config, run.callbacks()).run();
  const auto before = fake::tree(dir.path);
  config.resume_from_checkpoint = dir.path / "checkpoint-4";
  config.max_steps = 6;
  config.identity["seed"] = 8;
  CHECK(fake::error_of([&] { Loop(config, run.callbacks()).run(); }) == "run.6");
  config.identity["seed"] = 7;
  config.settings["learning_rate"] = 0.2;
  CHECK(fake::error_of([&] { Loop(config, run.callbacks()).run(); }) == "run.12");
  config.resume_rules.force = true;
  config.resume_notes = {"a note"};
  Messages messages;
  Loop loop(config, run.callbacks());
  loop.observe(messages);
  CHECK(loop.run().step == 6);
  CHECK(messages.text.starts_with("a note\n"));
  CHECK(messages.text.find("learning_rate: 0.1 in the checkpoint, 0.2 now") != std::string::npos);
}

TEST_CASE("a refused resume leaves the logs of the run alone") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 4);
  Loop(config, run.callbacks()).run();
  const auto before = fake::tree(dir.path);
  config.resume_from_checkpoint = dir.path / "checkpoint-3";
  CHECK(fake::error_of([&] { Loop(config, run.callbacks()).run(); }) == "run.4");
  auto after = fake::tree(dir.path);
  for (const auto& [name, content] : before) {
    INFO(name);
    CHECK(after[name] == content);
  }
}

TEST_CASE("two runs in one directory") {
  const fake::TempDir dir;
  fake::Run inner;
  fake::Run outer;
  std::string error;
  outer.before_step = [&](std::int64_t step) {
    if (step == 1) error = fake::error_of([&] { Loop(fake::config(dir.path, 4), inner.callbacks()).run(); });
  };
  CHECK(Loop(fake::config(dir.path, 4), outer.callbacks()).run().step == 4);
  CHECK(error == "run.3");
}

TEST_CASE("a loss or gradient norm that is not finite names the step") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK_NOTHROW(require_finite(3, 1, 2));
  for (const auto& [loss, norm] : {std::pair{nan, 1.0}, {infinity, 1.0}, {1.0, nan}, {1.0, infinity}}) {
    CHECK(fake::error_of([&] { require_finite(3, loss, norm); }) == "run.9");
    CHECK_THROWS_WITH(require_finite(3, loss, norm), Catch::Contains("step 3"));
  }
}

TEST_CASE("impossible settings are wrong usage") {
  const fake::TempDir dir;
  fake::Run run;
  const auto refused = [&](const std::function<void(LoopConfig&)>& change) {
    LoopConfig config = fake::config(dir.path, 4);
    change(config);
    try {
      Loop loop(config, run.callbacks());
    } catch (const rlalgo::core::UsageError& error) {
      return error.exit_code() == 2 && error.number() == 2;
    }
    return false;
  };
  CHECK(refused([](LoopConfig& c) { c.max_steps = 0; }));
  CHECK(refused([](LoopConfig& c) { c.logging_steps = 0; }));
  CHECK(refused([](LoopConfig& c) { c.save = Cadence::steps(0); }));
  CHECK(refused([](LoopConfig& c) { c.eval = Cadence::steps(5); }));  // no evaluation data
  CHECK_FALSE(refused([](LoopConfig&) {}));
}

TEST_CASE("an output_dir that cannot be made is a numbered error") {
  const fake::TempDir dir;
  std::ofstream(dir.path / "file") << "x";
  fake::Run run;
  CHECK(fake::error_of([&] { Loop(fake::config(dir.path / "file" / "out", 4), run.callbacks()).run(); }) == "os.1");
}

TEST_CASE("a step that is given up when a stop is asked for leaves the checkpoint of the step before") {
  const auto expected = uninterrupted(12);
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 12);
  const auto given_up = [](std::int64_t at) {
    return [at](std::int64_t step) {
      if (step != at) return;
      std::raise(SIGTERM);
      rlalgo::os::raise_interrupted("http", 7, {.what = "a call was given up"});
    };
  };
  {
    fake::Run run;
    run.before_step = given_up(5);
    Messages messages;
    Loop loop(config, run.callbacks());
    loop.observe(messages);
    const Outcome outcome = loop.run();
    CHECK(outcome.interrupted);
    CHECK(outcome.exit_code() == 143);
    CHECK(outcome.step == 5);
    CHECK_THAT(messages.text, Catch::Contains("given up: [rlalgo.http.7]"));
  }
  CHECK(saved_steps(dir.path) == Steps{2, 4, 5});
  CHECK(read_run_info(dir.path)["status"] == "interrupted");
  config.resume_from_checkpoint = latest_checkpoint(dir.path);
  fake::Run run;
  Loop(config, run.callbacks()).run();
  CHECK(fake::comparable(dir.path).at("model.safetensors") == expected.at("model.safetensors"));

  SECTION("in the first step there is nothing to save") {
    const fake::TempDir fresh;
    fake::Run first;
    first.before_step = given_up(0);
    const Outcome outcome = Loop(fake::config(fresh.path, 4), first.callbacks()).run();
    CHECK(outcome.interrupted);
    CHECK(outcome.step == 0);
    CHECK(saved_steps(fresh.path).empty());
  }
  SECTION("without a request it is a failure like any other") {
    const fake::TempDir fresh;
    fake::Run first;
    first.before_step = [](std::int64_t) { rlalgo::os::raise_interrupted("http", 7, {.what = "somebody's token"}); };
    CHECK(fake::error_of([&] { Loop(fake::config(fresh.path, 4), first.callbacks()).run(); }) == "http.7");
    CHECK(read_run_info(fresh.path)["status"] == "failed");
  }
}

TEST_CASE("SIGHUP ends a run as SIGTERM does") {
  const fake::TempDir dir;
  fake::Run run;
  run.before_step = [](std::int64_t step) {
    if (step == 2) std::raise(SIGHUP);
  };
  const Outcome outcome = Loop(fake::config(dir.path, 8), run.callbacks()).run();
  CHECK(outcome.exit_code() == 129);
  CHECK(saved_steps(dir.path) == Steps{2, 3});
  CHECK(read_run_info(dir.path)["status"] == "interrupted");
}

TEST_CASE("what a resume would refuse is known before") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 4);
  CHECK_NOTHROW(check_resume(config));
  Loop(config, run.callbacks()).run();
  config.resume_from_checkpoint = dir.path / "checkpoint-4";
  CHECK_NOTHROW(check_resume(config));
  config.identity["seed"] = 8;
  CHECK(fake::error_of([&] { check_resume(config); }) == "run.6");
  config.resume_from_checkpoint = dir.path / "checkpoint-3";
  CHECK(fake::error_of([&] { check_resume(config); }) == "run.4");
}
