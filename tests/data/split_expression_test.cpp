#include <support/scratch.hpp>

#include <rlalgo/data/split_expression.hpp>

using namespace rlalgo::data;
using rlalgo::core::Span;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Span rows(const std::string& expression, std::size_t n) { return parse_split(expression).front().rows(n); }
}  // namespace

TEST_CASE("slices count rows as Hugging Face datasets does") {
  CHECK(rows("train", 7) == Span{0, 7});
  CHECK(rows("train[:500]", 7473) == Span{0, 500});
  CHECK(rows("train[:1%]", 7473) == Span{0, 75});  // 74.73 → 75
  CHECK(rows("train[:1%]", 50) == Span{0, 0});     // 0.5 → 0: half to even
  CHECK(rows("train[:1%]", 150) == Span{0, 2});    // 1.5 → 2
  CHECK(rows("train[:1%]", 250) == Span{0, 2});    // 2.5 → 2
  CHECK(rows("train[-100:]", 1000) == Span{900, 1000});
  CHECK(rows("train[-5%:]", 1000) == Span{950, 1000});
  CHECK(rows("train[10:20]", 15) == Span{10, 14 + 1});
  CHECK(rows("train[10:20]", 14) == Span{10, 14});
  CHECK(rows("train[1_0:2_0]", 100) == Span{10, 20});
  CHECK(rows("train[10%:20]", 200) == Span{20, 40});  // a percent sign on one side makes both percent
  CHECK(rows("train[5:2]", 10).size() == 0);
  CHECK(rows("train[-20:]", 10) == Span{0, 10});
  CHECK(rows("train[:50%](pct1_dropremainder)", 199) == Span{0, 50});
  CHECK(rows("train[:50%](closest)", 199) == Span{0, 100});  // 99.5 → 100
}

TEST_CASE("parts are joined with +") {
  const auto parts = parse_split("train[:10] + test[:10%]+validation");
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].name == "train");
  CHECK(parts[1].name == "test");
  CHECK(parts[1].percent);
  CHECK(parts[1].rows(50) == Span{0, 5});
  CHECK(parts[2].name == "validation");
}

TEST_CASE("what is no split expression is refused") {
  for (const char* bad : {"", "train[", "train[1:2", "train[12]", "train[:101%]", "train[:5](ceil)", "train+", "train]",
                          "train[a:b]", "train[:99999999999999999999]", "train[:5](closest"}) {
    INFO(bad);
    CHECK(lacks(raised_by([&] { (void)parse_split(bad); }), {"data.7: ", "train[:500]"}) == "");
  }
  CHECK(lacks(raised_by([] { (void)rows("train[:5%](pct1_dropremainder)", 99); }), {"data.7: "}) == "");
}
