#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include <rlalgo/run/checkpoint.hpp>

#include <support/catch.hpp>

#include "run/files.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

CheckpointParts parts(const std::string& weights) {
  CheckpointParts p;
  p.save_model = [weights](const fs::path& dir) { rlalgo::os::write_file(dir / "model.safetensors", weights); };
  p.save_state = [](const fs::path& dir) {
    rlalgo::os::write_file(dir / "optimizer.safetensors", "moments");
    return Json{{"cursor", 5}};
  };
  p.state = {{"epoch", 0.5},
             {"run", "a run"},
             {"identity", {{"seed", 7}}},
             {"settings", {{"lr", 0.1}}},
             {"totals", Json::object()},
             {"window", Json::object()}};
  p.trainer_state = "{\"log_history\": [{\"step\": 1, \"loss\": 2.0}]}";
  return p;
}

std::string steps(const fs::path& dir) {
  std::string out;
  for (const Checkpoint& c : list_checkpoints(dir)) out += std::to_string(c.step) + " ";
  return out;
}

std::string names(const fs::path& dir) {
  std::string out;
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(dir)) all.push_back(entry.path().filename().string());
  std::sort(all.begin(), all.end());
  for (const std::string& name : all) out += name + " ";
  return out;
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a checkpoint is written whole and read back") {
  const fake::TempDir dir;
  const fs::path path = write_checkpoint(dir.path, 6, parts("weights"));
  CHECK(path == dir.path / "checkpoint-6");
  CHECK(names(dir.path) == "checkpoint-6 ");
  CHECK(names(path) == "model.safetensors optimizer.safetensors rlalgo_state.json trainer_state.json ");
  const LoadedCheckpoint loaded = read_checkpoint(path);
  CHECK(loaded.step == 6);
  CHECK(loaded.state["owner"]["cursor"] == 5);
  CHECK(loaded.state["files"]["model.safetensors"]["bytes"] == 7);
  CHECK(loaded.state["files"]["model.safetensors"]["xxh64"] == rlalgo::core::Digest().update("weights").hex());
  CHECK(loaded.state["files"].size() == 3);  // all but rlalgo_state.json
  CHECK(loaded.run_id == "a run");
  CHECK(loaded.history[0]["loss"] == 2.0);
}

TEST_CASE("a checkpoint of the same step is replaced") {
  const fake::TempDir dir;
  write_checkpoint(dir.path, 6, parts("old"));
  write_checkpoint(dir.path, 6, parts("newer"));
  CHECK(names(dir.path) == "checkpoint-6 ");
  CHECK(fake::read(dir.path / "checkpoint-6/model.safetensors") == "newer");
}

TEST_CASE("a failure while saving leaves nothing and keeps what was there") {
  const fake::TempDir dir;
  write_checkpoint(dir.path, 4, parts("old"));
  CheckpointParts broken = parts("new");
  broken.save_state = [](const fs::path&) -> Json { throw std::runtime_error("No space left on device"); };
  const std::string message = message_of([&] { write_checkpoint(dir.path, 4, broken); });
  CHECK(message.starts_with("[rlalgo.run.8]"));
  CHECK(message.find("No space left on device") != std::string::npos);
  CHECK(message.find("checkpoint-4") != std::string::npos);
  CHECK(names(dir.path) == "checkpoint-4 ");
  CHECK(fake::read(read_checkpoint(dir.path / "checkpoint-4").path / "model.safetensors") == "old");
}

TEST_CASE("only checkpoint-<digits> directories are checkpoints, in order of their number") {
  const fake::TempDir dir;
  for (const char* name : {"checkpoint-10", "checkpoint-9", "checkpoint-best", "checkpoint-", "checkpoint-3x",
                           ".checkpoint-4.tmp", ".rlalgo-trial-7-xx.tmp"})
    fs::create_directory(dir.path / name);
  std::ofstream(dir.path / "checkpoint-5") << "a file";
  CHECK(steps(dir.path) == "9 10 ");
  const std::string other = "notes.txt.tmp.17";  // somebody else's
  for (const std::string& name :
       {std::string("metrics.jsonl.tmp.17"), std::string("ebft_rollouts.jsonl.tmp.17"), other})
    std::ofstream(dir.path / name) << "half";
  clean_leftovers(dir.path);
  CHECK_FALSE(fs::exists(dir.path / ".checkpoint-4.tmp"));
  CHECK_FALSE(fs::exists(dir.path / ".rlalgo-trial-7-xx.tmp"));
  CHECK_FALSE(fs::exists(dir.path / "metrics.jsonl.tmp.17"));
  CHECK_FALSE(fs::exists(dir.path / "ebft_rollouts.jsonl.tmp.17"));
  CHECK(fs::exists(dir.path / other));
  CHECK(list_checkpoints(dir.path / "absent").empty());
}

TEST_CASE("the oldest checkpoints go, never the one just written") {
  const fake::TempDir dir;
  for (const int step : {2, 4, 6, 8, 10})
    fs::create_directories(dir.path / ("checkpoint-" + std::to_string(step)) / "inner");
  SECTION("over the limit") {
    rotate_checkpoints(dir.path, 3, 10);
    CHECK(steps(dir.path) == "6 8 10 ");
  }
  SECTION("a limit of one") {
    rotate_checkpoints(dir.path, 1, 10);
    CHECK(steps(dir.path) == "10 ");
  }
  SECTION("a limit below one counts as one") {
    rotate_checkpoints(dir.path, 0, 10);
    CHECK(steps(dir.path) == "10 ");
  }
  SECTION("within the limit") {
    rotate_checkpoints(dir.path, 5, 10);
    CHECK(steps(dir.path) == "2 4 6 8 10 ");
  }
  SECTION("a run that started over deletes the overtaken run's later checkpoints first") {
    rotate_checkpoints(dir.path, 4, 4);
    CHECK(steps(dir.path) == "2 4 8 10 ");
    rotate_checkpoints(dir.path, 2, 4);
    CHECK(steps(dir.path) == "2 4 ");
    rotate_checkpoints(dir.path, 1, 2);
    CHECK(steps(dir.path) == "2 ");
  }
}

TEST_CASE("what cannot be resumed is refused by number") {
  const fake::TempDir dir;
  const fs::path path = write_checkpoint(dir.path, 6, parts("weights"));
  const auto refused = [&] { return fake::error_of([&] { (void)read_checkpoint(path); }); };
  CHECK(fake::error_of([&] { (void)read_checkpoint(dir.path / "checkpoint-7"); }) == "run.4");
  CHECK(fake::error_of([&] { (void)read_checkpoint(path / "model.safetensors"); }) == "run.4");
  CHECK(fake::error_of([&] { (void)read_checkpoint(dir.path); }) == "run.4");
  SECTION("a missing file") {
    fs::remove(path / "model.safetensors");
    CHECK(message_of([&] { (void)read_checkpoint(path); }).find("model.safetensors") != std::string::npos);
    CHECK(refused() == "run.5");
  }
  SECTION("a file cut short") {
    fs::resize_file(path / "optimizer.safetensors", 3);
    CHECK(message_of([&] { (void)read_checkpoint(path); }).find("optimizer.safetensors of 3 bytes, expected 7 bytes") !=
          std::string::npos);
    CHECK(refused() == "run.5");
  }
  SECTION("a state file cut short") {
    fs::resize_file(path / "rlalgo_state.json", 10);
    CHECK(refused() == "run.5");
  }
  SECTION("a state file of another format") {
    Json state = Json::parse(fake::read(path / "rlalgo_state.json"));
    state["format"] = 99;
    rlalgo::os::write_file(path / "rlalgo_state.json", state.dump());
    CHECK(refused() == "run.5");
    rlalgo::os::write_file(path / "rlalgo_state.json", "[]");
    CHECK(refused() == "run.5");
    state["format"] = state_format;
    state.erase("window");
    rlalgo::os::write_file(path / "rlalgo_state.json", state.dump());
    CHECK(refused() == "run.5");
    state["window"] = Json::object();
    state["step"] = "six";
    rlalgo::os::write_file(path / "rlalgo_state.json", state.dump());
    CHECK(refused() == "run.5");
  }
  SECTION("no history") {
    const auto size = fs::file_size(path / "trainer_state.json");
    for (std::string text : {"{\"log_history\": {}}", "{}", "{\"log_history\": [{\"epoch\": 1}]}"}) {
      text.resize(size, ' ');  // or the size alone would be refused
      rlalgo::os::write_file(path / "trainer_state.json", text);
      CHECK(refused() == "run.5");
      CHECK(message_of([&] { (void)read_checkpoint(path); }).find("bytes") == std::string::npos);
    }
  }
  SECTION("a flipped bit in a file of the right size") {
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"}) {
      const std::string before = fake::read(path / file);
      std::string flipped = before;
      flipped[2] = static_cast<char>(flipped[2] ^ 1);
      rlalgo::os::write_file(path / file, flipped);
      const std::string message = message_of([&] { (void)read_checkpoint(path); });
      CHECK(message.starts_with("[rlalgo.run.5] the checkpoint is damaged"));
      CHECK(message.find(file) != std::string::npos);
      rlalgo::os::write_file(path / file, before);
    }
    CHECK(refused() == "none");
    rlalgo::os::write_file(path / "model.safetensors", "weighty");
    CHECK(read_checkpoint(path, Verify::sizes).step == 6);
  }
}

TEST_CASE("one flipped bit anywhere in the state file is a damaged checkpoint") {
  const fake::TempDir dir;
  const fs::path path = write_checkpoint(dir.path, 6, parts("weights"));
  const std::string before = fake::read(path / state_file);
  const std::size_t entry = before.rfind(",\n \"xxh64\": \"");
  REQUIRE(entry != std::string::npos);
  CHECK(Json::parse(before)["xxh64"] == rlalgo::core::Digest().update(before.substr(0, entry)).hex());
  for (std::size_t at = 0; at < before.size(); ++at) {
    std::string harmed = before;
    harmed[at] = static_cast<char>(harmed[at] ^ 1 << at % 7);
    std::ofstream(path / state_file, std::ios::binary) << harmed;
    const std::string error = fake::error_of([&] { (void)read_checkpoint(path); });
    INFO(at << ": " << harmed[at]);
    // In the name or the end of the digest's own entry: there is none then, and all before it is whole.
    CHECK((error == "run.5" || (error == "none" && at >= entry)));
  }
}

TEST_CASE("a checkpoint of before digests is read, its files checked by size") {
  const fake::TempDir dir;
  const fs::path path = write_checkpoint(dir.path, 6, parts("weights"));
  Json state = Json::parse(fake::read(path / state_file));
  for (auto& [name, entry] : state["files"].items()) entry = Json(entry["bytes"]);
  state["format"] = 1;
  state.erase("run");
  rlalgo::os::write_file(path / state_file, state.dump());
  const LoadedCheckpoint loaded = read_checkpoint(path);
  CHECK(loaded.step == 6);
  CHECK(loaded.run_id.empty());
  fs::resize_file(path / "optimizer.safetensors", 3);
  CHECK(fake::error_of([&] { (void)read_checkpoint(path); }) == "run.5");
}

TEST_CASE("a state file that is nested too deeply, or no file, is a damaged checkpoint") {
  const fake::TempDir dir;
  const fs::path path = write_checkpoint(dir.path, 6, parts("weights"));
  const auto refused = [&] { return message_of([&] { (void)read_checkpoint(path); }); };
  const std::string before = fake::read(path / state_file);
  rlalgo::os::write_file(path / state_file, before.substr(0, before.rfind('}')) + ", \"x\": " +
                                                std::string(100000, '[') + std::string(100000, ']') + "}");
  CHECK(refused().starts_with("[rlalgo.run.5] the checkpoint is damaged"));
  CHECK(refused().find("200 levels") != std::string::npos);
  fs::remove(path / state_file);
  REQUIRE(::mkfifo((path / state_file).c_str(), 0600) == 0);
  CHECK(refused().find("a named pipe") != std::string::npos);
}
