#include <rlalgo/model/context_split.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <support/catch.hpp>
#include <support/forests.hpp>

using namespace rlalgo;
using model::Dealing;
using model::TokenSpans;
using model::TokenTree;

namespace {

constexpr Dealing dealings[] = {Dealing::neighbours, Dealing::balanced, Dealing::stripes};

// How often each pair of query and key meets, [T][T] of the whole tree's tokens.
using Meetings = std::vector<std::vector<int>>;

void add(Meetings& meetings, const model::AttentionPlan& plan, const std::vector<std::int64_t>& queries,
         const std::vector<std::int64_t>& keys) {
  const auto meet = [&](std::int64_t q, std::int64_t k) {
    ++meetings[static_cast<std::size_t>(queries.at(static_cast<std::size_t>(q)))]
              [static_cast<std::size_t>(keys.at(static_cast<std::size_t>(k)))];
  };
  for (const auto& own : plan.own)
    for (std::size_t b = 0; b < own.begins.size(); ++b)
      for (std::int64_t i = 0; i < own.sizes[b]; ++i)
        for (std::int64_t j = 0; j <= i; ++j) meet(own.begins[b] + i, own.begins[b] + j);
  for (const auto& c : plan.cross)
    for (std::int64_t i = c.query_begin; i < c.query_end; ++i) {
      bool sees = false;
      for (std::int64_t j = c.key_begin; j < c.key_end; ++j)
        if (!c.masked || j - c.key_begin > i - c.query_begin + c.offset) meet(i, j), sees = true;
      CHECK(sees);  // a query without a key would have no softmax
    }
}

std::vector<std::int64_t> numbers(const TokenSpans& spans) {
  std::vector<std::int64_t> out;
  for (const auto& span : spans)
    for (std::int64_t t = span.begin; t < span.end; ++t) out.push_back(t);
  return out;
}

}  // namespace

TEST_CASE("every token is one rank's, and ranks have as many") {
  for (const auto& segments : support::forests) {
    const TokenTree tree = support::tree_of(segments);
    for (const Dealing dealing : dealings)
      for (const int ranks : {1, 2, 3, 4}) {
        const auto split = model::split_tokens(tree, ranks, dealing);
        REQUIRE(split.size() == static_cast<std::size_t>(ranks));
        std::vector<int> owned(tree.ids.size(), 0);
        for (const TokenSpans& own : split) {
          std::int64_t last = -1;
          for (const auto& span : own) {
            CHECK(span.begin > last);  // runs that touch are one
            CHECK(span.begin < span.end);
            last = span.end;
          }
          for (const std::int64_t t : numbers(own)) ++owned[static_cast<std::size_t>(t)];
          CHECK(std::abs(model::tokens_of(own) - tree.tokens() / ranks) <= 8);
        }
        CHECK(std::count(owned.begin(), owned.end(), 1) == tree.tokens());
      }
  }
}

TEST_CASE("balanced dealing gives one sequence the zigzag, and a group nearly even attention") {
  const auto zigzag = model::split_tokens(support::tree_of({{0, 16, -1, 0}}), 2, Dealing::balanced);
  CHECK((zigzag[0] == TokenSpans{{0, 4}, {12, 16}}));
  CHECK((zigzag[1] == TokenSpans{{4, 12}}));
  const TokenTree group =
      support::tree_of({{0, 400, -1, 0}, {400, 500, 0, 400}, {500, 600, 0, 400}, {600, 800, 0, 400}});
  const auto work = [&](Dealing dealing) {
    double most = 0, total = 0;
    for (const TokenSpans& own : model::split_tokens(group, 4, dealing)) {
      double seen = 0;
      for (const std::int64_t t : numbers(own))
        seen += static_cast<double>(group.positions[static_cast<std::size_t>(t)] + 1);
      most = std::max(most, seen);
      total += seen / 4;
    }
    return most / total;
  };
  CHECK(work(Dealing::balanced) < 1.07);
  CHECK(work(Dealing::neighbours) > 1.4);
  CHECK(work(Dealing::stripes) < 1.2);
}

TEST_CASE("over all ranks each query meets each of its keys once, with and without a window") {
  for (const auto& segments : support::forests) {
    const TokenTree tree = support::tree_of(segments);
    for (const std::int64_t window : {std::int64_t{0}, std::int64_t{5}, std::int64_t{130}}) {
      const model::AttentionPlan plan = model::plan_attention(tree, window);
      const Meetings none(tree.ids.size(), std::vector<int>(tree.ids.size(), 0));
      Meetings expected = none;
      const auto all = numbers({{0, tree.tokens()}});
      add(expected, plan, all, all);
      for (const Dealing dealing : dealings)
        for (const int ranks : {2, 3}) {
          Meetings found = none;
          const auto split = model::split_tokens(tree, ranks, dealing);
          for (const TokenSpans& queries : split)
            for (const TokenSpans& keys : split) {
              const model::AttentionPlan part = model::plan_between(plan, queries, keys);
              CHECK(part.tokens == model::tokens_of(queries));
              if (&queries != &keys) CHECK(part.own.empty());
              add(found, part, numbers(queries), numbers(keys));
            }
          CHECK((found == expected));
        }
    }
  }
}

TEST_CASE("a rank's part has its tokens and the targets that they predict") {
  TokenTree tree = support::tree_of({{0, 4, -1, 0}, {4, 6, 0, 4}, {6, 9, 0, 4}});
  for (std::size_t i = 0; i < tree.ids.size(); ++i) tree.ids[i] = static_cast<std::int64_t>(10 + i);
  tree.source = {3, 4, 3, 6, 7};
  tree.target = {20, 21, 22, 23, 24};
  tree.row_begin = {0, 2, 5};
  tree.untempered = 2;
  const std::vector<TokenSpans> split = {{{0, 2}, {6, 7}}, {{2, 6}, {7, 9}}};
  const model::ContextPart first = model::part_of(tree, split[0]), second = model::part_of(tree, split[1]);
  CHECK(first.tree.ids == std::vector<std::int64_t>{10, 11, 16});
  CHECK(first.tree.positions == std::vector<std::int64_t>{0, 1, 4});
  CHECK(first.rows == std::vector<std::int64_t>{0, 1, 6});
  CHECK(first.targets == std::vector<std::int64_t>{3});
  CHECK(first.tree.source == std::vector<std::int64_t>{2});
  CHECK(first.tree.target == std::vector<std::int64_t>{23});
  CHECK(first.tree.untempered == 1);
  CHECK(first.source_rows == std::vector<std::int64_t>{2});  // of the sources 3, 4, 6, 7
  CHECK(second.tree.source == std::vector<std::int64_t>{1, 2, 1, 4});
  CHECK(second.targets == std::vector<std::int64_t>{0, 1, 2, 4});
  CHECK(second.source_rows == std::vector<std::int64_t>{0, 1, 3});
  CHECK(second.tree.untempered == 1);
  const model::TargetOwners owners = model::owners_of_targets(tree, split);
  CHECK(owners.counts == std::vector<std::int64_t>{1, 4});
  CHECK(owners.targets == std::vector<std::int64_t>{3, 0, 1, 2, 4});
}
