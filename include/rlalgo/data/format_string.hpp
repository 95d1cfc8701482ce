// The part of Python's str.format that dataset formats use: {name}, {{ and }}.
//
// The format is checked when it is made; substituted text is inserted as it is. Positional fields, conversions and
// format specs ({}, {x!r}, {x:>5}) are refused: they have no use in a dataset format.
//
// Errors (usage): [rlalgo.data.20] a name that is not offered, or a brace that is not closed.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>

namespace rlalgo::data {

class FormatString {
 public:
  // `key` and `where` name the setting in errors.
  FormatString(const std::string& format, const std::vector<std::string>& names, const std::string& key,
               const std::string& where) {
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

  [[nodiscard]] bool uses(const std::string& name) const {
    return std::any_of(pieces_.begin(), pieces_.end(), [&](const Piece& p) { return p.name == name; });
  }

  [[nodiscard]] std::string operator()(const std::function<std::string(const std::string& name)>& value) const {
    std::string out;
    for (const Piece& piece : pieces_) out += piece.text + value(piece.name);
    return out + tail_;
  }

 private:
  struct Piece {
    std::string text, name;  // the text before the field
  };
  std::vector<Piece> pieces_;
  std::string tail_;
};

}  // namespace rlalgo::data
