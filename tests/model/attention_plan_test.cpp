#include <rlalgo/model/attention_plan.hpp>

#include <numeric>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using model::AttentionPlan;
using model::Segment;

namespace {

model::TokenTree tree_of(std::vector<Segment> segments) {
  model::TokenTree tree;
  for (const auto& s : segments)
    for (std::int64_t i = s.begin; i < s.end; ++i) {
      tree.ids.push_back(0);
      tree.positions.push_back(s.prefix_length + i - s.begin);
    }
  tree.segments = std::move(segments);
  return tree;
}

std::int64_t own_segments(const AttentionPlan& plan) {
  return std::accumulate(plan.own.begin(), plan.own.end(), std::int64_t{0},
                         [](auto sum, const auto& own) { return sum + static_cast<std::int64_t>(own.begins.size()); });
}

}  // namespace

TEST_CASE("all completions of a group read their prompt in one piece") {
  const auto plan = model::plan_attention(tree_of({{0, 10, -1, 0}, {10, 14, 0, 10}, {14, 20, 0, 10}, {20, 21, 0, 10}}));
  REQUIRE(plan.cross.size() == 1);
  CHECK(plan.cross[0].query_begin == 10);
  CHECK(plan.cross[0].query_end == 21);
  CHECK(plan.cross[0].key_begin == 0);
  CHECK(plan.cross[0].key_end == 10);
  CHECK(own_segments(plan) == 4);
}

TEST_CASE("grandchildren join their parents in reading the root") {
  // 0 ── 1 ── 2, 3;  0 ── 4
  const auto plan =
      model::plan_attention(tree_of({{0, 5, -1, 0}, {5, 8, 0, 5}, {8, 10, 1, 8}, {10, 13, 1, 8}, {13, 15, 0, 5}}));
  REQUIRE(plan.cross.size() == 2);
  CHECK(plan.cross[0].query_begin == 5);
  CHECK(plan.cross[0].query_end == 15);
  CHECK(plan.cross[1].query_begin == 8);
  CHECK(plan.cross[1].query_end == 13);
  CHECK(plan.cross[1].key_begin == 5);
}

TEST_CASE("a fork inside a segment cuts what its child sees") {
  const auto plan = model::plan_attention(tree_of({{0, 10, -1, 0}, {10, 12, 0, 4}}));
  REQUIRE(plan.cross.size() == 1);
  CHECK(plan.cross[0].key_end == 4);
}

TEST_CASE("long segments stand alone, short ones share a piece no longer than the longest of it") {
  const auto plan =
      model::plan_attention(tree_of({{0, 300, -1, 0}, {300, 330, -1, 0}, {330, 357, -1, 0}, {357, 360, -1, 0}}));
  CHECK(plan.cross.empty());
  REQUIRE(plan.own.size() == 3);
  CHECK(plan.own[0].length == 300);
  CHECK(plan.own[1].length == 3);
  CHECK(plan.own[2].length == 30);
  CHECK(plan.own[2].sizes == std::vector<std::int64_t>{30, 27});
}

TEST_CASE("segments that are no forest are refused") {
  const auto error = [](std::vector<Segment> segments) {
    return rlalgo::support::raised_by([&] { (void)model::plan_attention(tree_of(std::move(segments))); }).substr(0, 8);
  };
  CHECK(error({{0, 3, -1, 0}, {3, 5, 0, 3}}) == "nothing");
  CHECK(error({{0, 3, -1, 0}, {3, 5, 0, 4}}) == "model.16");   // sees more than its parent has
  CHECK(error({{0, 3, -1, 2}}) == "model.16");                 // a root with a prefix
  CHECK(error({{0, 3, 1, 2}, {3, 5, -1, 0}}) == "model.16");   // parent behind child
  CHECK(error({{0, 3, -1, 0}, {4, 5, -1, 0}}) == "model.16");  // a hole
  model::TokenTree loose = tree_of({{0, 3, -1, 0}});
  loose.ids.push_back(1);
  CHECK(rlalgo::support::raised_by([&] { (void)model::plan_attention(loose); }).substr(0, 8) == "model.16");
}

TEST_CASE(
    "a segment with all that it sees: runs of keys in the order of positions, through a window the last of them") {
  // 0 ── 1 (from 4 on) ── 2 (from 6 on);  0 ── 3
  const std::vector<Segment> segments = {{0, 10, -1, 0}, {10, 13, 0, 4}, {13, 15, 1, 6}, {15, 16, 0, 10}};
  const auto runs = [&](std::int64_t window) {
    std::vector<std::vector<std::int64_t>> out;
    for (const auto& whole : model::plan_attention(tree_of(segments), window).whole) {
      auto& one = out.emplace_back();
      std::int64_t keys = 0;
      for (const auto& run : whole.runs) {
        one.push_back(run.begin);
        one.push_back(run.end);
        keys += run.end - run.begin;
      }
      CHECK(keys == whole.keys);
      CHECK(whole.runs.back().end == whole.end);
    }
    return out;
  };
  CHECK(runs(0) ==
        std::vector<std::vector<std::int64_t>>{{0, 10}, {0, 4, 10, 13}, {0, 4, 10, 12, 13, 15}, {0, 10, 15, 16}});
  // The first token of a segment sees one before it.
  CHECK(runs(2) == std::vector<std::vector<std::int64_t>>{{0, 10}, {3, 4, 10, 13}, {11, 12, 13, 15}, {9, 10, 15, 16}});
  CHECK(runs(1) == std::vector<std::vector<std::int64_t>>{{0, 10}, {10, 13}, {13, 15}, {15, 16}});
}
