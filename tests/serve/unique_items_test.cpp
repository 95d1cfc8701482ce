#include <rlalgo/serve/unique_items.hpp>

#include <string>
#include <vector>

#include <support/catch.hpp>

using rlalgo::serve::UniqueItems;

TEST_CASE("an item that was does not come again, whatever ends it") {
  const UniqueItems unique({{"tags"}});
  const auto repeats = [&](const std::string& text, const std::string& bytes) {
    return unique.repeats(unique.read(text), bytes);
  };
  CHECK(repeats(R"({"tags": ["a","b","a)", "\""));
  CHECK_FALSE(repeats(R"({"tags": ["a","b","a)", "b\""));
  CHECK(repeats(R"({"tags": ["a", "b")", R"(, "b")"));
  CHECK(repeats(R"({"tags": [1, 2, 1)", ","));
  CHECK(repeats(R"({"tags": [1.0, 2, 1)", "]"));
  CHECK_FALSE(repeats(R"({"tags": [1, 2, 1)", "0,"));
  CHECK_FALSE(repeats(R"({"tags": ["1", 1)", ","));
  CHECK(repeats(R"({"tags": ["\"","\)", "\"\""));
  // Other lists may repeat themselves.
  CHECK_FALSE(repeats(R"({"rest": ["a","a)", "\""));
  CHECK_FALSE(repeats(R"({"tags": ["a"], "rest": ["a","a)", "\""));
  CHECK_FALSE(repeats(R"({"x": "tags", "y": ["a","a)", "\""));
}

TEST_CASE("paths name properties and any place") {
  const UniqueItems rows({{"rows", "*", "ids"}}), top(std::vector<UniqueItems::Path>(1));
  CHECK(rows.repeats(rows.read(R"({"rows": [{"ids": [1]}, {"ids": [1, 1)"), "]"));
  CHECK_FALSE(rows.repeats(rows.read(R"({"rows": [{"ids": [1]}, {"ids": [1)"), "]"));
  CHECK(top.repeats(top.read("[1,1"), "]"));
  CHECK_FALSE(top.repeats(top.read("[[1,1"), "]"));
  CHECK(UniqueItems(std::vector<UniqueItems::Path>()).empty());
}

TEST_CASE("a scalar that was is known while it is written") {
  const UniqueItems unique(std::vector<UniqueItems::Path>(1));
  const auto place = unique.read(R"(["ab","a)");
  CHECK(UniqueItems::watched(place));
  CHECK(UniqueItems::begins_used(place));
  CHECK(UniqueItems::is_used(place, "b"));
  CHECK_FALSE(UniqueItems::is_used(place, "c"));
  CHECK_FALSE(UniqueItems::begins_used(unique.read(R"(["ab","c)")));
  CHECK_FALSE(UniqueItems::watched(unique.read(R"(["ab"])")));
}
