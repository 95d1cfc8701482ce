// How deeply a JSON text is nested, without building it: copying and printing a document recurses once a level, so text
// of strangers is measured first.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace rlalgo::core {

// Levels of arrays and objects; 0 for a scalar. Text that is not JSON gives some number.
[[nodiscard]] inline std::size_t json_depth(std::string_view text) {
  std::size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '[' || c == '{'))
      deepest = std::max(deepest, ++depth);
    else if (!in_string && (c == ']' || c == '}') && depth > 0)
      --depth;
  }
  return deepest;
}

}  // namespace rlalgo::core
