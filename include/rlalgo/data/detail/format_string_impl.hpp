// Definitions of format_string.hpp.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/format_string.hpp>

namespace rlalgo::data {

RLALGO_INLINE FormatString::FormatString(const std::string& format, const std::vector<std::string>& names,
                                         const std::string& key, const std::string& where) {
  const auto refuse = [&](const std::string& found, const std::string& remedy) {
    std::string all;
    for (const std::string& name : names) all += (all.empty() ? "{" : ", {") + name + "}";
    core::raise_usage("data", 20,
                      {.what = key + " is not a valid format",
                       .found = found,
                       .expected = all + " and plain text",
                       .where = where,
                       .remedy = remedy});
  };
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char c = format[i];
    if (c != '{' && c != '}') {
      text += c;
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == c) {
      text += c;
      ++i;
      continue;
    }
    if (c == '}') refuse("a single }", "write }} for a brace");
    const std::size_t close = format.find('}', i);
    if (close == std::string::npos) refuse("a { that is not closed", "write {{ for a brace");
    const std::string name = format.substr(i + 1, close - i - 1);
    if (std::find(names.begin(), names.end(), name) == names.end()) refuse("{" + name + "}", "");
    pieces_.push_back({std::exchange(text, {}), name});
    i = close;
  }
  tail_ = std::move(text);
}

RLALGO_INLINE bool FormatString::uses(const std::string& name) const {
  return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.name == name; });
}

}  // namespace rlalgo::data
