// The part of Python's str.format that dataset formats use: {name}, {{ and }}.
//
// The format is checked when it is made; substituted text is inserted as it is. Positional fields, conversions and
// format specs ({}, {x!r}, {x:>5}) are refused: they have no use in a dataset format.
//
// Errors (usage): [rlalgo.data.20] a name that is not offered, or a brace that is not closed.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace rlalgo::data {

class FormatString {
 public:
  // `key` and `where` name the setting in errors.
  FormatString(const std::string& format, const std::vector<std::string>& names, const std::string& key,
               const std::string& where);

  [[nodiscard]] bool uses(const std::string& name) const;

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

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/format_string_impl.hpp>
#endif
