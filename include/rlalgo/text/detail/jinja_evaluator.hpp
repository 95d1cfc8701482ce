// Runs a parsed template.
//
// Scopes are Jinja's: a loop iteration, a macro call, a with, call, filter or generation block and a set block have
// their own names; if has not. What a loop sets does not leave its iteration; attributes of a namespace do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_ast.hpp>
#include <rlalgo/text/detail/jinja_filters.hpp>
#include <rlalgo/text/detail/jinja_globals.hpp>
#include <rlalgo/text/detail/jinja_operators.hpp>
#include <rlalgo/text/detail/jinja_scope.hpp>
#include <rlalgo/text/detail/jinja_tests.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

class Evaluator final : public Runtime {
 public:
  Evaluator(std::size_t step_limit, std::time_t now) : meter_(step_limit), now_(now) {}
  ~Evaluator() override {
    for (const std::shared_ptr<Namespace>& made : namespaces_) made->clear();  // ends reference cycles
  }
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  [[nodiscard]] std::string render(const std::vector<NodePtr>& body,
                                   std::vector<std::pair<std::string, Value>> variables) {
    root_.variables = std::move(variables);
    std::string out;
    run(body, root_, out);
    return out;
  }

  [[nodiscard]] const Node* at() const noexcept { return at_; }  // what ran last; null before anything did

  // --- Runtime
  void adopt(std::shared_ptr<Namespace> made) override { namespaces_.push_back(std::move(made)); }
  Value filter(const std::string& name, const Value& input, Arguments arguments) override {
    return Filters::apply(*this, name, input, arguments);
  }
  bool test(const std::string& name, const Value& input, Arguments arguments) override {
    return apply_test(*this, name, input, arguments);
  }
  Value call(const Value& callee, Arguments arguments) override {
    callee.require_defined();
    if (!callee.is_object()) fail("'" + callee.type_name() + "' object is not callable");
    return callee.object().call(*this, std::move(arguments));
  }

  Value attribute(const Value& of, const std::string& name) override {
    of.require_defined();
    if (name.starts_with("__"))
      return Value::undefined("access to attribute '" + name + "' of '" + of.type_name() + "' object is unsafe.");
    if (of.is_string()) {
      if (std::optional<Value> method = StringMethods::find(of, name)) return *std::move(method);
    } else if (of.is_dict() || of.is_sequence()) {
      if (std::optional<Value> method = container_method(of, name)) return *std::move(method);
      if (of.is_dict()) {
        if (const Value* found = of.dict().find(std::string_view(name))) return *found;
      }
    } else if (of.is_object()) {
      return of.object().attribute(name);
    }
    return Value::undefined((of.is_none() ? "'None'" : "'" + of.type_name() + " object'") + " has no attribute '" +
                            name + "'");
  }

  Value item(const Value& of, const Value& key) override {
    of.require_defined();
    if (key.is_integral() && (of.is_sequence() || of.is_string())) {
      const std::int64_t length = length_of(of), index = key.integer() < 0 ? key.integer() + length : key.integer();
      if (index >= 0 && index < length) {
        return of.is_string() ? Value(character_at(of.string(), static_cast<std::size_t>(index)))
                              : of.list()[static_cast<std::size_t>(index)];
      }
    } else if (of.is_dict()) {
      if (const Value* found = of.dict().find(key)) return *found;
    }
    if (key.is_string()) return attribute(of, key.string());
    return Value::undefined((of.is_none() ? "None" : of.type_name() + " object") + " has no element " + key.repr());
  }

 private:
  enum class Flow { on, next_iteration, leave_loop };
  static constexpr int depth_limit = 1000;       // nested evaluations, in macros of macros too
  static constexpr std::size_t kept_scope = 32;  // steps: a scope that stays until the rendering ends

  struct Deeper {
    explicit Deeper(Evaluator& e) : evaluator(e) {
      if (++evaluator.depth_ > depth_limit) fail("maximum recursion depth exceeded");
    }
    ~Deeper() { --evaluator.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    Evaluator& evaluator;
  };

  struct LoopEnd {
    LoopState& state;
    ~LoopEnd() { state.end(); }
  };

  // A scope that lives as long as this object, or, when a macro refers to it, as long as the rendering.
  class Inner {
   public:
    Inner(Evaluator& evaluator, Scope& parent) : evaluator_(evaluator), scope_(std::make_unique<Scope>()) {
      scope_->parent = &parent;
    }
    ~Inner() {
      if (scope_->captured) evaluator_.kept_.push_back(std::move(scope_));
    }
    Inner(const Inner&) = delete;
    Inner& operator=(const Inner&) = delete;
    [[nodiscard]] Scope& scope() { return *scope_; }

   private:
    Evaluator& evaluator_;
    std::unique_ptr<Scope> scope_;
  };

  class Macro : public Object {
   public:
    Macro(Evaluator& evaluator, const Node& node, Scope& scope) : evaluator_(evaluator), node_(node), scope_(scope) {
      scope.capture();
    }
    [[nodiscard]] std::string type_name() const override { return "Macro"; }
    [[nodiscard]] bool callable() const override { return true; }
    [[nodiscard]] Value attribute(const std::string& name) const override {
      return name == "name" ? Value(node_.name) : Object::attribute(name);
    }
    Value call(Runtime&, Arguments arguments) override { return evaluator_.call_macro(node_, scope_, arguments); }

   private:
    Evaluator& evaluator_;
    const Node& node_;
    Scope& scope_;
  };

  Value make_macro(const Node& node, Scope& scope) {
    charge(kept_scope);
    return Value(std::static_pointer_cast<Object>(std::make_shared<Macro>(*this, node, scope)));
  }

  Value call_macro(const Node& node, Scope& outer, const Arguments& arguments) {
    const Deeper deeper(*this);
    Inner inner(*this, outer);
    Scope& scope = inner.scope();
    const std::string shown = node.name.empty() ? "caller" : node.name;
    charge(node.parameters.size() * (1 + arguments.named.size() / 8));
    for (std::size_t i = 0; i < node.parameters.size(); ++i) {
      const Node::Parameter& parameter = node.parameters[i];
      if (const Value* given = arguments.find(i, parameter.name)) {
        scope.set(parameter.name, *given);
      } else if (parameter.otherwise) {
        scope.set(parameter.name, evaluate(*parameter.otherwise, scope));
      } else {
        scope.set(parameter.name, Value::undefined("parameter '" + parameter.name + "' was not provided"));
      }
    }
    if (arguments.positional.size() > node.parameters.size() && !node.uses_varargs) {
      fail("macro '" + shown + "' takes not more than " + std::to_string(node.parameters.size()) + " argument(s)");
    }
    const auto extra = static_cast<std::ptrdiff_t>(std::min(arguments.positional.size(), node.parameters.size()));
    if (node.uses_varargs) {
      scope.set("varargs", Value::tuple(List(arguments.positional.begin() + extra, arguments.positional.end())));
    }
    Dict others;
    bool has_caller = false;
    for (const auto& [name, value] : arguments.named) {
      const bool known = std::any_of(node.parameters.begin(), node.parameters.end(),
                                     [&, &key = name](const auto& p) { return p.name == key; });
      if (name == "caller" && node.uses_caller) {
        scope.set(name, value);
        has_caller = true;
      } else if (!known && node.uses_kwargs) {
        others.set(Value(name), value);
      } else if (!known) {
        fail("macro '" + shown + "' takes no keyword argument '" + name + "'");
      }
    }
    if (node.uses_kwargs) scope.set("kwargs", Value(std::move(others)));
    if (node.uses_caller && !has_caller) scope.set("caller", Value::undefined("No caller defined"));
    std::string out;
    run(node.bodies[0], scope, out);
    return out;
  }

  // --- statements
  Flow run(const std::vector<NodePtr>& body, Scope& scope, std::string& out) {
    const Deeper deeper(*this);
    for (const NodePtr& node : body) {
      const Flow flow = run(*node, scope, out);
      if (flow != Flow::on) return flow;
    }
    return Flow::on;
  }

  void write(std::string& out, std::string_view text) {
    charge_bytes(text.size());
    out += text;
  }

  Flow run(const Node& node, Scope& scope, std::string& out) {
    at_ = &node;
    switch (node.kind) {
      case NodeKind::data:
        write(out, node.name);
        return Flow::on;
      case NodeKind::print:
        for (const NodePtr& part : node.parts) write(out, evaluate(*part, scope).text());
        return Flow::on;
      case NodeKind::branches: {
        std::size_t i = 0;
        while (i < node.parts.size() && !evaluate(*node.parts[i], scope).truthy()) ++i;
        return i < node.bodies.size() ? run(node.bodies[i], scope, out) : Flow::on;
      }
      case NodeKind::loop:
        return loop(node, evaluate(*node.parts[1], scope), scope, out, 1);
      case NodeKind::set:
        assign(*node.parts[0], evaluate(*node.parts[1], scope), scope);
        return Flow::on;
      case NodeKind::set_block:
        assign(*node.parts[0], block(node, node.parts[1].get(), scope), scope);
        return Flow::on;
      case NodeKind::filter_block:
        write(out, block(node, node.parts[0].get(), scope).text());
        return Flow::on;
      case NodeKind::block:
        write(out, block(node, nullptr, scope).text());
        return Flow::on;
      case NodeKind::with: {
        Inner inner(*this, scope);
        for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
          assign(*node.parts[i], evaluate(*node.parts[i + 1], scope), inner.scope());
        }
        return run(node.bodies[0], inner.scope(), out);
      }
      case NodeKind::macro:
        scope.set(node.name, make_macro(node, scope));
        return Flow::on;
      case NodeKind::call_block: {
        const Node& call_node = *node.parts[0];
        const Value callee = evaluate(*call_node.parts[0], scope);
        Arguments given = arguments(call_node, scope);
        given.named.emplace_back("caller", make_macro(node, scope));
        write(out, call(callee, std::move(given)).text());
        return Flow::on;
      }
      case NodeKind::loop_break:
        return Flow::leave_loop;
      case NodeKind::loop_continue:
        return Flow::next_iteration;
      default:
        fail("an expression where a statement belongs");
    }
  }

  // The rendered body, through a chain of filters that ends in an empty place.
  Value block(const Node& node, const Node* filters, Scope& scope) {
    Inner inner(*this, scope);
    std::string text;
    run(node.bodies[0], inner.scope(), text);
    return filters == nullptr ? Value(std::move(text)) : filtered(*filters, Value(std::move(text)), inner.scope());
  }
  Value filtered(const Node& chain, Value input, Scope& scope) {
    if (chain.parts[0]) input = filtered(*chain.parts[0], std::move(input), scope);
    return filter(chain.name, input, arguments(chain, scope));
  }

  void assign(const Node& target, Value value, Scope& scope) {
    if (target.kind == NodeKind::name) {
      scope.set(target.name, std::move(value));
    } else if (target.kind == NodeKind::attribute) {
      auto* held = evaluate(*target.parts[0], scope).as<Namespace>();
      if (held == nullptr) fail("cannot assign attribute on non-namespace object");
      held->set(target.name, std::move(value));
    } else {
      value.require_defined();
      const auto items = iterate(value);
      if (items->size() < target.parts.size()) {
        fail("not enough values to unpack (expected " + std::to_string(target.parts.size()) + ", got " +
             std::to_string(items->size()) + ")");
      }
      if (items->size() > target.parts.size())
        fail("too many values to unpack (expected " + std::to_string(target.parts.size()) + ")");
      for (std::size_t i = 0; i < items->size(); ++i) assign(*target.parts[i], (*items)[i], scope);
    }
  }

  // depth: of recursion into the same loop.
  Flow loop(const Node& node, const Value& over, Scope& scope, std::string& out, int depth) {
    const Deeper deeper(*this);
    std::shared_ptr<const List> items = iterate(over).shared();
    if (node.parts[2]) {
      List kept;
      for (const Value& item : *items) {
        Inner inner(*this, scope);
        assign(*node.parts[0], item, inner.scope());
        if (evaluate(*node.parts[2], inner.scope()).truthy()) kept.push_back(item);
      }
      items = std::make_shared<const List>(std::move(kept));
    }
    const auto state = std::make_shared<LoopState>(Value(items), depth);
    if (node.recursive) {
      charge(kept_scope);
      scope.capture();
      state->recurse = [this, &node, &scope, depth](const Value& inner) {
        std::string text;
        loop(node, inner, scope, text, depth + 1);
        return Value(std::move(text));
      };
    }
    const LoopEnd end{*state};
    for (std::size_t i = 0; i < items->size(); ++i) {
      charge(1);
      state->move_to(static_cast<std::int64_t>(i));
      Inner inner(*this, scope);
      inner.scope().set("loop", Value(std::static_pointer_cast<Object>(state)));
      assign(*node.parts[0], (*items)[i], inner.scope());
      if (run(node.bodies[0], inner.scope(), out) == Flow::leave_loop) return Flow::on;
    }
    return items->empty() && node.bodies.size() > 1 ? run(node.bodies[1], scope, out) : Flow::on;
  }

  // --- expressions
  Arguments arguments(const Node& node, Scope& scope) {
    Arguments out;
    for (const NodePtr& argument : node.arguments) {
      if (argument->kind == NodeKind::spread) {
        const Items items = iterate(evaluate(*argument->parts[0], scope));
        charge(2 * items->size());
        for (const Value& item : items) out.positional.push_back(item);
      } else if (argument->kind == NodeKind::spread_named) {
        const Value mapping = evaluate(*argument->parts[0], scope);
        if (!mapping.is_dict()) fail("argument after ** must be a mapping, not " + mapping.type_name());
        charge(4 * mapping.dict().entries.size());
        for (const auto& [key, value] : mapping.dict().entries) out.named.emplace_back(key.text(), value);
      } else {
        out.positional.push_back(evaluate(*argument, scope));
      }
    }
    for (const auto& [name, argument] : node.named) out.named.emplace_back(name, evaluate(*argument, scope));
    return out;
  }

  List all(const std::vector<NodePtr>& parts, Scope& scope) {
    List out;
    for (const NodePtr& part : parts) out.push_back(evaluate(*part, scope));
    return out;
  }

  Value look_up(const std::string& name, const Scope& scope) const {
    if (const Value* found = scope.find(name)) return *found;
    if (std::optional<Value> global = find_global(name, now_)) return *std::move(global);
    return Value::undefined("'" + name + "' is undefined");
  }

  Value evaluate(const Node& node, Scope& scope) {
    const Deeper deeper(*this);
    charge(1);
    at_ = &node;
    const auto part = [&](std::size_t i) { return evaluate(*node.parts[i], scope); };
    switch (node.kind) {
      case NodeKind::literal:
        return node.value;
      case NodeKind::name:
        return look_up(node.name, scope);
      case NodeKind::list:
        return all(node.parts, scope);
      case NodeKind::tuple:
        return Value::tuple(all(node.parts, scope));
      case NodeKind::dict: {
        Dict dict;
        for (std::size_t i = 0; i + 1 < node.parts.size(); i += 2) {
          const Value key = part(i);
          if (key.is_list() || key.is_dict()) fail("unhashable type: '" + key.type_name() + "'");
          dict.set(key, part(i + 1));
        }
        return dict;
      }
      case NodeKind::attribute: {
        const Value of = part(0);
        at_ = &node;
        return attribute(of, node.name);
      }
      case NodeKind::item: {
        const Value of = part(0);
        const Node& key = *node.parts[1];
        if (key.kind != NodeKind::slice) return item(of, evaluate(key, scope));
        const auto bound = [&](std::size_t i) { return key.parts[i] ? evaluate(*key.parts[i], scope) : Value(); };
        charge(static_cast<std::size_t>(of.is_string()     ? of.string().size() / 16
                                        : of.is_sequence() ? of.list().size()
                                                           : 0));
        return Operators::slice(of, bound(0), bound(1), bound(2));
      }
      case NodeKind::call: {
        const Value callee = part(0);
        Arguments given = arguments(node, scope);
        at_ = &node;
        return call(callee, std::move(given));
      }
      case NodeKind::filter: {
        const Value input = part(0);
        const Arguments given = arguments(node, scope);
        at_ = &node;
        return filter(node.name, input, given);
      }
      case NodeKind::test: {
        const Value input = part(0);
        return test(node.name, input, arguments(node, scope));
      }
      case NodeKind::logical_not:
        return !part(0).truthy();
      case NodeKind::negative:
        return Operators::negate(part(0));
      case NodeKind::positive:
        return Operators::apply("+", 0, part(0));
      case NodeKind::binary: {
        Value left = part(0);
        if (node.name == "and") return left.truthy() ? part(1) : left;
        if (node.name == "or") return left.truthy() ? left : part(1);
        const Value right = part(1);
        at_ = &node;
        return Operators::apply(node.name, left, right);
      }
      case NodeKind::compare: {
        Value left = part(0);
        for (std::size_t i = 0; i < node.operators.size(); ++i) {
          Value right = part(i + 1);
          const std::string& op = node.operators[i];
          const bool holds = op == "in"       ? contains(right, left)
                             : op == "not in" ? !contains(right, left)
                                              : compare_values(left, op, right);
          if (!holds) return false;
          left = std::move(right);
        }
        return true;
      }
      case NodeKind::conditional:
        if (part(1).truthy()) return part(0);
        if (node.parts[2]) return part(2);
        return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
      default:
        fail("a statement where an expression belongs");
    }
  }

  Meter meter_;
  std::time_t now_;
  const Node* at_ = nullptr;
  int depth_ = 0;
  Scope root_;
  std::vector<std::unique_ptr<Scope>> kept_;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
};

}  // namespace rlalgo::text::detail
