// A formula as written → the formula without decoration: boxes opened, units, currency and spacing commands removed.
//
// Two ways to write it: completions must hold correct LaTeX; solutions of datasets may have "\frac12", "sqrt(3)" and
// the like, which are repaired.
// Units: what math-verify 0.9 removes (a trailing \text{…} with a power, and the words below with an s or es).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/maths/detail/extract.hpp>
#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths::detail {

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
  MathsWork::charge(text.size() / 16);
  std::size_t at = text.find(from), begin = 0;
  if (at == std::string::npos) return;
  std::string out;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  text = out.append(text, begin);
}

inline std::string stripped(std::string_view text) {
  std::size_t begin = skip_blanks(text, 0), end = text.size();
  while (end > begin && is_blank(text[end - 1])) --end;
  return std::string(text.substr(begin, end - begin));
}

// The contents of the boxes, from the right: all of them, or the last and those close before it, joined by commas.
// Without a box the text itself.
inline std::string open_boxes(std::string_view text, bool only_last) {
  std::vector<std::string> contents;  // right to left
  std::size_t limit = text.size();    // boxes end before this
  std::size_t last_start = std::string_view::npos;
  constexpr std::size_t unknown = std::string_view::npos - 1;
  std::size_t boxed = unknown, framed = unknown;  // the last ones before `search`
  for (std::size_t search = text.size();;) {
    if (search == 0) break;
    if (boxed != std::string_view::npos && boxed >= search) boxed = text.rfind("\\boxed", search - 1);
    if (framed != std::string_view::npos && framed >= search) framed = text.rfind("\\fbox", search - 1);
    if (boxed == std::string_view::npos && framed == std::string_view::npos) break;
    const bool is_boxed = framed == std::string_view::npos || (boxed != std::string_view::npos && boxed > framed);
    const std::size_t start = is_boxed ? boxed : framed;
    const std::size_t open = skip_blanks(text, start + (is_boxed ? 6 : 5));
    if (open >= limit) break;
    std::size_t close = std::string_view::npos, depth = 0;
    if (text[open] == '{')
      for (std::size_t i = open; i < limit; ++i) {
        if (text[i] == '{') ++depth;
        if (text[i] == '}' && --depth == 0) {
          close = i;
          break;
        }
      }
    if (close == std::string_view::npos) {
      if (contents.empty()) contents.emplace_back(text.substr(open));
      break;
    }
    std::string content = stripped(text.substr(open + 1, close - open - 1));
    if (only_last && last_start != std::string_view::npos) {
      const std::string_view between = text.substr(close + 1, last_start - close - 1);
      const bool joined = between.find_first_of(",;") != std::string_view::npos ||
                          between.find(" and ") != std::string_view::npos ||
                          between.find(" or ") != std::string_view::npos;
      if (between.size() >= 10 && !(content != contents.back() && between.size() < 70 && joined)) break;
    }
    if (contents.empty() || contents.back() != content) contents.push_back(std::move(content));
    last_start = limit = search = start;
  }
  if (contents.empty()) return std::string(text);
  std::string all;
  for (std::size_t i = contents.size(); i-- > 0;) all += (all.empty() ? "" : ",") + contents[i];
  return all;
}

inline bool word_at(std::string_view text, std::size_t at, std::string_view word) {
  return text.substr(at).starts_with(word) && (at == 0 || !is_letter(text[at - 1])) &&
         (at + word.size() >= text.size() || !is_letter(text[at + word.size()]));
}

// "and" and "or", with a comma before, become a comma; in \text{…} too.
inline void join_with_commas(std::string& text) {
  for (const std::string_view word : {"and", "or"}) {
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
      if (!word_at(text, at, word) || (at > 0 && text[at - 1] == '\\')) continue;
      std::size_t begin = at, end = at + word.size();
      const auto back = [&] {
        while (begin > 0 && is_blank(text[begin - 1])) --begin;
      };
      back();
      if (std::string_view(text).substr(0, begin).ends_with("\\text{") && skip_blanks(text, end) < text.size() &&
          text[skip_blanks(text, end)] == '}') {
        begin -= 6;
        end = skip_blanks(text, end) + 1;
        back();
      }
      if (begin > 0 && text[begin - 1] == ',') --begin;
      text.replace(begin, end - begin, ",");
      at = begin;
    }
  }
}

inline void basic_cleaning(std::string& text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 50> table = {{
      {"\\left", ""},
      {"\\right", ""},
      {"\\displaystyle", ""},
      {"\\mathrm{th}", ""},
      {"\\!", ""},
      {"\\$", ""},
      {"$", ""},
      {"\"", ""},
      {"\\mathrm", "\\text"},
      {"\\mathit", "\\text"},
      {"\\mathbf", "\\text"},
      {"\\textnormal", "\\text"},
      {"\\textbf", "\\text"},
      {"\\textit", "\\text"},
      {"\\textrm", "\\text"},
      {"\\mbox", "\\text"},
      {"\\dfrac", "\\frac"},
      {"\\tfrac", "\\frac"},
      {"\\cfrac", "\\frac"},
      {"{,}", ","},
      {"\\text{percent}", "%"},
      {"percentage", "\\%"},
      {"percent", "\\%"},
      {"\\infinity", "\\infty"},
      {"infinity", "\\infty "},
      {"~=", "\\approx "},
      {"\n", " "},
      {"\t", " "},
      {"\r", " "},
      {"\xE2\x88\x92", "-"},
      {"\xE2\x80\x93", "-"},
      {"\xC3\x97", "\\times "},
      {"\xC3\xB7", "\\div "},
      {"\xC2\xB7", "\\cdot "},
      {"\xCF\x80", "\\pi "},
      {"\xE2\x88\x9E", "\\infty "},
      {"\xE2\x89\xA4", "\\le "},
      {"\xE2\x89\xA5", "\\ge "},
      {"\xE2\x89\xA0", "\\ne "},
      {"\xC2\xB0", "^\\circ "},
      {"\xE2\x88\xAA", "\\cup "},
      {"\xE2\x88\x88", "\\in "},
      {"\xC2\xB1", "\\pm "},
      {"\xE2\x89\x88", "\\approx "},
      {"\xC2\xA0", " "},
      {"\xE2\x82\xAC", ""},
      {"\xC2\xA3", ""},
      {"\\rightarrow", "\\to"},
      {"\\text{}", ""},
      {"\\text {", "\\text{"},
  }};
  // \left and \right go only before a delimiter, so that \leftarrow and \rightarrow stay.
  for (const auto& [from, to] : table) {
    if (from != "\\left" && from != "\\right") {
      replace_all(text, from, to);
      continue;
    }
    for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + 1))
      if (at + from.size() < text.size() && !is_letter(text[at + from.size()])) text.erase(at, from.size());
  }
  for (std::size_t at = text.find("\\ "); at != std::string::npos; at = text.find("\\ ", at + 1))
    if (at == 0 || text[at - 1] != '\\') text.erase(at, 1);  // "\\ " is a blank, "\\\\ " the end of a row
  if (text.find("matrix") == std::string::npos)
    for (std::size_t at = text.find("\\\\"); at != std::string::npos; at = text.find("\\\\", at + 1))
      if (at + 2 < text.size() && is_letter(text[at + 2])) text.erase(at, 1);
  join_with_commas(text);
}

// Longest first where one begins another.
inline constexpr std::string_view unit_words[] = {"integer point",
                                                  "children ticket",
                                                  "kilometer",
                                                  "centimeter",
                                                  "millimeter",
                                                  "degree",
                                                  "percent",
                                                  "student",
                                                  "multiple",
                                                  "soldier",
                                                  "hectare",
                                                  "no change",
                                                  "minute",
                                                  "second",
                                                  "gallon",
                                                  "square",
                                                  "rupee",
                                                  "rounds",
                                                  "number",
                                                  "m square",
                                                  "inches",
                                                  "cubic",
                                                  "monkey",
                                                  "profit",
                                                  "excess",
                                                  "decrease",
                                                  "increase",
                                                  "month",
                                                  "liter",
                                                  "litre",
                                                  "metre",
                                                  "meter",
                                                  "apple",
                                                  "women",
                                                  "woman",
                                                  "pound",
                                                  "digit",
                                                  "prime",
                                                  "ratio",
                                                  "Surface",
                                                  "sq inch",
                                                  "sq m",
                                                  "sq cm",
                                                  "cu cm",
                                                  "kmph",
                                                  "feet",
                                                  "foot",
                                                  "edge",
                                                  "meal",
                                                  "east",
                                                  "west",
                                                  "mile",
                                                  "tile",
                                                  "gain",
                                                  "way",
                                                  "men",
                                                  "pie",
                                                  "noon",
                                                  "cent",
                                                  "gal",
                                                  "kmh",
                                                  "mph",
                                                  "acre",
                                                  "rise",
                                                  "mark",
                                                  "toy",
                                                  "coin",
                                                  "yard",
                                                  "pure",
                                                  "year",
                                                  "less",
                                                  "loss",
                                                  "inch",
                                                  "unit",
                                                  "more",
                                                  "hour",
                                                  "day",
                                                  "cube",
                                                  "ohm",
                                                  "man",
                                                  "min",
                                                  "sec",
                                                  "deg",
                                                  "cm 2",
                                                  "mtr",
                                                  "are",
                                                  "per",
                                                  "sue",
                                                  "cc",
                                                  "kg",
                                                  "km",
                                                  "cm",
                                                  "mm",
                                                  "mt",
                                                  "mp",
                                                  "rs",
                                                  "gm",
                                                  "lb",
                                                  "dm",
                                                  "lt",
                                                  "ft",
                                                  "st",
                                                  "by",
                                                  "yr",
                                                  "am",
                                                  "pm",
                                                  "hr",
                                                  "rd",
                                                  "th",
                                                  "sq",
                                                  "ab",
                                                  "bc",
                                                  "t",
                                                  "h",
                                                  "c",
                                                  "l",
                                                  "s",
                                                  "g",
                                                  "m",
                                                  "d",
                                                  "o"};

// Removes one unit word (with s or es) at the end, when a digit, a brace or a blank stands before it.
inline bool remove_unit_word(std::string& text) {
  const std::string_view whole = text;
  std::size_t end = whole.size();
  while (end > 0 && is_blank(whole[end - 1])) --end;
  std::size_t best = std::string_view::npos;  // the earliest start of a unit: the longest match wins
  for (const std::string_view suffix : {"", "s", "es"}) {
    const std::string_view body = whole.substr(0, end);
    if (!body.ends_with(suffix)) continue;
    const std::string_view stem = body.substr(0, body.size() - suffix.size());
    for (const std::string_view word : unit_words) {
      if (!stem.ends_with(word)) continue;
      const std::size_t start = stem.size() - word.size();
      const bool separated =
          start > 0 && (is_digit(whole[start - 1]) || whole[start - 1] == '}' || is_blank(whole[start - 1]));
      if (separated) best = std::min(best, start);
    }
  }
  if (best == std::string_view::npos) return false;
  const std::string rest = stripped(whole.substr(0, best));
  if (rest.empty()) return false;
  text = rest;
  return true;
}

// A trailing \text{…}, with a power behind it, is a unit unless nothing else is left.
inline void remove_units(std::string& text) {
  std::string_view body = text;
  while (!body.empty() && is_blank(body.back())) body.remove_suffix(1);
  if (body.size() > 2 && is_digit(body.back()) && body[body.size() - 2] == '^')
    body.remove_suffix(2);
  else if (body.size() > 4 && body.back() == '}' && is_digit(body[body.size() - 2]) &&
           body.substr(body.size() - 4, 2) == "^{")
    body.remove_suffix(4);
  const std::size_t start = body.rfind("\\text{");
  if (start != std::string_view::npos && body.find('}', start) == body.size() - 1) {
    const std::string rest = stripped(body.substr(0, start));
    if (!rest.empty()) text = rest;
  }
  for (int twice = 0; twice < 2; ++twice)
    if (!remove_unit_word(text)) break;
}

// Bytes: what is longer is not cleaned, for the parser will not read it (MathsReader::longest).
inline constexpr std::size_t longest_cleaned = 40'000;

struct Normalized {
  std::string text;
  bool lenient = false;  // malformed operators are repaired by the parser
};

inline Normalized normalize(std::string_view content, bool only_last_box, bool lenient) {
  Normalized out{open_boxes(content, only_last_box), lenient};
  if (out.text.size() > longest_cleaned) return out;
  MathsWork::charge(out.text.size());
  basic_cleaning(out.text);
  remove_units(out.text);
  out.text = stripped(out.text);
  return out;
}

}  // namespace rlalgo::maths::detail
