// Tokens → syntax tree: the statements of Jinja2 that chat templates use.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_ast.hpp>
#include <rlalgo/text/detail/jinja_expression_parser.hpp>

namespace rlalgo::text::detail {

class TemplateParser : ExpressionParser {
 public:
  explicit TemplateParser(std::string_view source) : ExpressionParser(source) {}

  [[nodiscard]] std::vector<NodePtr> run() { return statements({}); }

 private:
  // Parses until a block tag with one of these names; leaves the position behind the name. Empty: until the end.
  [[gnu::cold]] std::vector<NodePtr> statements(std::initializer_list<std::string_view> ends,
                                                std::string* found = nullptr) {
    const Nesting nesting(*this);
    std::vector<NodePtr> body;
    while (!is(TokenKind::end)) {
      if (is(TokenKind::data)) {
        Token token = take();
        body.push_back(make(NodeKind::data, token.line, std::move(token.text)));
      } else if (is(TokenKind::print_begin)) {
        const int line = enter_tag();
        body.push_back(make(NodeKind::print, line, "", tuple_expression()));
        expect(TokenKind::print_end, "end of print statement");
      } else {
        enter_tag();
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

  // Takes the beginning of a tag; its line.
  int enter_tag() {
    Token begin = take();
    tag_ = std::make_shared<const std::string>(std::move(begin.text));
    return begin.line;
  }

  void end_block() { expect(TokenKind::block_end, "end of statement block"); }

  [[gnu::cold]] NodePtr statement(std::initializer_list<std::string_view> ends) {
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
    if (accept_name("print")) {
      NodePtr node = make(NodeKind::print, line);
      while (!is(TokenKind::block_end)) {
        if (!node->parts.empty()) expect_symbol(",");
        node->parts.push_back(expression());
      }
      end_block();
      return node;
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
    for (const std::string_view tag : {"include", "import", "from", "extends", "block", "autoescape", "do", "trans"}) {
      if (is_name(tag)) error("the tag '" + std::string(tag) + "' is not supported in chat templates");
    }
    error("unknown tag '" + now().text + "'" + (wanted.empty() ? "" : "; open here: " + wanted));
  }

  [[gnu::cold]] NodePtr with_body(NodePtr node, std::string_view end) {
    end_block();
    const bool is_macro = node->kind == NodeKind::macro || node->kind == NodeKind::call_block;
    const int loops = std::exchange(loops_, node->kind == NodeKind::with ? loops_ : 0);
    const bool varargs = std::exchange(uses_varargs_, uses_varargs_ && !is_macro);
    const bool kwargs = std::exchange(uses_kwargs_, uses_kwargs_ && !is_macro);
    const bool caller = std::exchange(uses_caller_, uses_caller_ && !is_macro);
    node->bodies.push_back(statements({end}));
    node->uses_varargs = uses_varargs_;
    node->uses_kwargs = uses_kwargs_;
    node->uses_caller = uses_caller_;
    loops_ = loops;
    uses_varargs_ |= varargs;
    uses_kwargs_ |= kwargs;
    uses_caller_ |= caller;
    end_block();
    return node;
  }

  [[gnu::cold]] NodePtr if_statement(int line) {
    NodePtr node = make(NodeKind::branches, line);
    std::string end = "elif";
    while (end == "elif") {
      node->parts.push_back(tuple_expression(false));
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

  [[gnu::cold]] NodePtr for_statement(int line) {
    NodePtr node = make(NodeKind::loop, line);
    node->parts.push_back(target(true));
    expect_name("in");
    node->parts.push_back(tuple_expression(false));
    node->parts.push_back(accept_name("if") ? expression() : nullptr);
    node->recursive = accept_name("recursive");
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

  [[gnu::cold]] NodePtr set_statement(int line) {
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
  [[gnu::cold]] NodePtr target(bool several, bool attribute = false) {
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
  [[gnu::cold]] static bool constant(std::string_view name) {
    return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" || name == "None";
  }

  [[gnu::cold]] void parameters(Node& node) {
    while (!accept_symbol(")")) {
      if (!node.parameters.empty()) expect_symbol(",");
      std::string name = expect_identifier();
      NodePtr otherwise = accept_symbol("=") ? expression() : nullptr;
      if (!otherwise && !node.parameters.empty() && node.parameters.back().otherwise)
        error("non-default argument follows default argument");
      node.parameters.push_back({std::move(name), std::move(otherwise)});
    }
  }

  int loops_ = 0;  // open loops around the statement
};

}  // namespace rlalgo::text::detail
