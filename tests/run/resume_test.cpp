#include <rlalgo/run/resume.hpp>

#include <set>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

CheckpointParts parts(const std::string& run) {
  CheckpointParts p;
  p.save_model = [](const fs::path& dir) { rlalgo::core::write_file(dir / "model.safetensors", "weights"); };
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
  rlalgo::core::write_file(dir.path / "checkpoint-10/model.safetensors", "weighty");  // of the same size
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
