#include <rlalgo/model/tree_builder.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/core/philox.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using model::Sequence;
using model::TokenTree;

namespace {

using Ids = std::vector<std::int32_t>;

struct Row {
  Ids prompt, completion;
};

std::vector<Sequence> views(const std::vector<Row>& rows) {
  std::vector<Sequence> out;
  for (const auto& row : rows) out.push_back({row.prompt, row.completion});
  return out;
}

// The tokens a token of the tree sees, itself included, root first: read off the segments alone.
std::vector<std::int64_t> visible(const TokenTree& tree, std::int64_t token) {
  std::size_t s = 0;
  while (token >= tree.segments[s].end) ++s;
  std::vector<std::int64_t> out;
  for (std::int64_t i = token; i >= tree.segments[s].begin; --i) out.push_back(tree.ids[static_cast<std::size_t>(i)]);
  std::int64_t left = tree.segments[s].prefix_length;
  for (std::int32_t a = tree.segments[s].parent; a >= 0; a = tree.segments[static_cast<std::size_t>(a)].parent) {
    const auto& segment = tree.segments[static_cast<std::size_t>(a)];
    for (; left > segment.prefix_length; --left)
      out.push_back(tree.ids[static_cast<std::size_t>(segment.begin + left - 1 - segment.prefix_length)]);
  }
  return {out.rbegin(), out.rend()};
}

// Every target's source sees exactly the row's tokens before it, at the right position.
void check_rows(const TokenTree& tree, const std::vector<Row>& rows) {
  REQUIRE(tree.rows() == static_cast<std::int64_t>(rows.size()));
  REQUIRE(tree.positions.size() == tree.ids.size());
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<std::int64_t> history(rows[r].prompt.begin(), rows[r].prompt.end());
    const auto begin = tree.row_begin[r];
    REQUIRE(tree.row_begin[r + 1] - begin == static_cast<std::int64_t>(rows[r].completion.size()));
    for (std::size_t i = 0; i < rows[r].completion.size(); ++i) {
      const auto n = static_cast<std::size_t>(begin) + i;
      CHECK(tree.target[n] == rows[r].completion[i]);
      CHECK(visible(tree, tree.source[n]) == history);
      CHECK(tree.positions[static_cast<std::size_t>(tree.source[n])] == static_cast<std::int64_t>(history.size()) - 1);
      history.push_back(rows[r].completion[i]);
    }
  }
}

}  // namespace

TEST_CASE("a group encodes its prompt once") {
  const std::vector<Row> rows = {{{1, 2, 3}, {4, 5}}, {{1, 2, 3}, {6, 7, 8}}, {{1, 2, 3}, {9}}};
  const TokenTree tree = model::build_tree(views(rows));
  // Prompt, then each completion without its last token; the third completion adds nothing.
  CHECK(tree.ids == std::vector<std::int64_t>{1, 2, 3, 4, 6, 7});
  CHECK(tree.positions == std::vector<std::int64_t>{0, 1, 2, 3, 3, 4});
  REQUIRE(tree.segments.size() == 3);
  CHECK(tree.segments[1].parent == 0);
  CHECK(tree.segments[2].prefix_length == 3);
  CHECK(tree.source == std::vector<std::int64_t>{2, 3, 2, 4, 5, 2});
  CHECK(tree.row_begin == std::vector<std::int64_t>{0, 2, 5, 6});
  check_rows(tree, rows);
}

TEST_CASE("rows fork late, repeat, and end inside one another") {
  const std::vector<Row> rows = {{{1, 2}, {3, 4, 5, 6}}, {{1, 2}, {3, 4, 7, 8}},        {{1, 2}, {3, 4, 5, 6}},
                                 {{1, 2}, {3}},          {{1, 2}, {3, 4, 5, 6, 9, 10}}, {{1}, {2, 3, 4, 7, 8, 1}},
                                 {{5}, {1, 1}}};
  const TokenTree tree = model::build_tree(views(rows));
  check_rows(tree, rows);
  // 1 2 3 4 | 5 6 9 | 7 8 and 5 1: every distinct prefix once.
  CHECK(tree.tokens() == 4 + 3 + 2 + 2);
  CHECK(tree.segments.size() == 4);
}

TEST_CASE("an empty completion has no targets and no tokens") {
  const std::vector<Row> rows = {{{1, 2}, {}}, {{3}, {4}}};
  const TokenTree tree = model::build_tree(views(rows));
  CHECK(tree.ids == std::vector<std::int64_t>{3});
  CHECK(tree.row_begin == std::vector<std::int64_t>{0, 0, 1});
  const TokenTree nothing = model::build_tree(views({{{1}, {}}}));
  CHECK(nothing.tokens() == 0);
  CHECK(nothing.rows() == 1);
  CHECK(model::build_tree({}).rows() == 0);
}

TEST_CASE("an empty prompt is refused") {
  try {
    (void)model::build_tree(views({{{1}, {2}}, {{}, {3}}}));
    FAIL("no error");
  } catch (const core::Error& error) {
    CHECK(error.room() == "model");
    CHECK(error.number() == 22);
    CHECK(std::string(error.what()).find("row 1") != std::string::npos);
  }
}

TEST_CASE("a flat tree shares nothing") {
  const std::vector<Row> rows = {{{1, 2, 3}, {4, 5}}, {{1, 2, 3}, {6, 7, 8}}, {{1, 2, 3}, {4, 5}}};
  const TokenTree tree = model::build_flat_tree(views(rows));
  check_rows(tree, rows);
  CHECK(tree.segments.size() == 3);
  CHECK(tree.tokens() == 4 + 5 + 4);
  for (const auto& segment : tree.segments) CHECK(segment.parent == -1);
}

TEST_CASE("keep_last lays out whole sequences") {
  const std::vector<Row> rows = {{{1, 2}, {3}}, {{1, 2}, {}}};
  const TokenTree tree = model::build_tree(views(rows), {.keep_last = true});
  CHECK(tree.ids == std::vector<std::int64_t>{1, 2, 3});
  check_rows(tree, rows);
}

TEST_CASE("short common beginnings need not be shared") {
  const std::vector<Row> rows = {{{1, 2}, {3, 4}}, {{1, 5}, {3, 4}}, {{1, 2}, {3, 6}}};
  const TokenTree tree = model::build_tree(views(rows), {.shortest_shared = 2});
  check_rows(tree, rows);
  CHECK(tree.ids == std::vector<std::int64_t>{1, 2, 3, 1, 5, 3});
}

TEST_CASE("random rows over a small alphabet keep their histories") {
  const core::PhiloxKey key{7, core::Stream::test};
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    std::uint64_t draw = 0;
    const auto below = [&](int n) { return static_cast<std::int32_t>(core::uniform(key, trial, draw++) * n); };
    std::vector<Row> rows(static_cast<std::size_t>(1 + below(8)));
    for (auto& row : rows) {
      row.prompt.resize(static_cast<std::size_t>(1 + below(4)));
      row.completion.resize(static_cast<std::size_t>(below(6)));
      for (auto& id : row.prompt) id = below(2);
      for (auto& id : row.completion) id = below(2);
    }
    check_rows(model::build_tree(views(rows)), rows);
    check_rows(model::build_tree(views(rows), {.keep_last = true, .shortest_shared = 1 + below(3)}), rows);
    check_rows(model::build_flat_tree(views(rows)), rows);
  }
}
