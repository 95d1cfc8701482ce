// The name that a misspelt one was probably meant to be.
//
// Distance: Damerau–Levenshtein (optimal string alignment: insertion, deletion, substitution, swap of neighbours, each
// 1), after lower-casing and with '-' read as '_'. A candidate is offered only within max(1, length / 3) edits, or when
// one name is a prefix of the other and at least four letters long; ties go to the earlier candidate.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rlalgo::core {

[[nodiscard]] inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      next[j] = std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

// The nearest of `names`, or "" when none is near.
[[nodiscard]] inline std::string nearest_name(std::string_view name, const std::vector<std::string>& names) {
  constexpr std::size_t longest = 256;  // the distance costs the product of the lengths; no name of ours is near
  if (name.size() > longest) return {};
  const auto folded = [](std::string_view text) {
    std::string out(text);
    for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return out;
  };
  const std::string wanted = folded(name);
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
  std::string prefixed;
  for (const std::string& candidate : names) {
    const std::string known = folded(candidate);
    const std::size_t distance = edit_distance(wanted, known);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
    const std::string& shorter = wanted.size() < known.size() ? wanted : known;
    const std::string& longer = wanted.size() < known.size() ? known : wanted;
    if (prefixed.empty() && shorter.size() >= 4 && longer.starts_with(shorter)) prefixed = candidate;
  }
  return best.empty() ? prefixed : best;
}

}  // namespace rlalgo::core
