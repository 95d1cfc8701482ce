// LaTeX of a final answer → its tree, by recursive descent.
//
//   answer    := element ((, | ;) element)*            several: a finite set; groups parted by ; are tuples
//   element   := sum (relation sum)*                    relation: = < > ≤ ≥ ≠ ≈ ∈; "a ≈ b" is a, "x ≈ b" is b
//   sum       := term ((+ | − | ± | ∪ | ∩ | \setminus) term)*
//   term      := product ((· | × | / | ÷ | :) product)*  1/2x = 1/(2x)
//   product   := factor factor*                         2\frac12 is a mixed number
//   factor    := base (^ exponent | ! | % | °)*
//   base      := number | letter[_index] | \command … | ( … ) | [ … ] | { … } | \{ … \} | | … | | \begin{matrix} …
//
// (a, b) with a < b is an open interval, otherwise a tuple; so is [a, b] a closed one. Letters are lower-cased.
// Not read: integrals, sums, products and limits, logic, set builders, vectors with arrows, repeating decimals, numbers
// in other bases (an index at a number is ignored), "…". Depth 100, 4,000 characters and 1,000 elements are the limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/maths/detail/evaluate.hpp>
#include <rlalgo/maths/detail/extract.hpp>
#include <rlalgo/maths/detail/node.hpp>
#include <rlalgo/maths/detail/normalize.hpp>
#include <rlalgo/maths/detail/reader.hpp>

namespace rlalgo::maths::detail {

class MathsParser : private MathsReader {
 public:
  MathsParser(std::string_view text, bool lenient) : MathsReader(text), lenient_(lenient) {}

  NodePtr parse() {
    NodePtr answer = elements();
    skip();
    if (at_ < text_.size()) throw Unreadable("rest");
    return answer;
  }

 private:
  // --- Lists and relations
  // ---------------------------------------------------------------------------------------------- Up to `close`, which
  // is left unread; "" = the end of the text.
  std::vector<std::vector<NodePtr>> groups() {
    std::vector<std::vector<NodePtr>> out(1);
    std::size_t count = 0;
    for (;;) {
      out.back().push_back(element());
      if (++count > 1000) throw Unreadable("elements");
      if (take(";"))
        out.emplace_back();
      else if (!take(","))
        return out;
    }
  }

  static NodePtr from_groups(const std::vector<std::vector<NodePtr>>& groups) {
    if (groups.size() == 1) return groups[0].size() == 1 ? groups[0][0] : make(Kind::set, groups[0]);
    std::vector<NodePtr> parts;
    bool single = true;
    for (const auto& group : groups) single = single && group.size() == 1;
    for (const auto& group : groups) parts.push_back(single ? group[0] : make(Kind::tuple, group));
    return make(Kind::set, std::move(parts));
  }

  NodePtr elements() {
    const Depth depth(depth_);
    return from_groups(groups());
  }

  NodePtr element() {
    const Depth depth(depth_);
    std::vector<NodePtr> sides = {sum()};
    std::vector<std::string> operators;
    for (std::string op = relation_ahead(); !op.empty(); op = relation_ahead()) {
      NodePtr right = sum();
      if (op == "~") {
        if (only_symbols(*sides.back())) sides.back() = right;
        continue;
      }
      operators.push_back(op == "in" ? "=" : op);
      sides.push_back(std::move(right));
    }
    return operators.empty() ? sides[0] : relation(std::move(sides), std::move(operators));
  }

 public:
  static bool only_symbols(const Node& node) {
    if (node.kind == Kind::symbol || node.kind == Kind::word) return true;
    const bool joins = node.kind == Kind::multiply || node.kind == Kind::divide || node.kind == Kind::tuple ||
                       (node.kind == Kind::interval) || (node.kind == Kind::function && node.text.starts_with("call "));
    if (!joins) return false;
    for (const NodePtr& part : node.parts)
      if (!only_symbols(*part)) return false;
    return true;
  }

 private:
  // --- Sums and products
  // ----------------------------------------------------------------------------------------------
  NodePtr sum() {
    const Depth depth(depth_);
    NodePtr left;
    if (take_any({"\\pm", "\\mp"}))
      left = make(Kind::plus_minus, {nullptr, term()});
    else if (take("-"))
      left = make(Kind::negate, {term()});
    else {
      (void)take("+");
      left = term();
    }
    for (;;) {
      if (take_any({"\\pm", "\\mp"}))
        left = make(Kind::plus_minus, {left, term()});
      else if (take("+"))
        left = make(Kind::add, {left, take("-") ? make(Kind::negate, {term()}) : term()});
      else if (take("-"))
        left = make(Kind::add, {left, make(Kind::negate, {term()})});
      else if (take("\\cup"))
        left = make(Kind::set_union, {left, term()});
      else if (take("\\cap"))
        left = make(Kind::intersection, {left, term()});
      else if (take_any({"\\setminus", "\\backslash"}))
        left = make(Kind::difference, {left, term()});
      else
        return left;
    }
  }

  NodePtr term() {
    NodePtr left = product();
    for (;;) {
      if (take_any({"\\cdot", "\\times", "\\ast", "*"}))
        left = make(Kind::multiply, {left, signed_product()});
      else if (take_any({"/", "\\div", ":"}))
        left = make(Kind::divide, {left, signed_product()});
      else
        return left;
    }
  }
  NodePtr signed_product() { return take("-") ? make(Kind::negate, {product()}) : product(); }

  NodePtr product() {
    const Depth depth(depth_);
    NodePtr first = factor();
    std::vector<NodePtr> parts = {first};
    while (factor_ahead()) {
      const bool mixed = parts.size() == 1 && first->kind == Kind::number &&
                         first->text.find('.') == std::string::npos && command_ahead() == "frac";
      if (first->kind == Kind::number && parts.size() == 1 && is_digit(after(0))) throw Unreadable("two numbers");
      NodePtr next = factor();
      const bool fraction_of_numbers =
          next->kind == Kind::divide && next->parts[0]->kind == Kind::number && next->parts[1]->kind == Kind::number;
      if (mixed && fraction_of_numbers) {
        parts[0] = make(Kind::add, {first, next});
        continue;
      }
      parts.push_back(std::move(next));
    }
    return parts.size() == 1 ? parts[0] : make(Kind::multiply, std::move(parts));
  }

  NodePtr factor() {
    const Depth depth(depth_);
    NodePtr out = base();
    for (;;) {
      skip();
      if (take("\\%") || take("%")) {
        out = make(Kind::percent, {out});
      } else if (take("\\degree")) {
        continue;
      } else if (ahead("!") && !ahead("!=")) {
        ++at_;
        out = make(Kind::factorial, {out});
      } else if (ahead("^")) {
        ++at_;
        if (NodePtr power = exponent()) out = make(Kind::power, {out, power});
      } else {
        return out;
      }
    }
  }

  // Null for a degree sign.
  NodePtr exponent() {
    if (take("\\circ") || take("\\degree")) return nullptr;
    skip();
    if (ahead("{")) {
      const std::size_t before = at_;
      ++at_;
      if ((take("\\circ") || take("\\degree")) && take("}")) return nullptr;
      at_ = before;
      return group("{", "}");
    }
    if (ahead("(")) {
      if (!lenient_) throw Unreadable("malformed power");
      return group("(", ")");
    }
    if (take("-")) return make(Kind::negate, {single()});
    if (is_digit(after(0))) return number();
    return base();
  }

  NodePtr group(std::string_view open, std::string_view close) {
    need(open);
    const bool bars = std::exchange(in_bars_, false);
    NodePtr inside = elements();
    in_bars_ = bars;
    need(close);
    return inside;
  }

  // One digit or one base: the argument of a command without braces.
  NodePtr single() {
    skip();
    if (is_digit(after(0))) return make(Kind::number, std::string(1, text_[at_++]));
    return base();
  }
  NodePtr argument() {
    skip();
    if (ahead("{")) return group("{", "}");
    if (!lenient_) throw Unreadable("malformed argument");
    return single();
  }

  // --- Bases
  // ------------------------------------------------------------------------------------------------------------
  NodePtr named(std::string name, bool word = false) {
    std::string index;
    skip();
    if (ahead("_")) {
      ++at_;
      index = letters_of(single_or_group());
    }
    name = letters_of(name);
    if (name.empty()) throw Unreadable("name");
    if (index.empty() && !word) {
      if (name == "e") return make(Kind::euler);
      if (name == "i") return make(Kind::imaginary);
    }
    if (!index.empty()) name += "_" + index;
    skip();
    // f(x), also with a power between
    if (index.empty() && (name == "f" || name == "g" || name == "h")) {
      NodePtr power;
      const std::size_t before = at_;
      if (take("^")) power = exponent();
      skip();
      if (ahead("(")) {
        need("(");
        const bool bars = std::exchange(in_bars_, false);
        std::vector<NodePtr> arguments;
        for (const auto& group : groups()) arguments.insert(arguments.end(), group.begin(), group.end());
        in_bars_ = bars;
        need(")");
        NodePtr call = make(Kind::function, "call " + name, std::move(arguments));
        return power ? make(Kind::power, {call, power}) : call;
      }
      at_ = before;
    }
    return make(word && name.size() > 1 ? Kind::word : Kind::symbol, name);
  }

  NodePtr base() {
    const Depth depth(depth_);
    skip();
    const char c = after(0);
    if (is_digit(c) || (c == '.' && is_digit(after(1)))) return number();
    if (is_letter(c)) {
      if (lenient_ && ahead("sqrt")) {
        at_ += 4;
        skip();
        return make(Kind::function, "sqrt", {ahead("(") ? group("(", ")") : argument()});
      }
      if (ahead("inf") && !is_letter(after(3))) {
        at_ += 3;
        return make(Kind::infinity);
      }
      ++at_;
      return named(std::string(1, c));
    }
    if (c == '{') return group("{", "}");
    if (c == '(' || c == '[') return bracketed();
    if (c == '|') {
      ++at_;
      return rest_of_bars("|");
    }
    if (ahead("\\{")) return braces("\\{", "\\}");
    if (c == '\\') return command();
    throw Unreadable("sign");
  }

  NodePtr braces(std::string_view open, std::string_view close) {
    need(open);
    if (take(close)) return make(Kind::empty_set);
    const bool outer = std::exchange(in_bars_, false);
    std::vector<NodePtr> parts;
    for (const auto& group : groups()) parts.insert(parts.end(), group.begin(), group.end());
    in_bars_ = outer;
    need(close);
    return make(Kind::set, std::move(parts));
  }

  NodePtr bracketed() {
    const bool open_left = take("(");
    if (!open_left) need("[");
    const bool outer = std::exchange(in_bars_, false);
    const std::vector<std::vector<NodePtr>> inside = groups();
    in_bars_ = outer;
    const bool open_right = take(")");
    if (!open_right) need("]");
    std::vector<NodePtr> parts;
    for (const auto& g : inside) parts.insert(parts.end(), g.begin(), g.end());
    if (parts.size() == 1) {
      if (open_left != open_right) throw Unreadable("brackets");
      return parts[0];
    }
    if (parts.size() > 2) {
      if (open_left != open_right) throw Unreadable("brackets");
      return make(Kind::tuple, std::move(parts));
    }
    const auto a = constant(*parts[0]), b = constant(*parts[1]);
    if (open_left == open_right && a && b && (open_left ? *b <= *a : *b < *a))
      return make(Kind::tuple, std::move(parts));
    return interval(parts[0], parts[1], open_left, open_right);
  }

  NodePtr command() {
    const std::string name = command_ahead();
    if (name.empty()) throw Unreadable("command");
    at_ += name.size() + 1;
    if (name == "frac") {
      NodePtr above = argument();
      return make(Kind::divide, {above, argument()});
    }
    if (name == "binom" || name == "dbinom" || name == "tbinom") {
      NodePtr above = argument();
      return make(Kind::function, "binom", {above, argument()});
    }
    if (name == "sqrt") {
      NodePtr index;
      skip();
      if (ahead("[")) index = group("[", "]");
      std::vector<NodePtr> parts = {argument()};
      if (index) parts.push_back(index);
      return make(Kind::function, "sqrt", std::move(parts));
    }
    if (name == "boxed" || name == "fbox") return group("{", "}");
    if (name == "text" || name == "operatorname") return text_word();
    if (name == "pi") return make(Kind::pi);
    if (name == "infty") return make(Kind::infinity);
    if (name == "emptyset" || name == "varnothing") return make(Kind::empty_set);
    if (name == "imath") return make(Kind::imaginary);
    if (name == "mathbb") return number_set(braced_text());
    if (name == "lvert" || name == "vert") return rest_of_bars(name == "lvert" ? "\\rvert" : "\\vert");
    if (name == "lfloor") return closed("floor", "\\rfloor");
    if (name == "lceil") return closed("ceil", "\\rceil");
    if (name == "langle") return angled();
    if (name == "lbrace") {
      at_ -= 7;
      return braces("\\lbrace", "\\rbrace");
    }
    if (name == "begin") return matrix();
    if (name == "overline" || name == "bar" || name == "hat" || name == "vec" || name == "tilde") {
      const std::string inside = braced_text();
      if (inside.empty() || !is_letter(inside[0])) throw Unreadable("accent");
      return make(Kind::word, name + " " + letters_of(inside));
    }
    static constexpr std::string_view functions[] = {"sin",  "cos",    "tan",    "cot",    "sec", "csc", "sinh", "cosh",
                                                     "tanh", "arcsin", "arccos", "arctan", "ln",  "log", "lg",   "exp"};
    for (const std::string_view f : functions)
      if (name == f) return function(name);
    if (name == "max" || name == "min" || name == "gcd" || name == "lcm") return many(name);
    static constexpr std::string_view symbols[] = {
        "alpha", "beta",   "gamma",  "delta", "epsilon", "varepsilon", "zeta",  "eta",      "theta",  "vartheta",
        "iota",  "kappa",  "lambda", "mu",    "nu",      "xi",         "rho",   "sigma",    "tau",    "upsilon",
        "phi",   "varphi", "chi",    "psi",   "omega",   "Gamma",      "Delta", "Theta",    "Lambda", "Xi",
        "Pi",    "Sigma",  "Phi",    "Psi",   "Omega",   "ell",        "angle", "triangle", "hbar"};
    for (const std::string_view s : symbols)
      if (name == s) return make(Kind::symbol, "\\" + named(name, true)->text);
    throw Unreadable("command");
  }

  NodePtr rest_of_bars(std::string_view close) {
    const bool outer = std::exchange(in_bars_, true);
    NodePtr inside = sum();
    in_bars_ = outer;
    need(close);
    return make(Kind::function, "abs", {inside});
  }

  NodePtr closed(const std::string& name, std::string_view close) {
    const bool outer = std::exchange(in_bars_, false);
    NodePtr inside = sum();
    in_bars_ = outer;
    need(close);
    return make(Kind::function, name, {inside});
  }

  NodePtr angled() {
    std::vector<NodePtr> parts;
    for (const auto& group : groups()) parts.insert(parts.end(), group.begin(), group.end());
    need("\\rangle");
    return make(Kind::tuple, std::move(parts));
  }

  NodePtr many(const std::string& name) {
    need("(");
    std::vector<NodePtr> parts;
    for (const auto& group : groups()) parts.insert(parts.end(), group.begin(), group.end());
    need(")");
    return make(Kind::function, name, std::move(parts));
  }

  static NodePtr number_set(const std::string& name) {
    if (name != "R") throw Unreadable("number set");
    return interval(make(Kind::negate, {make(Kind::infinity)}), make(Kind::infinity), true, true);
  }

  // \text{5}, \text{(C)}, \text{east}
  NodePtr text_word() {
    const std::string inside = stripped(braced_text());
    if (!inside.empty() && inside.find_first_not_of("0123456789.") == std::string::npos)
      return MathsParser(inside, lenient_).parse();
    const std::string letters = letters_of(inside);
    if (letters.empty()) throw Unreadable("text");
    return named(letters, true);
  }

  NodePtr function(const std::string& name) {
    NodePtr base_of_log, power;
    skip();
    if (name == "log" && ahead("_")) {
      ++at_;
      base_of_log = ahead("{") ? group("{", "}") : single();
    }
    if (take("^")) power = exponent();
    NodePtr argument = function_argument();
    const bool inverse = power && power->kind == Kind::negate && power->parts[0]->kind == Kind::number &&
                         power->parts[0]->text == "1" && (name == "sin" || name == "cos" || name == "tan");
    NodePtr out;
    if (name == "log" || name == "lg")
      out = make(Kind::function, "log", {argument, base_of_log ? base_of_log : integer(10)});
    else
      out = make(Kind::function, inverse ? "arc" + name : name, {argument});
    return power && !inverse ? make(Kind::power, {out, power}) : out;
  }

  // "(x)" or "{x}" alone; else the factors up to the next operator or function: \sin 2x \cos x = sin(2x)·cos(x).
  NodePtr function_argument() {
    skip();
    if (ahead("(")) return bracketed();
    if (ahead("{")) return group("{", "}");
    std::vector<NodePtr> parts = {factor()};
    while (factor_ahead()) {
      const std::string name = command_ahead();
      if (name == "sin" || name == "cos" || name == "tan" || name == "cot" || name == "sec" || name == "csc" ||
          name == "ln" || name == "log" || name == "lg" || name == "exp" || ahead("("))
        break;
      parts.push_back(factor());
    }
    return parts.size() == 1 ? parts[0] : make(Kind::multiply, std::move(parts));
  }

  NodePtr matrix() {
    const std::string name = braced_text();
    if (name != "pmatrix" && name != "bmatrix" && name != "matrix") throw Unreadable("environment");
    const bool outer = std::exchange(in_bars_, false);
    std::vector<NodePtr> rows;
    std::vector<NodePtr> row;
    const auto end_row = [&] {
      if (!row.empty()) rows.push_back(make(Kind::tuple, std::exchange(row, {})));
    };
    for (;;) {
      skip();
      if (ahead("\\end")) break;
      row.push_back(sum());
      if (take("&")) continue;
      if (take("\\\\"))
        end_row();
      else if (command_ahead() != "end")
        throw Unreadable("matrix");
    }
    end_row();
    need("\\end");
    if (braced_text() != name || rows.empty()) throw Unreadable("matrix");
    in_bars_ = outer;
    return make(Kind::matrix, std::move(rows));
  }

  bool lenient_;
  int depth_ = 0;
};

}  // namespace rlalgo::maths::detail
