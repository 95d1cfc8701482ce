#include <rlalgo/sync/call_schedule.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stop_token>
#include <string>
#include <thread>

#include <rlalgo/core/error.hpp>

using namespace rlalgo;
using sync::CallSchedule;

namespace {

struct File {
  std::filesystem::path path;
  explicit File(const std::string& text = "") {
    std::string name = (std::filesystem::temp_directory_path() / "rlalgo_schedule_XXXXXX").string();
    path = std::filesystem::path(::mkdtemp(name.data())) / "calls.jsonl";
    if (!text.empty()) std::ofstream(path) << text;
  }
  ~File() { std::filesystem::remove_all(path.parent_path()); }
  [[nodiscard]] std::string text() const {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

void a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(40)); }

}  // namespace

TEST_CASE("what is recorded is a line for each call, counted within its generation") {
  const File file;
  CallSchedule schedule(file.path);
  for (const auto& [generation, version] : {std::pair{0, 0}, {0, 0}, {1, 0}, {2, 1}}) {
    schedule.begin(static_cast<std::uint64_t>(generation), {});
    schedule.end(version);
    schedule.before_publish(version + 1);  // waits for nothing
  }
  CHECK(file.text() ==
        "{\"generation\":0,\"call\":0,\"version\":0}\n{\"generation\":0,\"call\":1,\"version\":0}\n"
        "{\"generation\":1,\"call\":0,\"version\":0}\n{\"generation\":2,\"call\":0,\"version\":1}\n");
}

TEST_CASE("a run from its start begins its record anew, one that goes on adds to it") {
  const File file("{\"generation\":0,\"call\":0,\"version\":0}\n{\"generation\":9,\"call\":0,\"version\":3}\n");
  {
    CallSchedule schedule(file.path);
    for (const std::uint64_t generation : {0, 1}) {
      schedule.begin(generation, {});
      schedule.end(0);
    }
  }
  CallSchedule resumed(file.path);
  resumed.begin(1, {});
  resumed.end(1);
  CHECK(file.text() ==
        "{\"generation\":0,\"call\":0,\"version\":0}\n{\"generation\":1,\"call\":0,\"version\":0}\n"
        "{\"generation\":1,\"call\":0,\"version\":1}\n");
}

TEST_CASE("a call that cannot be written down is an error") {
  CallSchedule schedule("/dev/full");
  schedule.begin(0, {});
  CHECK_THROWS_WITH(schedule.end(0), Catch::Contains("[rlalgo.sync.7]") && Catch::Contains("No space left"));
  const File file;
  REQUIRE(::mkfifo(file.path.c_str(), 0600) == 0);  // without a reader
  CallSchedule nobody_reads(file.path);
  nobody_reads.begin(0, {});
  CHECK_THROWS_WITH(nobody_reads.end(0), Catch::Contains("[rlalgo.sync.7]"));
}

TEST_CASE("where calls cannot be recorded is known before the first") {
  const File file;
  CallSchedule::require_room(file.path);
  CHECK_FALSE(std::filesystem::exists(file.path));
  for (const char* name : {"", "none/calls", "fifo"}) {
    const std::filesystem::path place = file.path.parent_path() / name;
    if (place.filename() == "fifo") REQUIRE(::mkfifo(place.c_str(), 0600) == 0);
    CHECK_THROWS_WITH(CallSchedule::require_room(place), Catch::Contains("[rlalgo.sync.7]"));
  }
}

TEST_CASE("repeated, calls wait for their version and versions for the calls before them") {
  const File file(
      "{\"generation\":0,\"call\":0,\"version\":0}\n{\"generation\":1,\"call\":0,\"version\":0}\n"
      "{\"generation\":2,\"call\":0,\"version\":2}\n");
  CallSchedule schedule = CallSchedule::repeated(file.path, 20);
  std::atomic<int> begun{0}, published{-1};
  std::jthread producer([&] {
    for (std::uint64_t generation = 0; generation < 4; ++generation) {
      schedule.begin(generation, {});
      ++begun;
      a_while();
      CHECK((generation < 2 ? published == 0 : published >= 2));
      schedule.end(0);
    }
  });
  for (int version = 0; version < 4; ++version) {
    schedule.before_publish(version);
    if (version > 0) CHECK(begun >= 2);
    published = version;
    schedule.published(version);
    if (version == 1) {
      a_while();
      CHECK(begun == 2);  // the third is of the next version
    }
  }
  producer.join();
  CHECK(begun == 4);  // the last is in no record
}

TEST_CASE("a resumed run repeats what comes from its first version on, and the later of two records counts") {
  const File file(
      "{\"generation\":0,\"call\":0,\"version\":0}\n{\"generation\":1,\"call\":0,\"version\":0}\n"
      "{\"generation\":1,\"call\":1,\"version\":0}\n{\"generation\":1,\"call\":0,\"version\":5}\n");
  CallSchedule schedule = CallSchedule::repeated(file.path, 20);
  // Waits neither for generation 0 nor for the second call that was never made again.
  CHECK_NOTHROW(schedule.before_publish(5));
  schedule.published(5);
  CHECK_NOTHROW(schedule.begin(1, {}));
  schedule.end(5);
  CHECK_NOTHROW(schedule.before_publish(6));
}

TEST_CASE("a record that cannot be read, a run that does not follow it, a stop and a failure end the waits") {
  CHECK_THROWS_WITH(CallSchedule::repeated("/nonexistent/calls", 1), Catch::Contains("[rlalgo.sync.5]"));
  CHECK_THROWS_WITH(CallSchedule::repeated("/dev/zero", 1), Catch::Contains("a device"));
  for (const std::string& bad :
       {std::string("{"), std::string("{}\n"), std::string("{\"generation\":0,\"call\":0}\n"), std::string("[1]\n"),
        std::string("\n"), std::string(100000, '['), std::string("{\"generation\":-1,\"call\":0,\"version\":0}\n")}) {
    const File file(bad);
    CHECK_THROWS_WITH(CallSchedule::repeated(file.path, 1), Catch::Contains("[rlalgo.sync.5]"));
  }
  const File file("{\"generation\":7,\"call\":0,\"version\":0}\n{\"generation\":8,\"call\":0,\"version\":9}\n");
  CallSchedule schedule = CallSchedule::repeated(file.path, 0.2);
  schedule.before_publish(0);
  schedule.published(0);
  CHECK_THROWS_WITH(schedule.before_publish(1), Catch::Contains("[rlalgo.sync.6]") && Catch::Contains("generation 7"));
  std::stop_source stop;
  stop.request_stop();
  CHECK_THROWS_AS(schedule.begin(8, stop.get_token()), os::Interrupted);
  schedule.give_up();
  schedule.before_publish(1);
}
