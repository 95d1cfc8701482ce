// Token trees of every form, for tests of attention.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::support {

inline model::TokenTree tree_of(std::vector<model::Segment> segments) {
  model::TokenTree tree;
  for (const auto& s : segments)
    for (std::int64_t i = s.begin; i < s.end; ++i) {
      tree.ids.push_back(0);
      tree.positions.push_back(s.prefix_length + i - s.begin);
    }
  tree.segments = std::move(segments);
  return tree;
}

inline const std::vector<std::vector<model::Segment>> forests = {
    {{0, 1, -1, 0}},
    {{0, 9, -1, 0}},
    {{0, 150, -1, 0}},                                                                  // one long segment
    {{0, 7, -1, 0}, {7, 8, -1, 0}, {8, 30, -1, 0}, {30, 33, -1, 0}},                    // packed
    {{0, 11, -1, 0}, {11, 16, 0, 11}, {16, 17, 0, 11}, {17, 40, 0, 11}},                // a group
    {{0, 5, -1, 0}, {5, 8, 0, 5}, {8, 10, 1, 8}, {10, 13, 1, 8}, {13, 15, 0, 5}},       // late forks
    {{0, 12, -1, 0}, {12, 15, 0, 4}, {15, 17, 1, 6}, {17, 20, 0, 12}, {20, 22, 1, 3}},  // forks inside segments
    {{0, 140, -1, 0}, {140, 290, 0, 140}, {290, 300, 0, 60}, {300, 300, 0, 10}},        // long, and an empty segment
};

}  // namespace rlalgo::support
