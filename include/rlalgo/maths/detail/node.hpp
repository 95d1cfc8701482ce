// The tree of a formula. Immutable; made by the parser, read by evaluation and comparison.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlalgo::maths::detail {

enum class Kind {
  number,  // text: digits, perhaps with a point
  symbol,  // text: lower-case name
  word,    // text: name made of several letters in \text{…}
  pi,
  euler,
  imaginary,
  infinity,
  add,       // any number of parts
  multiply,  // any number of parts
  negate,
  divide,
  power,
  percent,  // parts[0] / 100
  factorial,
  function,    // text: sin, sqrt (parts: radicand, index), log (parts: argument, base), abs, floor, …, or f of f(x)
  plus_minus,  // parts: left, right (left may be null: ±right)
  tuple,
  set,       // finite
  interval,  // two parts; open_left, open_right
  set_union,
  intersection,
  difference,
  empty_set,
  relation,  // parts in a chain; operators between them: = < > <= >= != in
  matrix,    // parts: rows, each a tuple
};

struct Node;
using NodePtr = std::shared_ptr<const Node>;

struct Node {
  Kind kind = Kind::number;
  std::string text = {};
  std::vector<NodePtr> parts = {};
  std::vector<std::string> operators = {};
  bool open_left = false;
  bool open_right = false;
};

inline NodePtr make(Kind kind, std::string text = {}, std::vector<NodePtr> parts = {}) {
  return std::make_shared<const Node>(Node{.kind = kind, .text = std::move(text), .parts = std::move(parts)});
}
inline NodePtr make(Kind kind, std::vector<NodePtr> parts) { return make(kind, std::string(), std::move(parts)); }
inline NodePtr integer(std::int64_t value) {
  return value < 0 ? make(Kind::negate, {make(Kind::number, std::to_string(-value))})
                   : make(Kind::number, std::to_string(value));
}
inline NodePtr interval(NodePtr left, NodePtr right, bool open_left, bool open_right) {
  return std::make_shared<const Node>(Node{.kind = Kind::interval,
                                           .parts = {std::move(left), std::move(right)},
                                           .open_left = open_left,
                                           .open_right = open_right});
}
inline NodePtr relation(std::vector<NodePtr> sides, std::vector<std::string> operators) {
  return std::make_shared<const Node>(
      Node{.kind = Kind::relation, .parts = std::move(sides), .operators = std::move(operators)});
}

inline bool is_set_like(const Node& node) {
  switch (node.kind) {
    case Kind::tuple:
    case Kind::set:
    case Kind::interval:
    case Kind::set_union:
    case Kind::intersection:
    case Kind::difference:
    case Kind::empty_set:
      return true;
    default:
      return false;
  }
}

// A number as written, perhaps with a sign or a percent sign.
struct Atom {
  const std::string* digits = nullptr;
  bool negative = false;
  bool percent = false;
  [[nodiscard]] bool decimal() const { return digits->find('.') != std::string::npos; }
};
inline bool as_atom(const Node& node, Atom& out) {
  const Node* at = &node;
  for (int depth = 0; depth < 4; ++depth) {
    if (at->kind == Kind::number) {
      out.digits = &at->text;
      return true;
    }
    if (at->kind == Kind::negate)
      out.negative = !out.negative;
    else if (at->kind == Kind::percent && !out.percent)
      out.percent = true;
    else
      return false;
    at = at->parts[0].get();
  }
  return false;
}

}  // namespace rlalgo::maths::detail
