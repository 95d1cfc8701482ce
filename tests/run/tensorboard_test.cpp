#include <rlalgo/run/tensorboard.hpp>

#include <fstream>

#include <support/catch.hpp>

#include "run/events.hpp"
#include "run/fake_run.hpp"

using namespace rlalgo::run;
using fake::event_files;
using fake::scalars;
namespace fs = std::filesystem;

TEST_CASE("the checksum is CRC-32C") {
  CHECK(crc32c("123456789") == 0xe3069283U);  // the check value of the catalogue of CRCs
  CHECK(crc32c("") == 0U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("every finite value of a record is a scalar under the tag that transformers gives it") {
  const fake::TempDir dir;
  TensorBoard board;
  board.on_start({dir.path, "", 0, 10, {}});
  board.on_record({1, 0.25, {{"loss", 0.5}, {"rewards/accuracy/mean", -1.25}, {"kl", no_value}}});
  board.on_record({300, 0.5, {{"eval_reward", 0.75}, {"time/eval", 2.0}}});
  const auto files = event_files(dir.path);
  REQUIRE(files.size() == 1);
  CHECK(files[0] == board.path());
  CHECK(files[0].filename().string().starts_with("events.out.tfevents."));
  const auto found = scalars(fake::read(files[0]));
  CHECK(found.count("version brain.Event:2") == 1);
  CHECK(found.at("start") == std::vector<fake::Scalar>{{0, 1.0F}});  // SessionLog.START
  CHECK(found.count("train/kl") == 0);
  CHECK(found.at("train/loss").at(0).value == 0.5F);
  CHECK(found.at("train/loss").at(0).step == 1);
  CHECK(found.at("train/rewards/accuracy/mean").at(0).value == -1.25F);
  CHECK(found.at("eval/reward").at(0).value == 0.75F);
  CHECK(found.at("eval/reward").at(0).step == 300);
  CHECK(found.at("train/time/eval").at(0).value == 2.0F);
  CHECK(found.at("train/epoch").size() == 2);
}

TEST_CASE("a resumed run has one file: the records of its checkpoint with their wall times, then its own") {
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 7);
  fake::Run run;
  Loop(config, run.callbacks()).run();
  const auto before = event_files(dir.path);
  REQUIRE(before.size() == 1);
  const auto whole = scalars(fake::read(before[0]));
  const auto earlier = fake::events(fake::read(before[0]));
  config.resume_from_checkpoint = dir.path / "checkpoint-4";  // its newest record is that of step 3
  fake::Run resumed;
  Loop(config, resumed.callbacks()).run();
  CHECK(fs::is_empty(before[0]));  // and not removed before the next start: a reader would not get over that
  const auto files = event_files(dir.path);
  REQUIRE(files.size() == 1);
  CHECK(files[0].parent_path() == before[0].parent_path());
  CHECK(files[0].filename() > before[0].filename());
  const auto found = scalars(fake::read(files[0]));
  CHECK(found.at("train/loss") == whole.at("train/loss"));
  CHECK(found.at("train/loss").size() == 4);
  CHECK(found.at("start") == std::vector<fake::Scalar>{{0, 1.0F}});
  const auto now = fake::events(fake::read(files[0]));
  REQUIRE(now.size() == earlier.size());
  REQUIRE(now.size() == 6);
  for (std::size_t i = 0; i < 4; ++i) CHECK(now[i] == earlier[i]);  // version, start, steps 1 and 3: to the byte
  CHECK(now[5].substr(0, 9) != earlier[5].substr(0, 9));            // step 7 was written again
  fake::Run again;
  Loop(config, again.callbacks()).run();
  CHECK_FALSE(fs::exists(before[0]));
  CHECK(fs::is_empty(files[0]));
}

TEST_CASE("a run resumed elsewhere, or over damaged events, has the events of its records") {
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 6);
  fake::Run run;
  Loop(config, run.callbacks()).run();
  const std::string expected = fake::events_without_times(dir.path);
  config.resume_from_checkpoint = dir.path / "checkpoint-4";
  SECTION("another directory") {
    const fake::TempDir other;
    config.output_dir = other.path;
    fake::Run resumed;
    Loop(config, resumed.callbacks()).run();
    CHECK(fake::events_without_times(other.path) == expected);
  }
  SECTION("bytes that are no events") {
    const auto file = event_files(dir.path).at(0);
    const std::string bytes = fake::read(file);
    for (const std::string& damaged :
         {std::string(), bytes.substr(0, 7), bytes.substr(0, bytes.size() - 3), std::string(100, '\xff'),
          bytes.substr(0, 60) + "x" + bytes.substr(61), std::string(8, '\0') + bytes}) {
      fs::remove(event_files(dir.path).at(0));
      std::ofstream(file, std::ios::binary) << damaged;
      fake::Run resumed;
      Loop(config, resumed.callbacks()).run();
      CHECK(fake::events_without_times(dir.path) == expected);
    }
  }
  SECTION("what a kill left: a file under construction, folders of attempts without a checkpoint") {
    const fs::path folder = event_files(dir.path).at(0).parent_path();
    std::ofstream(folder / ".events.building.tmp.12") << "half";
    std::ofstream(folder / ".events.building") << "half";
    fs::create_directories(dir.path / "runs/20010101-000000");
    std::ofstream(dir.path / "runs/20010101-000000/events.out.tfevents.1.host.2") << "old";
    fs::create_directories(dir.path / "runs/20010101-000001");
    fake::Run resumed;
    Loop(config, resumed.callbacks()).run();
    CHECK(fake::events_without_times(dir.path) == expected);
  }
}

TEST_CASE("a fresh run takes the place of the events of an earlier one, and of nothing else") {
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 3);
  const fs::path old = dir.path / "runs/20010101-000000", mine = dir.path / "runs/Jan01_12-00-00_host";
  for (const fs::path& folder : {old, mine}) {
    fs::create_directories(folder);
    std::ofstream(folder / "events.out.tfevents.1.host.2") << "old";
    std::ofstream(folder / "notes.txt") << "mine";
  }
  fs::create_directory_symlink(mine, dir.path / "runs/20010101-000002");
  fake::Run run;
  Loop(config, run.callbacks()).run();
  CHECK(fake::tree(old) == std::map<std::string, std::string>{{"notes.txt", "mine"}});
  CHECK(fake::read(mine / "events.out.tfevents.1.host.2") == "old");
  CHECK(event_files(dir.path).size() == 4);  // the new one, one and two notes
}
