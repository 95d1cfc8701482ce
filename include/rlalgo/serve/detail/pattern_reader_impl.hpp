// Definitions of pattern_reader.hpp: groups of schemas.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/pattern_positions.hpp>
#include <rlalgo/serve/detail/pattern_reader.hpp>

namespace rlalgo::serve::detail {

RLALGO_INLINE PatternReader::Part PatternReader::group(int depth) {
  ++at_;
  const int kind = peek();
  ++at_;
  switch (kind) {
    case 'j': {
      const bool before = std::exchange(json_, true);
      const Part out = alternatives(depth);
      json_ = before;
      return out;
    }
    case '&':
      return both(depth);
    case ',':
      return list(depth);
    case 'o':
      return members(depth);
    case 'u':
      return distinct(depth);
    case 'm':
      return multiples();
    default:
      fail("a group of an unknown kind");
  }
}

RLALGO_INLINE PatternReader::Counts PatternReader::counts() {
  Counts out{number(), -1};
  if (peek() != ',') fail("a group without counts");
  ++at_;
  if (peek() != ';') out.most = number();
  if (peek() != ';') fail("a group without counts");
  ++at_;
  return out;
}

RLALGO_INLINE void PatternReader::skip(std::size_t begin, int depth) {
  const std::size_t before = positions_.size();
  (void)copy(begin, depth);
  positions_.resize(before);
}

// A single copy where the number has no bounds.
RLALGO_INLINE PatternReader::Part PatternReader::list(int depth) {
  const auto [least, most] = counts();
  const std::size_t separator = at_;
  (void)copy(separator, depth);
  need_part();
  const std::size_t item = at_;
  const Part out = {add(), add()};
  if (least == 0) free(out.begin, out.end);
  if (most == 0) {
    skip(item, depth);
    return out;
  }
  const std::int64_t copies = most < 0 ? std::max<std::int64_t>(least, 1) : most;
  std::int32_t reached = out.begin;
  for (std::int64_t i = 0; i < copies; ++i) {
    if (i > 0) {
      const Part between = copy(separator, depth);
      free(reached, between.begin);
      reached = between.end;
    }
    const Part one = copy(item, depth);
    free(reached, one.begin);
    reached = one.end;
    if (i + 1 >= least) free(reached, out.end);
    if (most < 0 && i + 1 == copies) {
      const std::size_t end = at_;
      const Part again = copy(separator, depth);
      at_ = end;
      free(reached, again.begin);
      free(again.end, one.begin);
    }
  }
  return out;
}

RLALGO_INLINE PatternReader::Part PatternReader::members(int depth) {
  // Each member stands there once.
  const std::size_t separator = at_;
  (void)copy(separator, depth);
  const Part out = {add(), add()};
  std::int32_t first = out.begin, later = add();  // nothing was written yet; something was
  while (next_part()) {
    const bool must = peek() == '!';
    ++at_;
    const std::size_t begin = at_;
    const Part between = copy(separator, depth), one = copy(begin, depth);
    const std::int32_t after = add(), none = must ? -1 : add();
    free(first, one.begin);
    free(later, between.begin);
    free(between.end, one.begin);
    free(one.end, after);
    if (!must) {
      free(first, none);
      free(later, after);
    }
    first = must ? add() : none;  // behind one that must come nobody is first
    later = after;
  }
  free(first, out.end);
  free(later, out.end);
  return out;
}

RLALGO_INLINE void PatternReader::one_after(std::size_t separator, std::size_t part, std::int32_t from, std::int32_t to,
                                            bool first, int depth) {
  if (!first) {
    const Part between = copy(separator, depth);
    free(from, between.begin);
    from = between.end;
  }
  const Part one = copy(part, depth);
  free(from, one.begin);
  free(one.end, to);
}

// A place for every set of those that were.
RLALGO_INLINE void PatternReader::any_order(const Counts& counts, std::size_t separator,
                                            const std::vector<std::size_t>& parts, Part out, int depth) {
  std::vector<std::int32_t> used{out.begin};
  for (std::size_t set = 1; set < (std::size_t{1} << parts.size()); ++set) used.push_back(add());
  for (std::size_t set = 0; set < used.size(); ++set) {
    const auto count = static_cast<std::int64_t>(std::popcount(set));
    if (set != 0 && count >= counts.least && count <= counts.most) free(used[set], out.end);
    for (std::size_t i = 0; i < parts.size() && count < counts.most; ++i)
      if ((set >> i & 1U) == 0)
        one_after(separator, parts[i], used[set], used[set | std::size_t{1} << i], set == 0, depth);
  }
}

// A row for every number of parts; a place in it for the part that came last. The last row of a list without a largest
// number stands for all that follow.
RLALGO_INLINE void PatternReader::own_order(const Counts& counts, std::size_t separator,
                                            const std::vector<std::size_t>& parts, Part out, int depth) {
  const auto n = static_cast<std::int64_t>(parts.size());
  const bool bounded = counts.most < n;
  const std::int64_t rows = bounded ? counts.most : std::max<std::int64_t>(counts.least, 2);
  std::vector<std::int32_t> last;  // −1: from there not enough parts are left
  for (std::int64_t count = 1; count <= std::min(rows, n); ++count) {
    std::vector<std::int32_t> row;
    for (std::int64_t i = 0; i < n; ++i) {
      if (i < count - 1 || n - 1 - i < counts.least - count) {
        row.push_back(-1);
        continue;
      }
      const std::int32_t before = add(), after = add();
      if (count == 1) free(out.begin, before);
      for (std::int64_t j = 0; j < i && count > 1; ++j) {
        if (last[static_cast<std::size_t>(j)] >= 0) free(last[static_cast<std::size_t>(j)], before);
        if (!bounded && count == rows && row[static_cast<std::size_t>(j)] >= 0)
          free(row[static_cast<std::size_t>(j)], before);
      }
      one_after(separator, parts[static_cast<std::size_t>(i)], before, after, count == 1, depth);
      if (count >= counts.least) free(after, out.end);
      row.push_back(after);
    }
    last = std::move(row);
  }
}

RLALGO_INLINE PatternReader::Part PatternReader::distinct(int depth) {
  Counts range = counts();
  const std::size_t separator = at_;
  (void)copy(separator, depth);
  std::vector<std::size_t> parts;
  while (next_part()) {
    parts.push_back(at_);
    skip(at_, depth);
  }
  const std::size_t end = at_;
  const auto n = static_cast<std::int64_t>(parts.size());
  range.most = range.most < 0 ? n : std::min(range.most, n);
  if (range.least > range.most) fail("more texts than there are");
  const Part out = {add(), add()};
  if (range.least == 0) free(out.begin, out.end);
  constexpr std::int64_t few = 6;
  if (n <= few)
    any_order(range, separator, parts, out, depth);
  else
    own_order(range, separator, parts, out, depth);
  at_ = end;
  return out;
}

RLALGO_INLINE PatternReader::Part PatternReader::multiples() {
  const std::int64_t n = number();
  if (n < 1 || n > most_modulus) fail("a divisor above " + std::to_string(most_modulus));
  const Part out = {add(), add()};
  std::vector<std::int32_t> rest;
  for (std::int64_t i = 0; i < n; ++i) rest.push_back(add());
  const auto edge = [&](std::int32_t from, std::int64_t digit, std::int32_t to) {
    const auto byte = static_cast<unsigned char>('0' + digit);
    positions_[static_cast<std::size_t>(from)].edges.push_back({byte, byte, to});
  };
  edge(out.begin, 0, out.end);
  for (std::int64_t digit = 1; digit < 10; ++digit) edge(out.begin, digit, rest[static_cast<std::size_t>(digit % n)]);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t digit = 0; digit < 10; ++digit)
      edge(rest[static_cast<std::size_t>(i)], digit, rest[static_cast<std::size_t>((i * 10 + digit) % n)]);
  free(rest[0], out.end);
  return out;
}

// Pairs of what two automata reach, without those from which not both can end.
RLALGO_INLINE PatternReader::Part PatternReader::both(int depth) {
  const std::size_t before = positions_.size();
  const Part a = alternatives(depth);
  need_part();
  const Part b = alternatives(depth);
  using Places = std::vector<std::int32_t>;
  struct Pair {
    Places a, b;
    std::vector<Edge> edges;  // to pairs
    bool ends = false, alive = false;
  };
  std::vector<Pair> pairs;
  std::map<std::pair<Places, Places>, std::int32_t> known;
  const auto find = [&](Places x, Places y) {
    close_positions(positions_, x);
    close_positions(positions_, y);
    const auto [at, added] = known.emplace(std::pair(x, y), static_cast<std::int32_t>(pairs.size()));
    if (added) {
      if (pairs.size() >= most_positions) fail("more than " + std::to_string(most_positions) + " positions");
      const bool ends = std::binary_search(x.begin(), x.end(), a.end) && std::binary_search(y.begin(), y.end(), b.end);
      pairs.push_back({std::move(x), std::move(y), {}, ends, ends});
    }
    return at->second;
  };
  (void)find({a.begin}, {b.begin});
  std::vector<std::vector<std::int32_t>> from(1);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    std::vector<int> cuts;  // bytes at which an edge begins, or one has ended
    for (const Places* places : {&pairs[i].a, &pairs[i].b})
      for (const std::int32_t one : *places)
        for (const Edge& edge : positions_[static_cast<std::size_t>(one)].edges) {
          cuts.push_back(edge.least);
          cuts.push_back(edge.most + 1);
        }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t k = 0; k + 1 < cuts.size(); ++k) {
      const auto byte = static_cast<unsigned char>(cuts[k]);
      Places x = reached_positions(positions_, pairs[i].a, byte), y = reached_positions(positions_, pairs[i].b, byte);
      if (x.empty() || y.empty()) continue;
      const std::int32_t to = find(std::move(x), std::move(y));
      pairs[i].edges.push_back({byte, static_cast<unsigned char>(cuts[k + 1] - 1), to});
      from.resize(pairs.size());
      from[static_cast<std::size_t>(to)].push_back(static_cast<std::int32_t>(i));
    }
  }
  from.resize(pairs.size());
  std::vector<std::int32_t> alive;
  for (std::size_t i = 0; i < pairs.size(); ++i)
    if (pairs[i].alive) alive.push_back(static_cast<std::int32_t>(i));
  for (std::size_t i = 0; i < alive.size(); ++i)
    for (const std::int32_t source : from[static_cast<std::size_t>(alive[i])])
      if (!std::exchange(pairs[static_cast<std::size_t>(source)].alive, true)) alive.push_back(source);
  if (!pairs[0].alive) fail("two conditions that no text fulfils");
  positions_.resize(before);
  const Part out = {add(), add()};
  std::vector<std::int32_t> place;
  for (const Pair& pair : pairs) place.push_back(pair.alive ? add() : -1);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (!pairs[i].alive) continue;
    for (Edge edge : pairs[i].edges) {
      edge.to = place[static_cast<std::size_t>(edge.to)];
      if (edge.to >= 0) positions_[static_cast<std::size_t>(place[i])].edges.push_back(edge);
    }
    if (pairs[i].ends) free(place[i], out.end);
  }
  free(out.begin, place[0]);
  return out;
}

}  // namespace rlalgo::serve::detail
