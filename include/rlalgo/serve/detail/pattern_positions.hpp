// The automaton of an expression (pattern.hpp): positions with edges of bytes, or free ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rlalgo::serve::detail {

// Groups of schemas begin with one and are divided by the other (pattern_reader.hpp).
// What follows the third is no part of the automaton: the lists whose items are kept apart (unique_items.hpp).
inline constexpr char group_mark = '\x01', part_mark = '\x02', lists_mark = '\x03';

[[nodiscard]] constexpr bool is_mark(char c) { return c == group_mark || c == part_mark || c == lists_mark; }
// For itself in an expression.
[[nodiscard]] inline std::string written_mark(char c) { return std::string("\\x0") + static_cast<char>('0' + c); }

inline constexpr std::size_t most_positions = 60'000;

struct PatternPosition {
  struct Edge {
    unsigned char least, most;
    std::int32_t to;
  };
  std::vector<Edge> edges;
  std::vector<std::int32_t> free;
};
using PatternPositions = std::vector<PatternPosition>;

// All that is reached without a byte, too; sorted.
inline void close_positions(const PatternPositions& all, std::vector<std::int32_t>& positions) {
  std::vector<char> seen(all.size(), 0);
  for (const std::int32_t one : positions) seen[static_cast<std::size_t>(one)] = 1;
  for (std::size_t i = 0; i < positions.size(); ++i)
    for (const std::int32_t to : all[static_cast<std::size_t>(positions[i])].free)
      if (std::exchange(seen[static_cast<std::size_t>(to)], 1) == 0) positions.push_back(to);
  std::sort(positions.begin(), positions.end());
}

// What a byte leads to, before it is closed; sorted.
[[nodiscard]] inline std::vector<std::int32_t> reached_positions(const PatternPositions& all,
                                                                 const std::vector<std::int32_t>& from,
                                                                 unsigned char byte) {
  std::vector<std::int32_t> out;
  for (const std::int32_t one : from)
    for (const auto& edge : all[static_cast<std::size_t>(one)].edges)
      if (edge.least <= byte && byte <= edge.most) out.push_back(edge.to);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace rlalgo::serve::detail
