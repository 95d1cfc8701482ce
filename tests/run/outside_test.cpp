#include <support/scratch.hpp>

#include <rlalgo/run/outside.hpp>

using namespace rlalgo;
using rlalgo::support::ScratchDirectory;

namespace {
const os::Outside there{
    .time = 1'000'000'000, .zone = "Asia/Tokyo", .host = "elsewhere", .language = {{"LANG", "ja_JP.UTF-8"}}};
}  // namespace

TEST_CASE("what a run took is written and read as it was") {
  CHECK(run::outside_of(run::to_json(there)) == there);
  CHECK_FALSE(run::outside_of(run::Json()));
  CHECK_FALSE(run::outside_of(run::Json{{"zone", "UTC"}}));
}

TEST_CASE("the directory of a run says what it took, or that it does not know") {
  const ScratchDirectory scratch;
  scratch.write("run.json", run::Json{{"settings", {{"outside", run::to_json(there)}}}}.dump());
  CHECK(run::kept_outside(scratch.path()) == there);
  scratch.write("run.json", run::Json{{"settings", run::Json::object()}}.dump());
  CHECK_FALSE(run::kept_outside(scratch.path()));
}
