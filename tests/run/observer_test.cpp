#include <rlalgo/run/observer.hpp>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;

namespace {

struct Diary : Observer {
  std::string text;
  void on_start(const RunStart& start) override {
    text += "start " + std::to_string(start.first_step) + "/" + std::to_string(start.max_steps) + "; ";
  }
  void on_step(const StepDone& done) override { text += "step " + std::to_string(done.step) + "; "; }
  void on_record(const Record& record) override { text += "record " + std::to_string(record.step) + "; "; }
  void on_message(const std::string& message) override { text += message.substr(0, message.find(' ')) + "; "; }
  void on_finish() override { text += "finish"; }
};

}  // namespace

TEST_CASE("an observer hears of everything in order") {
  const fake::TempDir dir;
  fake::Run run;
  auto config = fake::config(dir.path, 4);
  Loop loop(config, run.callbacks());
  Diary diary;
  loop.observe(diary);
  loop.run();
  CHECK(diary.text == "start 0/4; step 1; record 1; step 2; saved; step 3; record 3; step 4; saved; record 4; finish");
}

TEST_CASE("an observer is told of the end after a failure too") {
  const fake::TempDir dir;
  fake::Run run;
  run.before_step = [](std::int64_t step) {
    if (step == 1) throw std::runtime_error("broken");
  };
  Loop loop(fake::config(dir.path, 4), run.callbacks());
  Diary diary;
  loop.observe(diary);
  CHECK_THROWS_WITH(loop.run(), "broken");
  CHECK(diary.text == "start 0/4; step 1; record 1; finish");
}
