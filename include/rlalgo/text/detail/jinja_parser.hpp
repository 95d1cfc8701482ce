// Tokens → syntax tree: the expressions and statements of Jinja2 that chat templates use.
//
// Precedence, loosest first: if-else · or · and · not · comparisons, in · + - · ~ · * / // % · ** · unary minus ·
// postfix (.name, [item], (call)) · filters and tests. As in Jinja2 3.1, a filter binds tighter than any operator
// except the postfix ones and a unary minus.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_ast.hpp>
#include <rlalgo/text/detail/jinja_lexer.hpp>

namespace rlalgo::text::detail {

class TemplateParser {
 public:
  explicit TemplateParser(std::string_view source) : tokens_(TemplateLexer(source).run()) {}

  [[nodiscard]] std::vector<NodePtr> run() {
    std::vector<NodePtr> body = statements({});
    return body;
  }

 private:
  static constexpr int tree_limit = 400;     // height of an expression's tree: a + b + c + … grows it by one each
  static constexpr int nesting_limit = 200;  // of parentheses and blocks

  // --- tokens
  [[nodiscard]] const Token& now() const { return tokens_[at_]; }
  [[nodiscard]] const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  [[nodiscard]] bool is(TokenKind kind) const { return now().kind == kind; }
  [[nodiscard]] bool is_symbol(std::string_view s) const { return is(TokenKind::symbol) && now().text == s; }
  [[nodiscard]] bool is_name(std::string_view s) const { return is(TokenKind::name) && now().text == s; }
  bool accept_symbol(std::string_view s) { return is_symbol(s) && (take(), true); }
  bool accept_name(std::string_view s) { return is_name(s) && (take(), true); }

  [[noreturn]] void error(const std::string& message) const { throw TemplateSyntaxError{message, now().line}; }
  [[nodiscard]] std::string shown() const {
    return is(TokenKind::end)                                     ? "end of template"
           : is(TokenKind::print_end) || is(TokenKind::block_end) ? "end of tag"
                                                                  : "'" + now().text + "'";
  }
  void expect_symbol(std::string_view s) {
    if (!accept_symbol(s)) error("expected '" + std::string(s) + "', got " + shown());
  }
  void expect_name(std::string_view s) {
    if (!accept_name(s)) error("expected '" + std::string(s) + "', got " + shown());
  }
  std::string expect_identifier() {
    if (!is(TokenKind::name)) error("expected a name, got " + shown());
    return take().text;
  }
  void expect(TokenKind kind, const char* what) {
    if (!is(kind)) error("expected " + std::string(what) + ", got " + shown());
    take();
  }

  // --- nodes
  template <class... Parts>
  NodePtr make(NodeKind kind, int line, std::string name = {}, Parts... parts) const {
    auto node = std::make_unique<Node>();
    node->kind = kind;
    node->line = line;
    node->name = std::move(name);
    (node->parts.push_back(std::move(parts)), ...);
    return finish(std::move(node));
  }
  NodePtr finish(NodePtr node) const {
    const auto below = [&](const NodePtr& part) {
      if (part) node->depth = std::max(node->depth, part->depth + 1);
    };
    for (const NodePtr& part : node->parts) below(part);
    for (const NodePtr& part : node->arguments) below(part);
    for (const auto& [name, part] : node->named) below(part);
    if (node->depth > tree_limit) error("an expression is nested too deeply");
    return node;
  }
  NodePtr literal(int line, Value value) const {
    NodePtr node = make(NodeKind::literal, line);
    node->value = std::move(value);
    return node;
  }

  struct Nesting {
    explicit Nesting(TemplateParser& parser) : parser_(parser) {
      if (++parser_.depth_ > nesting_limit) parser_.error("the template is nested too deeply");
    }
    ~Nesting() { --parser_.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    TemplateParser& parser_;
  };

  // --- statements
  // Parses until a block tag with one of these names; leaves the position behind the name. Empty: until the end.
  std::vector<NodePtr> statements(std::initializer_list<std::string_view> ends, std::string* found = nullptr) {
    const Nesting nesting(*this);
    std::vector<NodePtr> body;
    while (!is(TokenKind::end)) {
      if (is(TokenKind::data)) {
        Token token = take();
        body.push_back(make(NodeKind::data, token.line, std::move(token.text)));
      } else if (is(TokenKind::print_begin)) {
        const int line = take().line;
        body.push_back(make(NodeKind::print, line, "", tuple_expression()));
        expect(TokenKind::print_end, "end of print statement");
      } else {
        take();  // block_begin
        if (!is(TokenKind::name)) error("tag name expected, got " + shown());
        for (const std::string_view end : ends) {
          if (!is_name(end)) continue;
          take();
          if (found != nullptr) *found = end;
          return body;
        }
        body.push_back(statement(ends));
      }
    }
    if (ends.size() != 0) {
      error("unexpected end of template: the block opened last needs '" + std::string(*(ends.end() - 1)) + "'");
    }
    return body;
  }

  void end_block() { expect(TokenKind::block_end, "end of statement block"); }

  NodePtr statement(std::initializer_list<std::string_view> ends) {
    const int line = now().line;
    if (accept_name("if")) return if_statement(line);
    if (accept_name("for")) return for_statement(line);
    if (accept_name("set")) return set_statement(line);
    if (accept_name("macro")) {
      NodePtr node = make(NodeKind::macro, line, expect_identifier());
      expect_symbol("(");
      parameters(*node);
      return with_body(std::move(node), "endmacro");
    }
    if (accept_name("call")) {
      NodePtr node = make(NodeKind::call_block, line);
      if (accept_symbol("(")) parameters(*node);
      node->parts.push_back(expression());
      if (node->parts[0]->kind != NodeKind::call) error("expected a call");
      return with_body(std::move(node), "endcall");
    }
    if (accept_name("filter")) {
      NodePtr node = make(NodeKind::filter_block, line, "", filter_chain(nullptr, true));
      return with_body(std::move(node), "endfilter");
    }
    if (accept_name("with")) {
      NodePtr node = make(NodeKind::with, line);
      while (!is(TokenKind::block_end)) {
        if (!node->parts.empty()) expect_symbol(",");
        node->parts.push_back(target(false));
        expect_symbol("=");
        node->parts.push_back(expression());
      }
      return with_body(std::move(node), "endwith");
    }
    if (accept_name("generation")) return with_body(make(NodeKind::block, line), "endgeneration");
    if (accept_name("break") || accept_name("continue")) {
      NodePtr node = make(tokens_[at_ - 1].text == "break" ? NodeKind::loop_break : NodeKind::loop_continue, line);
      if (loops_ == 0) error("'" + tokens_[at_ - 1].text + "' outside of a loop");
      end_block();
      return node;
    }
    std::string wanted;
    for (const std::string_view end : ends) wanted += (wanted.empty() ? "" : ", ") + std::string(end);
    for (const std::string_view tag :
         {"include", "import", "from", "extends", "block", "autoescape", "do", "trans", "print"}) {
      if (is_name(tag)) error("the tag '" + std::string(tag) + "' is not supported in chat templates");
    }
    error("unknown tag '" + now().text + "'" + (wanted.empty() ? "" : "; open here: " + wanted));
  }

  NodePtr with_body(NodePtr node, std::string_view end) {
    end_block();
    const int loops =
        std::exchange(loops_, node->kind == NodeKind::with || node->kind == NodeKind::filter_block ? loops_ : 0);
    node->bodies.push_back(statements({end}));
    loops_ = loops;
    end_block();
    return node;
  }

  NodePtr if_statement(int line) {
    NodePtr node = make(NodeKind::branches, line);
    std::string end = "elif";
    while (end == "elif") {
      node->parts.push_back(tuple_expression());
      end_block();
      node->bodies.push_back(statements({"elif", "else", "endif"}, &end));
    }
    if (end == "else") {
      end_block();
      node->bodies.push_back(statements({"endif"}));
    }
    end_block();
    return node;
  }

  NodePtr for_statement(int line) {
    NodePtr node = make(NodeKind::loop, line);
    node->parts.push_back(target(true));
    expect_name("in");
    node->parts.push_back(tuple_expression(false));
    node->parts.push_back(accept_name("if") ? expression() : nullptr);
    if (is_name("recursive")) error("recursive loops are not supported in chat templates");
    end_block();
    std::string end;
    ++loops_;
    node->bodies.push_back(statements({"else", "endfor"}, &end));
    --loops_;
    if (end == "else") {
      end_block();
      node->bodies.push_back(statements({"endfor"}));
    }
    end_block();
    return node;
  }

  NodePtr set_statement(int line) {
    NodePtr to = target(true, true);
    if (accept_symbol("=")) {
      NodePtr node = make(NodeKind::set, line, "", std::move(to), tuple_expression());
      end_block();
      return node;
    }
    NodePtr filters = is_symbol("|") ? filter_chain(nullptr, false) : nullptr;
    return with_body(make(NodeKind::set_block, line, "", std::move(to), std::move(filters)), "endset");
  }

  // What is assigned to: a name, names to unpack into (nested in parentheses), or, in set, namespace.attribute.
  NodePtr target(bool several, bool attribute = false) {
    const Nesting nesting(*this);
    const int line = now().line;
    std::vector<NodePtr> targets;
    bool tuple = false;
    while (targets.empty() || (tuple && (is(TokenKind::name) || is_symbol("(")) && !is_name("in"))) {
      if (several && accept_symbol("(")) {
        targets.push_back(target(true));
        expect_symbol(")");
      } else {
        const int name_line = now().line;
        std::string name = expect_identifier();
        if (constant(name)) error("cannot assign to '" + name + "'");
        NodePtr node = make(NodeKind::name, name_line, std::move(name));
        if (attribute && targets.empty() && accept_symbol(".")) {
          return make(NodeKind::attribute, name_line, expect_identifier(), std::move(node));
        }
        targets.push_back(std::move(node));
      }
      if (!several || !accept_symbol(",")) break;
      tuple = true;
    }
    if (!tuple) return std::move(targets[0]);
    NodePtr node = make(NodeKind::tuple, line);
    node->parts = std::move(targets);
    return node;
  }
  static bool constant(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
  }

  void parameters(Node& node) {
    while (!accept_symbol(")")) {
      if (!node.parameters.empty()) expect_symbol(",");
      std::string name = expect_identifier();
      NodePtr otherwise = accept_symbol("=") ? expression() : nullptr;
      if (!otherwise && !node.parameters.empty() && node.parameters.back().otherwise)
        error("non-default argument follows default argument");
      node.parameters.push_back({std::move(name), std::move(otherwise)});
    }
  }

  // --- expressions
  // a, b, c as a tuple; one expression as itself.
  NodePtr tuple_expression(bool conditional = true) {
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
  NodePtr left_associative(std::initializer_list<std::string_view> operators, Operand operand) {
    NodePtr node = (this->*operand)();
    while (is(TokenKind::symbol) && std::find(operators.begin(), operators.end(), now().text) != operators.end()) {
      const Token op = take();
      node = make(NodeKind::binary, op.line, op.text, std::move(node), (this->*operand)());
    }
    return node;
  }
  NodePtr sum() { return left_associative({"+", "-"}, &TemplateParser::concatenation); }
  NodePtr concatenation() { return left_associative({"~"}, &TemplateParser::product); }
  NodePtr product() { return left_associative({"*", "/", "//", "%"}, &TemplateParser::power); }
  NodePtr power() { return left_associative({"**"}, &TemplateParser::filtered_unary); }
  NodePtr filtered_unary() { return unary(true); }

  NodePtr unary(bool with_filter) {
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

  [[nodiscard]] Value integer(std::string text) const {
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

  NodePtr postfix(NodePtr node) {
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

  NodePtr subscript(int line, NodePtr node) {
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

  NodePtr call(int line, NodePtr callee) {
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
    while (accept_symbol(".")) name += "." + expect_identifier();
    return name;
  }

  // first: the chain begins with a filter name, not with "|".
  NodePtr filter_chain(NodePtr node, bool first) {
    while (first || is_symbol("|")) {
      const int line = now().line;
      if (!std::exchange(first, false)) take();
      NodePtr filter = make(NodeKind::filter, line, dotted_name(), std::move(node));
      if (is_symbol("(")) arguments(*filter);
      node = finish(std::move(filter));
    }
    return node;
  }

  NodePtr filters_and_tests(NodePtr node) {
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
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // open loops around the statement
};

}  // namespace rlalgo::text::detail
