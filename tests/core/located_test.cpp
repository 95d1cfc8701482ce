#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/core/located.hpp>
#include <rlalgo/os/interruption.hpp>

using namespace rlalgo;

namespace {
void fails(const std::string& where) {
  core::raise("text", 7, {.what = "a template failed", .found = "x", .where = where});
}
}  // namespace

TEST_CASE("an error gets the place that it does not name") {
  CHECK(support::raised_by([] { core::located("rows.jsonl:4", [] { fails("line 2 of chatml"); }); }) ==
        "text.7: [rlalgo.text.7] a template failed: found x, at line 2 of chatml (rows.jsonl:4)");
  CHECK(support::raised_by([] { core::located("rows.jsonl:4", [] { fails("rows.jsonl:4"); }); }) ==
        "text.7: [rlalgo.text.7] a template failed: found x, at rows.jsonl:4");
  CHECK(support::raised_by([] { core::located("a\nb", [] { fails(""); }); }).find('\n') == std::string::npos);
}

TEST_CASE("room, number and exit status stay; what is no error of ours passes") {
  try {
    core::located("here", [] { core::raise_usage("data", 9, {.what = "wrong"}); });
    FAIL("nothing was raised");
  } catch (const core::UsageError& error) {
    CHECK(error.room() == "data");
    CHECK(error.number() == 9);
    CHECK(error.exit_code() == 2);
    CHECK(std::string(error.what()) == "[rlalgo.data.9] wrong (here)");
  }
  CHECK_THROWS_AS(core::located("here", [] { throw std::logic_error("other"); }), std::logic_error);
  CHECK(core::located("here", [] { return 3; }) == 3);
}

TEST_CASE("an interruption stays one") {
  const auto stopped = [] {
    rlalgo::core::located("here", [] { rlalgo::os::raise_interrupted("os", 8, {.what = "stop"}); });
  };
  CHECK_THROWS_AS(stopped(), rlalgo::os::Interrupted);
}
