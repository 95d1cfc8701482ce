// Whether two formulas mean the same answer.
//
// Numbers: exact, except that a decimal equals a non-integer that rounds to the same 6 decimals; a whole percentage
// also equals the bare number. Expressions: the same value wherever both are defined. Sets: the same elements; a list
// without brackets, a tuple and an open interval of the same two numbers are compared element by element, in order
// where the solution is ordered. Relations: the same sides, also swapped or scaled; of "x = 5" and "5" the value
// counts.
// Source: these rules are those of math-verify 0.9's comparison; not symmetric: `gold` is the solution.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/maths/detail/evaluate.hpp>
#include <rlalgo/maths/detail/node.hpp>
#include <rlalgo/maths/detail/parse.hpp>
#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths::detail {

inline bool same_answer(const NodePtr& gold, const NodePtr& answer);

// --- Expressions ---------------------------------------------------------------------------------------------------
inline constexpr std::uint64_t points = 6;

// Equal as rational functions; nothing when one is none.
inline std::optional<bool> same_in_field(const Node& a, const Node& b) {
  for (std::uint64_t point = 0; point < 3; ++point) {
    const auto x = field_value(a, point), y = field_value(b, point);
    if (!x || !y) return std::nullopt;
    if (*x != *y) return false;
  }
  return true;
}

inline bool close(Complex x, Complex y, long double tolerance = 1e-11L) {
  return std::abs(x - y) <= tolerance * std::fmax(1.0L, std::fmax(std::abs(x), std::abs(y)));
}

inline bool same_in_floating_point(const Node& a, const Node& b) {
  std::size_t defined = 0;
  for (std::uint64_t point = 0; point < points; ++point) {
    const Complex x = complex_value(a, point), y = complex_value(b, point);
    const auto finite = [](Complex z) { return std::isfinite(z.real()) && std::isfinite(z.imag()); };
    if (!finite(x) && !finite(y)) continue;
    if (!finite(x) || !finite(y) || !close(x, y)) return false;
    ++defined;
  }
  return defined >= 2;
}

inline bool whole(const Node& node) {
  const auto value = constant(node);
  return value && *value == std::floor(*value);
}

inline std::string letters(const Node& node) {
  if (node.kind == Kind::symbol || node.kind == Kind::word) return node.text;
  if (node.kind == Kind::euler) return "e";
  if (node.kind == Kind::imaginary) return "i";
  if (node.kind != Kind::multiply) return {};
  std::string all;
  for (const NodePtr& part : node.parts) {
    const std::string one = letters(*part);
    if (one.empty()) return {};
    all += one;
  }
  return all;
}

inline bool same_expression(const Node& gold, const Node& answer) {
  Atom a, b;
  const bool a_atom = as_atom(gold, a), b_atom = as_atom(answer, b);
  if (a_atom && b_atom && !a.decimal() && !b.decimal() && (a.percent || b.percent) && *a.digits == *b.digits &&
      a.negative == b.negative)
    return true;  // 50% = 50
  if (gold.kind == Kind::word || answer.kind == Kind::word) return letters(gold) == letters(answer);
  const auto limit_a = constant(gold), limit_b = constant(answer);
  if (limit_a && limit_b && (std::isinf(*limit_a) || std::isinf(*limit_b))) return *limit_a == *limit_b;
  const auto exact = same_in_field(gold, answer);
  if (exact && *exact) return true;
  if (((a_atom && a.decimal()) || (b_atom && b.decimal())) && limit_a && limit_b) {
    if (whole(gold) || whole(answer)) return false;
    return std::nearbyint(*limit_a * 1e6L) == std::nearbyint(*limit_b * 1e6L);
  }
  if (exact) return false;
  return same_in_floating_point(gold, answer);
}

// --- Real sets ------------------------------------------------------------------------------------------------------
inline constexpr long double near = 1e-9L;
inline bool at_point(long double x, long double y) {
  return x == y || (!std::isinf(x) && !std::isinf(y) && std::fabs(x - y) <= near * std::fmax(1.0L, std::fabs(y)));
}

// Collects the ends of all intervals; false when the set is no set of real numbers.
inline bool collect_ends(const Node& set, std::vector<long double>& ends) {
  switch (set.kind) {
    case Kind::empty_set:
      return true;
    case Kind::interval:
    case Kind::set:
      for (const NodePtr& part : set.parts) {
        const auto value = constant(*part);
        if (!value) return false;
        ends.push_back(*value);
      }
      return true;
    case Kind::set_union:
    case Kind::intersection:
    case Kind::difference:
      return collect_ends(*set.parts[0], ends) && collect_ends(*set.parts[1], ends);
    case Kind::relation: {  // one symbol between constants
      std::string symbol;
      for (const NodePtr& side : set.parts) {
        if (side->kind == Kind::symbol) {
          if (!symbol.empty() && symbol != side->text) return false;
          symbol = side->text;
        } else if (const auto value = constant(*side)) {
          ends.push_back(*value);
        } else {
          return false;
        }
      }
      return !symbol.empty();
    }
    default:
      return false;
  }
}

inline bool holds_point(const Node& set, long double x) {
  const auto in = [&](std::size_t i) { return holds_point(*set.parts[i], x); };
  switch (set.kind) {
    case Kind::interval: {
      const long double low = *constant(*set.parts[0]), high = *constant(*set.parts[1]);
      if (at_point(x, low)) return !set.open_left && !std::isinf(low);
      if (at_point(x, high)) return !set.open_right && !std::isinf(high);
      return low < x && x < high;
    }
    case Kind::set:
      for (const NodePtr& part : set.parts)
        if (at_point(x, *constant(*part))) return true;
      return false;
    case Kind::set_union:
      return in(0) || in(1);
    case Kind::intersection:
      return in(0) && in(1);
    case Kind::difference:
      return in(0) && !in(1);
    case Kind::relation:
      for (std::size_t i = 0; i < set.operators.size(); ++i) {
        const auto side = [&](std::size_t k) {
          return set.parts[k]->kind == Kind::symbol ? x : *constant(*set.parts[k]);
        };
        const long double left = side(i), right = side(i + 1);
        const bool equal = at_point(left, right);
        const std::string& op = set.operators[i];
        const bool holds = op == "="    ? equal
                           : op == "!=" ? !equal
                           : op == "<"  ? left < right && !equal
                           : op == ">"  ? left > right && !equal
                           : op == "<=" ? left < right || equal
                                        : left > right || equal;
        if (!holds) return false;
      }
      return true;
    default:
      return false;
  }
}

// The same real numbers: decided at every end and between any two neighbours. Nothing when one is no real set.
inline std::optional<bool> same_real_set(const Node& a, const Node& b) {
  std::vector<long double> ends;
  if (!collect_ends(a, ends) || !collect_ends(b, ends)) return std::nullopt;
  std::set<long double> sorted;
  for (const long double end : ends)
    if (!std::isinf(end)) sorted.insert(end);
  std::vector<long double> probes;
  long double previous = sorted.empty() ? 0 : *sorted.begin() - 2;
  for (const long double end : sorted) {
    probes.push_back((previous + end) / 2);
    probes.push_back(end);
    previous = end;
  }
  probes.push_back(previous + 1);
  for (const long double x : probes)
    if (holds_point(a, x) != holds_point(b, x)) return false;
  return true;
}

// --- Sets and tuples -------------------------------------------------------------------------------------------------
// Every element of each has an equal in the other.
inline bool same_elements(const std::vector<NodePtr>& gold, const std::vector<NodePtr>& answer) {
  if (gold.size() * answer.size() > 40000) return false;
  for (const NodePtr& g : gold) {
    bool found = false;
    for (const NodePtr& a : answer)
      if (same_answer(g, a)) {
        found = true;
        break;
      }
    if (!found) return false;
  }
  for (const NodePtr& a : answer) {
    bool found = false;
    for (const NodePtr& g : gold)
      if (same_answer(g, a)) {
        found = true;
        break;
      }
    if (!found) return false;
  }
  return true;
}

inline bool same_in_order(const std::vector<NodePtr>& gold, const std::vector<NodePtr>& answer) {
  if (gold.size() != answer.size()) return false;
  for (std::size_t i = 0; i < gold.size(); ++i)
    if (!same_answer(gold[i], answer[i])) return false;
  return true;
}

inline bool same_set(const NodePtr& gold, const NodePtr& answer) {
  const auto listed = [](const Node& n) { return n.kind == Kind::set || n.kind == Kind::tuple; };
  const auto open_pair = [](const Node& n) { return n.kind == Kind::interval && n.open_left && n.open_right; };
  if (gold->kind == Kind::interval && answer->kind == Kind::interval)
    return gold->open_left == answer->open_left && gold->open_right == answer->open_right &&
           same_in_order(gold->parts, answer->parts);
  const bool gold_alone = !is_set_like(*gold), answer_alone = !is_set_like(*answer);
  if ((gold_alone || listed(*gold) || open_pair(*gold)) && (answer_alone || listed(*answer) || open_pair(*answer))) {
    const std::vector<NodePtr> left = gold_alone ? std::vector<NodePtr>{gold} : gold->parts;
    const std::vector<NodePtr> right = answer_alone ? std::vector<NodePtr>{answer} : answer->parts;
    const bool ordered = !gold_alone && gold->kind != Kind::set;
    return ordered ? same_in_order(left, right) : same_elements(left, right);
  }
  if (gold->kind == Kind::empty_set && answer->kind == Kind::empty_set) return true;
  return same_real_set(*gold, *answer).value_or(false);
}

// --- Relations -------------------------------------------------------------------------------------------------------
inline std::string mirrored(const std::string& op) {
  if (op == "<") return ">";
  if (op == ">") return "<";
  if (op == "<=") return ">=";
  return op == ">=" ? "<=" : op;
}

inline NodePtr difference_of(const Node& relation, std::size_t i) {
  return make(Kind::add, {relation.parts[i], make(Kind::negate, {relation.parts[i + 1]})});
}

// l − r of one is a constant multiple of the other's; its sign turns an inequality round.
inline bool same_up_to_scale(const NodePtr& a, const NodePtr& b, bool equality, bool same_direction) {
  long double ratio = 0;
  std::size_t defined = 0;
  for (std::uint64_t point = 0; point < points; ++point) {
    const Complex x = complex_value(*a, point), y = complex_value(*b, point);
    if (!std::isfinite(std::abs(x)) || !std::isfinite(std::abs(y)) || std::abs(y) < 1e-9L) continue;
    const Complex r = x / y;
    if (std::fabs(r.imag()) > 1e-9L || std::fabs(r.real()) < 1e-9L) return false;
    if (defined > 0 && !close(r, ratio, 1e-9L)) return false;
    ratio = r.real();
    ++defined;
  }
  return defined >= 2 && (equality || (ratio > 0) == same_direction);
}

inline bool same_relation(const Node& gold, const Node& answer) {
  if (gold.operators.size() != answer.operators.size()) return false;
  const auto aligned = [&](const Node& other) {
    for (std::size_t i = 0; i < gold.operators.size(); ++i) {
      const std::string &a = gold.operators[i], &b = other.operators[i];
      const bool sets = is_set_like(*gold.parts[i]) || is_set_like(*gold.parts[i + 1]);
      if (sets) {
        if (a != b || !same_answer(gold.parts[i], other.parts[i]) ||
            !same_answer(gold.parts[i + 1], other.parts[i + 1]))
          return false;
        continue;
      }
      const bool equality = a == "=" || a == "!=";
      if (b != a && b != mirrored(a)) return false;
      if (!same_up_to_scale(difference_of(gold, i), difference_of(other, i), equality, a == b)) return false;
    }
    return true;
  };
  if (aligned(answer)) return true;
  Node backwards = answer;
  backwards.parts.assign(answer.parts.rbegin(), answer.parts.rend());
  backwards.operators.clear();
  for (auto op = answer.operators.rbegin(); op != answer.operators.rend(); ++op)
    backwards.operators.push_back(mirrored(*op));
  return aligned(backwards);
}

inline bool all_equalities(const Node& node) {
  if (node.kind != Kind::relation) return false;
  for (const std::string& op : node.operators)
    if (op != "=") return false;
  return true;
}
inline bool assigns(const Node& node) { return all_equalities(node) && MathsParser::only_symbols(*node.parts[0]); }

// --- ± ---------------------------------------------------------------------------------------------------------------
inline bool holds_plus_minus(const Node& node) {
  MathsWork::charge(1);
  if (node.kind == Kind::plus_minus) return true;
  for (const NodePtr& part : node.parts)
    if (part && holds_plus_minus(*part)) return true;
  return false;
}
inline NodePtr with_sign(const NodePtr& node, bool plus) {
  if (!node || !holds_plus_minus(*node)) return node;
  std::vector<NodePtr> parts;
  for (const NodePtr& part : node->parts) parts.push_back(with_sign(part, plus));
  if (node->kind == Kind::plus_minus) {
    NodePtr right = plus ? parts[1] : make(Kind::negate, {parts[1]});
    return parts[0] ? make(Kind::add, {parts[0], right}) : right;
  }
  Node copy = *node;
  copy.parts = std::move(parts);
  return std::make_shared<const Node>(std::move(copy));
}

// ± stands for two elements; sets within an unordered list are spread into it.
inline NodePtr spread(const NodePtr& node) {
  if (node->kind == Kind::set) {
    std::vector<NodePtr> parts;
    for (const NodePtr& part : node->parts) {
      const NodePtr one = spread(part);
      if (one->kind == Kind::set && holds_plus_minus(*part))
        parts.insert(parts.end(), one->parts.begin(), one->parts.end());
      else
        parts.push_back(one);
    }
    return make(Kind::set, std::move(parts));
  }
  if (!holds_plus_minus(*node)) return node;
  if (all_equalities(*node) && node->parts.size() == 2) {  // x = ±2
    return relation({node->parts[0], spread(node->parts[1])}, node->operators);
  }
  return make(Kind::set, {with_sign(node, true), with_sign(node, false)});
}

inline bool same_answer(const NodePtr& gold_in, const NodePtr& answer_in) {
  NodePtr gold = gold_in, answer = answer_in;
  const auto shorten = [](NodePtr& node) {  // x = 2 + 3 = 5 is x = 5
    if (assigns(*node) && node->parts.size() > 2) node = relation({node->parts.front(), node->parts.back()}, {"="});
  };
  shorten(gold);
  shorten(answer);
  if (all_equalities(*answer) && !all_equalities(*gold))
    answer = answer->parts.back();
  else if (assigns(*gold) && !all_equalities(*answer))
    gold = gold->parts.back();
  if (gold->kind == Kind::relation && is_set_like(*answer)) return same_real_set(*gold, *answer).value_or(false);
  if (gold->kind == Kind::relation || answer->kind == Kind::relation)
    return gold->kind == answer->kind && same_relation(*gold, *answer);
  if (is_set_like(*gold) || is_set_like(*answer)) return same_set(gold, answer);
  if (gold->kind == Kind::matrix || answer->kind == Kind::matrix) {
    if (gold->kind != answer->kind || gold->parts.size() != answer->parts.size()) return false;
    for (std::size_t i = 0; i < gold->parts.size(); ++i)
      if (!same_in_order(gold->parts[i]->parts, answer->parts[i]->parts)) return false;
    return true;
  }
  return same_expression(*gold, *answer);
}

}  // namespace rlalgo::maths::detail
