// Reads an expression into positions: recursive descent; a part of the expression is a beginning and an end.
//
// Beside what pattern.hpp says there are groups for schemas, which begin with a control character, (␁,
// and whose parts are divided by another, ␂:
//
//   (␁jR)                    R's characters as they stand in a JSON text
//   (␁&A␂B)                  texts of A and of B
//   (␁,n,m;S␂I)              n to m texts of I (m may be left out), S between them
//   (␁oS␂!M␂?M …)            members in this order, those with ? perhaps not, S between them
//   (␁un,m;S␂I␂I …)          n to m of the texts, none twice, S between them
//   (␁mN)                    decimal numbers that N divides
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/serve/detail/pattern_positions.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve::detail {

class PatternReader {
 public:
  PatternReader(const std::string& expression, PatternPositions& positions)
      : text_(expression), positions_(positions) {}

  // From position 0; the position behind the whole.
  std::int32_t read() {
    const std::int32_t begin = add();
    if (peek() == '^') ++at_;
    const Part all = alternatives(0);
    if (at_ < text_.size()) fail("a bracket is closed that was not opened");
    free(begin, all.begin);
    return all.end;
  }

 private:
  using Edge = PatternPosition::Edge;
  struct Part {
    std::int32_t begin, end;
  };
  struct Range {
    std::uint32_t least, most;
  };
  using Set = std::vector<Range>;
  static constexpr std::uint32_t last_character = 0x10FFFF;
  static constexpr int deepest = 200;

  [[noreturn]] void fail(const std::string& what) const {
    refuse_request(400, 23,
                   {.what = "a regular expression cannot be used",
                    .found = what,
                    .where = "byte " + std::to_string(at_) + " of " + text_.substr(0, 200)});
  }

  std::int32_t add() {
    if (positions_.size() >= most_positions) fail("more than " + std::to_string(most_positions) + " positions");
    positions_.emplace_back();
    return static_cast<std::int32_t>(positions_.size()) - 1;
  }
  void free(std::int32_t from, std::int32_t to) { positions_[static_cast<std::size_t>(from)].free.push_back(to); }

  [[nodiscard]] int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1; }

  // The end of a part of a group of ours, or of everything.
  [[nodiscard]] bool at_end() const { return peek() == -1 || peek() == ')' || peek() == part_mark; }

  Part alternatives(int depth) {
    if (depth > deepest) fail("groups nested more than " + std::to_string(deepest) + " levels deep");
    const Part out = {add(), add()};
    for (;;) {
      const Part one = sequence(depth);
      free(out.begin, one.begin);
      free(one.end, out.end);
      if (peek() != '|') return out;
      ++at_;
    }
  }

  Part sequence(int depth) {
    const std::int32_t begin = add();
    Part out = {begin, begin};
    while (!at_end() && peek() != '|') {
      if (peek() == '$') {
        ++at_;
        if (peek() != -1) fail("$ before the end");
        break;
      }
      const Part one = repeated(depth);
      free(out.end, one.begin);
      out.end = one.end;
    }
    return out;
  }

  // A part is read again for every copy that a count asks for.
  Part repeated(int depth) {
    const std::size_t begin = at_;
    const Part first = single(depth);
    std::int64_t least = 1, most = 1;  // −1: no end
    const std::size_t end = at_;
    if (!quantifier(least, most)) return first;
    const std::size_t after = at_;
    if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') fail("two quantifiers in a row");
    Part out = {add(), add()};
    std::int32_t reached = out.begin;
    if (least == 0) free(out.begin, out.end);
    const std::int64_t copies = most < 0 ? std::max<std::int64_t>(least, 1) : most;
    for (std::int64_t i = 0; i < copies; ++i) {
      Part one = first;
      if (i > 0) {
        at_ = begin;
        one = single(depth);
        if (at_ != end) fail("a part cannot be repeated");
      }
      free(reached, one.begin);
      reached = one.end;
      if (i + 1 >= least) free(reached, out.end);
      if (most < 0 && i + 1 == copies) free(reached, one.begin);
    }
    if (copies == 0) free(out.begin, out.end);
    at_ = after;
    return out;
  }

  bool quantifier(std::int64_t& least, std::int64_t& most) {
    switch (peek()) {
      case '*':
        least = 0, most = -1;
        break;
      case '+':
        most = -1;
        break;
      case '?':
        least = 0;
        break;
      case '{': {
        ++at_;
        least = number();
        most = least;
        if (peek() == ',') {
          ++at_;
          most = peek() == '}' ? -1 : number();
        }
        if (peek() != '}') fail("a count is not closed");
        if (most >= 0 && most < least) fail("a count whose end is before its beginning");
        break;
      }
      default:
        return false;
    }
    ++at_;
    return true;
  }

  std::int64_t number() {
    std::int64_t out = 0;
    const std::size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') {
      out = out * 10 + (text_[at_++] - '0');
      if (out > static_cast<std::int64_t>(most_positions)) fail("a count is too large");
    }
    if (at_ == begin) fail("a count is no number");
    return out;
  }

  Part single(int depth) {
    const int c = peek();
    if (c == '(') {
      ++at_;
      if (peek() == group_mark) {
        const Part out = group(depth + 1);
        if (peek() != ')') fail("a group is not closed");
        ++at_;
        return out;
      }
      if (peek() == '?') {
        if (text_.compare(at_, 2, "?:") != 0) fail("a group of another kind than (…) and (?:…)");
        at_ += 2;
      }
      const Part out = alternatives(depth + 1);
      if (peek() != ')') fail("a group is not closed");
      ++at_;
      return out;
    }
    if (c == '*' || c == '+' || c == '?' || c == '{') fail("a quantifier with nothing before it");
    if (c == '^') fail("^ behind the beginning");
    if (c == '.') {
      ++at_;
      return set_part(json_ ? without({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}) : without({{'\n', '\n'}}));
    }
    if (c == '[') return set_part(bracket());
    if (c == '\\') return set_part(escape());
    const std::uint32_t character = one_character();
    return set_part({{character, character}});
  }

  // The character at hand, read as UTF-8.
  std::uint32_t one_character() {
    const auto first = static_cast<unsigned char>(text_[at_++]);
    const int more = first < 0x80 ? 0 : first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : -1;
    if (more < 0) fail("bytes that are no UTF-8");
    std::uint32_t out = more == 0 ? first : first & (0x3FU >> static_cast<unsigned>(more));
    for (int i = 0; i < more; ++i) {
      if (peek() < 0x80 || peek() > 0xBF) fail("bytes that are no UTF-8");
      out = out << 6U | (static_cast<unsigned char>(text_[at_++]) & 0x3FU);
    }
    return out;
  }

  Set escape() {
    ++at_;
    const int c = peek();
    if (c == -1) fail("a backslash at the end");
    ++at_;
    static const Set digits = {{'0', '9'}}, words = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                     spaces = {{'\t', '\r'}, {' ', ' '}};
    switch (c) {
      case 'd':
        return digits;
      case 'D':
        return other_than(digits);
      case 'w':
        return words;
      case 'W':
        return other_than(words);
      case 's':
        return spaces;
      case 'S':
        return other_than(spaces);
      case 'n':
        return {{'\n', '\n'}};
      case 'r':
        return {{'\r', '\r'}};
      case 't':
        return {{'\t', '\t'}};
      case 'f':
        return {{'\f', '\f'}};
      case 'v':
        return {{'\v', '\v'}};
      case '0':
        return {{0, 0}};
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      default:
        break;
    }
    if ((c >= '1' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
      fail(std::string("\\") + static_cast<char>(c));
    --at_;
    const std::uint32_t character = one_character();
    return {{character, character}};
  }

  Set hexadecimal(int digits) {
    std::uint32_t out = 0;
    for (int i = 0; i < digits; ++i) {
      const int c = peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail("a character's number is not hexadecimal");
      out = out * 16 + static_cast<std::uint32_t>(digit);
      ++at_;
    }
    return {{out, out}};
  }

  Set bracket() {
    ++at_;
    const bool negated = peek() == '^';
    if (negated) ++at_;
    Set out;
    bool named = false;
    for (bool first = true; first || peek() != ']'; first = false) {
      if (peek() == -1) fail("a class is not closed");
      if (peek() == '[' && at_ + 1 < text_.size() && text_[at_ + 1] == ':') fail("a class by name");
      named = named || (peek() == '\\' && at_ + 1 < text_.size() &&
                        std::string_view("dDwWsS").find(text_[at_ + 1]) != std::string_view::npos);
      Set one = in_bracket();
      if (one.size() == 1 && one[0].least == one[0].most && peek() == '-' && at_ + 1 < text_.size() &&
          text_[at_ + 1] != ']') {
        ++at_;
        const Set end = in_bracket();
        if (end.size() != 1 || end[0].least != end[0].most || end[0].least < one[0].least)
          fail("a range without an end");
        one[0].most = end[0].least;
      }
      out.insert(out.end(), one.begin(), one.end());
    }
    ++at_;
    return !negated ? out : named ? other_than(out) : without(out);
  }
  Set in_bracket() {
    if (peek() == '\\') return escape();
    const std::uint32_t character = one_character();
    return {{character, character}};
  }

  static Set sorted(Set set) {
    std::sort(set.begin(), set.end(), [](const Range& a, const Range& b) { return a.least < b.least; });
    Set out;
    for (const Range& one : set) {
      if (!out.empty() && one.least <= out.back().most + 1)
        out.back().most = std::max(out.back().most, one.most);
      else
        out.push_back(one);
    }
    return out;
  }
  static Set without(const Set& set) {
    Set out;
    std::uint32_t next = 0;
    for (const Range& one : sorted(set)) {
      if (one.least > next) out.push_back({next, one.least - 1});
      next = one.most + 1;
    }
    if (next <= last_character) out.push_back({next, last_character});
    return out;
  }

  // What is no digit, word or space of ASCII. Of a schema's pattern only those of ASCII: readers differ in the others.
  [[nodiscard]] Set other_than(const Set& set) const {
    Set out = without(set);
    if (json_) std::erase_if(out, [](const Range& one) { return one.least > 0x7E; });
    if (json_ && !out.empty()) out.back().most = std::min<std::uint32_t>(out.back().most, 0x7E);
    return out;
  }

  Part set_part(const Set& set) {
    const Part out = {add(), add()};
    if (json_) return json_part(out, sorted(set));
    for (const Range& one : sorted(set)) characters(out, one.least, one.most);
    return out;
  }

  // The characters as they stand between the quotes of a JSON text: a quote, a backslash and some controls by escapes,
  // other controls never.
  Part json_part(Part part, const Set& set) {
    constexpr std::pair<char, char> escapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                                 {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
    const auto byte = [](char c) { return static_cast<unsigned char>(c); };
    bool any = false;
    const auto raw = [&](std::uint32_t least, std::uint32_t most) {
      if (least > most) return;
      characters(part, least, most);
      any = true;
    };
    for (const Range& one : set) {
      std::uint32_t next = std::max<std::uint32_t>(one.least, 0x20);
      for (const std::uint32_t special : {std::uint32_t{'"'}, std::uint32_t{'\\'}}) {
        if (special < next || special > one.most) continue;
        raw(next, special - 1);
        next = special + 1;
      }
      raw(next, one.most);
      for (const auto& [character, letter] : escapes) {
        if (byte(character) < one.least || byte(character) > one.most) continue;
        const std::int32_t between = add();
        positions_[static_cast<std::size_t>(part.begin)].edges.push_back({byte('\\'), byte('\\'), between});
        positions_[static_cast<std::size_t>(between)].edges.push_back({byte(letter), byte(letter), part.end});
        any = true;
      }
    }
    if (!any) fail("a character that no JSON text has");
    return part;
  }

  // Ranges of characters of equal length in UTF-8, without the surrogates, which no UTF-8 has.
  void characters(Part part, std::uint32_t least, std::uint32_t most) {
    constexpr Range bands[] = {{0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, last_character}};
    for (std::size_t b = 0; b < std::size(bands); ++b) {
      const std::uint32_t begin = std::max(least, bands[b].least), end = std::min(most, bands[b].most);
      if (begin <= end) bytes(part.begin, part.end, begin, end, b == 0 ? 0U : b == 1 ? 1U : b == 4 ? 3U : 2U, true);
    }
  }

  // `more` bytes follow the first. A range whose later bytes are not all of theirs is cut until they are.
  void bytes(std::int32_t from, std::int32_t to, std::uint32_t least, std::uint32_t most, std::uint32_t more,
             bool lead) {
    const std::uint32_t shift = 6 * more, mask = (1U << shift) - 1;
    const auto byte_of = [&](std::uint32_t value) {
      constexpr std::uint32_t leads[] = {0x00, 0xC0, 0xE0, 0xF0};
      return static_cast<unsigned char>(lead ? leads[more] | value >> shift : 0x80U | (value >> shift & 0x3FU));
    };
    if (more == 0) {
      positions_[static_cast<std::size_t>(from)].edges.push_back({byte_of(least), byte_of(most), to});
      return;
    }
    const std::uint32_t first = least >> shift, last = most >> shift;
    if (first == last || ((least & mask) == 0 && (most & mask) == mask)) {
      const std::int32_t between = add();
      positions_[static_cast<std::size_t>(from)].edges.push_back({byte_of(least), byte_of(most), between});
      bytes(between, to, least & mask, first == last ? most & mask : mask, more - 1, false);
      return;
    }
    if ((least & mask) != 0) {
      bytes(from, to, least, least | mask, more, lead);
      least = (least | mask) + 1;
    }
    if (least > most) return;
    if ((most & mask) != mask) {
      bytes(from, to, most & ~mask, most, more, lead);
      if ((most & ~mask) == 0) return;
      most = (most & ~mask) - 1;
    }
    if (least <= most) bytes(from, to, least, most, more, lead);
  }

  // Groups of ours.
  Part group(int depth);
  bool next_part() {
    if (peek() != part_mark) return false;
    ++at_;
    return true;
  }
  void need_part() {
    if (!next_part()) fail("a group lacks a part");
  }
  // The text of the part at hand is read again for every copy.
  Part copy(std::size_t begin, int depth) {
    at_ = begin;
    return alternatives(depth);
  }
  void skip(std::size_t begin, int depth);
  struct Counts {
    std::int64_t least, most;  // −1: no end
  };
  Counts counts();
  Part list(int depth);
  Part members(int depth);
  Part distinct(int depth);
  void any_order(const Counts& counts, std::size_t separator, const std::vector<std::size_t>& parts, Part out,
                 int depth);
  void own_order(const Counts& counts, std::size_t separator, const std::vector<std::size_t>& parts, Part out,
                 int depth);
  void one_after(std::size_t separator, std::size_t part, std::int32_t from, std::int32_t to, bool first, int depth);
  Part multiples();
  Part both(int depth);

  static constexpr std::int64_t most_modulus = 2000;

  const std::string& text_;
  PatternPositions& positions_;
  std::size_t at_ = 0;
  bool json_ = false;
};

}  // namespace rlalgo::serve::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/pattern_reader_impl.hpp>
#endif
