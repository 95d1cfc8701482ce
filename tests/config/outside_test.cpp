#include <support/scratch.hpp>

#include <rlalgo/config/outside.hpp>

using namespace rlalgo;
using rlalgo::support::ScopedVariable;
using rlalgo::support::ScratchDirectory;

namespace {
const os::Outside there{
    .time = 1'000'000'000, .zone = "Asia/Tokyo", .host = "elsewhere", .language = {{"LANG", "ja_JP.UTF-8"}}};
}  // namespace

TEST_CASE("a run that goes on has what it began with, any other what there is") {
  const ScratchDirectory scratch;
  const ScopedVariable time("RLALGO_START_TIME", "1100000000");
  config::RunConfig run;
  run.output_dir = scratch.path().string();
  distributed::World world;
  config::take_outside(run, world, config::outside_to_resume(run));
  CHECK(run.outside.time == 1'100'000'000);
  CHECK_FALSE(run.outside_kept);
  CHECK(run.settings["outside"]["time"] == 1'100'000'000);

  scratch.write("run.json", data::Json{{"settings", {{"outside", run::to_json(there)}}}}.dump());
  CHECK(run::kept_outside(scratch.path()) == there);
  run.auto_resume_from_checkpoints = true;
  CHECK_FALSE(config::outside_to_resume(run));  // no checkpoint: it begins afresh
  std::filesystem::create_directory(scratch.path() / "checkpoint-1");
  config::take_outside(run, world, config::outside_to_resume(run));
  CHECK(run.outside == there);
  CHECK(run.outside_kept);
  run.resume_from_checkpoint = (scratch.path() / "none").string();
  CHECK_FALSE(config::outside_to_resume(run));
}
