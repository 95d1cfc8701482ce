// Tokens → expression trees: the expressions of Jinja2 that chat templates use.
//
// Precedence, loosest first: if-else · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary minus ·
// postfix (.name, [item], (call)) · filters and tests. As in Jinja2 3.1, a filter binds tighter than any operator
// except the postfix ones and a unary minus.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_ast.hpp>
#include <rlalgo/text/detail/jinja_lexer.hpp>

namespace rlalgo::text::detail {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(TemplateLexer(source).run()) {}

  static constexpr int tree_limit = 400;     // height of an expression's tree: a + b + c + … grows it by one each
  static constexpr int nesting_limit = 400;  // of blocks and unary operators; a parenthesis counts twice

  // --- tokens
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[nodiscard]] bool is(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_symbol(std::string_view s) const { return is(TokenKind::symbol) && now().text == s; }
  [[nodiscard]] bool is_name(std::string_view s) const { return is(TokenKind::name) && now().text == s; }
  bool accept_symbol(std::string_view s) { return is_symbol(s) && (take(), true); }
  bool accept_name(std::string_view s) { return is_name(s) && (take(), true); }

  [[noreturn]] void error(const std::string& message) const {
    throw TemplateSyntaxError{message, now().line, tag_ ? *tag_ : std::string()};
  }
  [[nodiscard, gnu::cold]] std::string shown() const {
    return is(TokenKind::end)                                     ? "end of template"
           : is(TokenKind::print_end) || is(TokenKind::block_end) ? "end of tag"
                                                                  : "'" + now().text + "'";
  }
  [[gnu::cold]] void expect_symbol(std::string_view s) {
    if (!accept_symbol(s)) error("expected '" + std::string(s) + "', got " + shown());
  }
  [[gnu::cold]] void expect_name(std::string_view s) {
    if (!accept_name(s)) error("expected '" + std::string(s) + "', got " + shown());
  }
  [[gnu::cold]] std::string expect_identifier() {
    if (!is(TokenKind::name)) error("expected a name, got " + shown());
    return take().text;
  }
  [[gnu::cold]] void expect(TokenKind kind, const char* what) {
    if (!is(kind)) error("expected " + std::string(what) + ", got " + shown());
    take();
  }

  // --- nodes
  template <class... Parts>
  [[gnu::cold]] NodePtr make(NodeKind kind, int line, std::string name = {}, Parts... parts) const {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    node->tag = tag_;
    node->name = std::move(name);
    (node->parts.push_back(std::move(parts)), ...);
    return finish(std::move(node));
  }
  [[gnu::cold]] NodePtr finish(NodePtr node) const {
    const auto below = [&](const NodePtr& part) {
      if (part) node->depth = std::max(node->depth, part->depth + 1);
    };
    for (const NodePtr& part : node->parts) below(part);
    for (const NodePtr& part : node->arguments) below(part);
    for (const auto& [name, part] : node->named) below(part);
    if (node->depth > tree_limit) error("an expression is nested too deeply");
    return node;
  }
  [[gnu::cold]] NodePtr literal(int line, Value value) const {
    NodePtr node = make(NodeKind::literal, line);
    node->value = std::move(value);
    return node;
  }

  struct Nesting {
    explicit Nesting(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > nesting_limit) parser_.error("the template is nested too deeply");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ExpressionParser& parser_;
  };

  // --- expressions
  // a, b, c as a tuple; one expression as itself.
  [[gnu::cold]] NodePtr tuple_expression(bool conditional = true) {
    const int line = now().line;
    std::vector<NodePtr> parts;
    bool tuple = false;
    while (true) {
      if (!parts.empty()) {
        if (!accept_symbol(",")) break;
        tuple = true;
      }
      if (is(TokenKind::print_end) || is(TokenKind::block_end) || is_symbol(")")) break;
      parts.push_back(conditional ? expression() : or_expression());
    }
    if (!tuple && parts.size() == 1) return std::move(parts[0]);
    if (!tuple) error("expected an expression, got " + shown());
    NodePtr node = make(NodeKind::tuple, line);
    node->parts = std::move(parts);
    return finish(std::move(node));
  }

  NodePtr expression() {
    const Nesting nesting(*this);
    NodePtr node = or_expression();
    while (is_name("if")) {
      const int line = take().line;
      NodePtr condition = or_expression();
      NodePtr otherwise = accept_name("else") ? expression() : nullptr;
      node = make(NodeKind::conditional, line, "", std::move(node), std::move(condition), std::move(otherwise));
    }
    return node;
  }

  NodePtr or_expression() {
    NodePtr node = and_expression();
    while (is_name("or")) {
      const int line = take().line;
      node = make(NodeKind::binary, line, "or", std::move(node), and_expression());
    }
    return node;
  }
  NodePtr and_expression() {
    NodePtr node = not_expression();
    while (is_name("and")) {
      const int line = take().line;
      node = make(NodeKind::binary, line, "and", std::move(node), not_expression());
    }
    return node;
  }
  NodePtr not_expression() {
    if (!is_name("not")) return comparison();
    const Nesting nesting(*this);
    const int line = take().line;
    return make(NodeKind::logical_not, line, "", not_expression());
  }

  NodePtr comparison() {
    const int line = now().line;
    NodePtr node = make(NodeKind::compare, line, "", sum());
    while (true) {
      std::string op;
      if (is(TokenKind::symbol) && (now().text == "==" || now().text == "!=" || now().text == "<" ||
                                    now().text == "<=" || now().text == ">" || now().text == ">=")) {
        op = take().text;
      } else if (accept_name("in")) {
        op = "in";
      } else if (is_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
        take(), take();
        op = "not in";
      } else {
        break;
      }
      node->operators.push_back(std::move(op));
      node->parts.push_back(sum());
    }
    if (node->operators.empty()) return std::move(node->parts[0]);
    return finish(std::move(node));
  }

  template <class Operand>
  [[gnu::cold]] NodePtr left_associative(std::initializer_list<std::string_view> operators, Operand operand) {
    NodePtr node = (this->*operand)();
    while (is(TokenKind::symbol) && std::find(operators.begin(), operators.end(), now().text) != operators.end()) {
      const Token op = take();
      node = make(NodeKind::binary, op.line, op.text, std::move(node), (this->*operand)());
    }
    return node;
  }
  NodePtr sum() { return left_associative({"+", "-"}, &ExpressionParser::concatenation); }
  NodePtr concatenation() { return left_associative({"~"}, &ExpressionParser::product); }
  NodePtr product() { return left_associative({"*", "/", "//", "%"}, &ExpressionParser::power); }
  NodePtr power() { return left_associative({"**"}, &ExpressionParser::filtered_unary); }
  NodePtr filtered_unary() { return unary(true); }

  [[gnu::cold]] NodePtr unary(bool with_filter) {
    const Nesting nesting(*this);
    const int line = now().line;
    NodePtr node;
    if (accept_symbol("-")) {
      node = make(NodeKind::negative, line, "", unary(false));
    } else if (accept_symbol("+")) {
      node = make(NodeKind::positive, line, "", unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filter ? filters_and_tests(std::move(node)) : std::move(node);
  }

  NodePtr primary() {
    const Token token = now();
    switch (token.kind) {
      case TokenKind::name:
        take();
        if (token.text == "true" || token.text == "True") return literal(token.line, true);
        if (token.text == "false" || token.text == "False") return literal(token.line, false);
        if (token.text == "none" || token.text == "None") return literal(token.line, Value());
        uses_varargs_ |= token.text == "varargs";
        uses_kwargs_ |= token.text == "kwargs";
        uses_caller_ |= token.text == "caller";
        return make(NodeKind::name, token.line, token.text);
      case TokenKind::string: {
        std::string text;
        while (is(TokenKind::string)) text += take().text;  // adjacent strings are one
        return literal(token.line, std::move(text));
      }
      case TokenKind::integer:
        take();
        return literal(token.line, integer(token.text));
      case TokenKind::real: {
        take();
        double value = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
        return literal(token.line, value);
      }
      default:
        break;
    }
    if (accept_symbol("(")) {
      if (accept_symbol(")")) return make(NodeKind::tuple, token.line);
      NodePtr node = tuple_expression();
      expect_symbol(")");
      return node;
    }
    if (is_symbol("[")) return list(token.line);
    if (is_symbol("{")) return dict(token.line);
    error("expected an expression, got " + shown());
  }

  [[nodiscard, gnu::cold]] Value integer(std::string text) const {
    int base = 10;
    if (text.size() > 2 && text[0] == '0' && std::isalpha(static_cast<unsigned char>(text[1])) != 0) {
      base = text[1] == 'x' || text[1] == 'X' ? 16 : text[1] == 'o' || text[1] == 'O' ? 8 : 2;
      text.erase(0, 2);
      std::erase(text, '_');
    }
    std::int64_t value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (status != std::errc() || end != text.data() + text.size()) error("'" + text + "' is no integer of 64 bits");
    return value;
  }

  NodePtr list(int line) {
    NodePtr node = make(NodeKind::list, line);
    expect_symbol("[");
    while (!accept_symbol("]")) {
      if (!node->parts.empty()) expect_symbol(",");
      if (accept_symbol("]")) break;
      node->parts.push_back(expression());
    }
    return finish(std::move(node));
  }
  NodePtr dict(int line) {
    NodePtr node = make(NodeKind::dict, line);
    expect_symbol("{");
    while (!accept_symbol("}")) {
      if (!node->parts.empty()) expect_symbol(",");
      if (accept_symbol("}")) break;
      node->parts.push_back(expression());
      expect_symbol(":");
      node->parts.push_back(expression());
    }
    return finish(std::move(node));
  }

  [[gnu::cold]] NodePtr postfix(NodePtr node) {
    while (true) {
      const int line = now().line;
      if (accept_symbol(".")) {
        if (is(TokenKind::integer)) {
          node = make(NodeKind::item, line, "", std::move(node), literal(line, integer(take().text)));
        } else {
          node = make(NodeKind::attribute, line, expect_identifier(), std::move(node));
        }
      } else if (is_symbol("[")) {
        node = subscript(line, std::move(node));
      } else if (is_symbol("(")) {
        node = call(line, std::move(node));
      } else {
        return node;
      }
    }
  }

  [[gnu::cold]] NodePtr subscript(int line, NodePtr node) {
    std::vector<NodePtr> keys;
    expect_symbol("[");
    do {
      const int key_line = now().line;
      NodePtr bounds[3];
      int colons = 0;
      while (!is_symbol(",") && !is_symbol("]")) {
        if (accept_symbol(":")) {
          if (++colons > 2) error("a slice has at most three parts");
        } else if (bounds[colons]) {
          error("expected ',' or ']', got " + shown());
        } else {
          bounds[colons] = expression();
        }
      }
      if (colons == 0 && !bounds[0]) error("expected an expression, got " + shown());
      keys.push_back(colons == 0 ? std::move(bounds[0])
                                 : make(NodeKind::slice, key_line, "", std::move(bounds[0]), std::move(bounds[1]),
                                        std::move(bounds[2])));
    } while (accept_symbol(","));
    expect_symbol("]");
    if (keys.size() == 1) return make(NodeKind::item, line, "", std::move(node), std::move(keys[0]));
    NodePtr tuple = make(NodeKind::tuple, line);
    tuple->parts = std::move(keys);
    return make(NodeKind::item, line, "", std::move(node), finish(std::move(tuple)));
  }

  [[gnu::cold]] NodePtr call(int line, NodePtr callee) {
    NodePtr node = make(NodeKind::call, line, "", std::move(callee));
    arguments(*node);
    return finish(std::move(node));
  }

  void arguments(Node& node) {
    expect_symbol("(");
    bool first = true;
    while (!accept_symbol(")")) {
      if (!std::exchange(first, false)) {
        expect_symbol(",");
        if (accept_symbol(")")) break;
      }
      const int line = now().line;
      if (accept_symbol("**")) {
        node.arguments.push_back(make(NodeKind::spread_named, line, "", expression()));
      } else if (accept_symbol("*")) {
        node.arguments.push_back(make(NodeKind::spread, line, "", expression()));
      } else if (is(TokenKind::name) && ahead().kind == TokenKind::symbol && ahead().text == "=") {
        std::string name = take().text;
        take();
        node.named.emplace_back(std::move(name), expression());
      } else {
        if (!node.named.empty()) error("invalid syntax for function call expression");
        node.arguments.push_back(expression());
      }
    }
  }

  std::string dotted_name() {
    std::string name = expect_identifier();
    while (accept_symbol(".")) name.append(1, '.').append(expect_identifier());
    return name;
  }

  // first: the chain begins with a filter name, not with "|".
  [[gnu::cold]] NodePtr filter_chain(NodePtr node, bool first) {
    while (first || is_symbol("|")) {
      const int line = now().line;
      if (!std::exchange(first, false)) take();
      NodePtr filter = make(NodeKind::filter, line, dotted_name(), std::move(node));
      if (is_symbol("(")) arguments(*filter);
      node = finish(std::move(filter));
    }
    return node;
  }

  [[gnu::cold]] NodePtr filters_and_tests(NodePtr node) {
    while (true) {
      if (is_symbol("|")) {
        node = filter_chain(std::move(node), false);
      } else if (is_name("is")) {
        node = test(std::move(node));
      } else if (is_symbol("(")) {
        node = call(now().line, std::move(node));
      } else {
        return node;
      }
    }
  }

  NodePtr test(NodePtr node) {
    const int line = take().line;
    const bool negated = accept_name("not");
    NodePtr test = make(NodeKind::test, line, dotted_name(), std::move(node));
    const bool word = is(TokenKind::name) && now().text != "else" && now().text != "or" && now().text != "and";
    if (is_symbol("(")) {
      arguments(*test);
    } else if (word || is(TokenKind::string) || is(TokenKind::integer) || is(TokenKind::real) || is_symbol("[") ||
               is_symbol("{")) {
      if (is_name("is")) error("You cannot chain multiple tests with is");
      // What follows a test name is its argument, except the words that continue a statement.
      if (!is_name("if") && !is_name("in") && !is_name("not")) test->arguments.push_back(postfix(primary()));
    }
    test = finish(std::move(test));
    return negated ? make(NodeKind::logical_not, line, "", std::move(test)) : std::move(test);
  }

  std::vector<Token> tokens_;
  std::shared_ptr<const std::string> tag_;  // source of the tag that is being parsed
  std::size_t at_ = 0;
  int depth_ = 0;
  bool uses_varargs_ = false, uses_kwargs_ = false, uses_caller_ = false;  // seen since the innermost macro began
};

}  // namespace rlalgo::text::detail
