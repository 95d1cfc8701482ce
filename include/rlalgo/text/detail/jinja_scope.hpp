// The names that a running template sees, and the variable `loop`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_methods.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string, Value>> variables;
  bool captured = false;  // a macro or recursive loop refers to it: keep it until the rendering ends

  void capture() {
    for (Scope* scope = this; scope != nullptr; scope = scope->parent) scope->captured = true;
  }

  [[nodiscard]] const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
      charge(scope->variables.size() / 16);
      for (const auto& [known, value] : scope->variables) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }
  void set(const std::string& name, Value value) {
    charge(variables.size() / 16);
    for (auto& [known, held] : variables) {
      if (known == name) {
        held = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

// The variable `loop`.
class LoopState : public Object, public std::enable_shared_from_this<LoopState> {
 public:
  LoopState(const Value& all, std::int64_t depth) : Object(all.height()), all_(all.shared_list()), depth_(depth) {}
  void move_to(std::int64_t index) { index_ = index; }
  void end() { last_.reset(); }  // which may refer to this loop

  std::function<Value(const Value&)> recurse;  // of a recursive loop: the text of a loop over other items

  [[nodiscard]] bool callable() const override { return true; }
  Value call(Runtime&, Arguments arguments) override {
    if (!recurse) fail("The loop must have the 'recursive' marker to be called recursively.");
    return recurse(arguments.get(0, "iterable"));
  }

  [[nodiscard]] std::string type_name() const override { return "LoopContext"; }
  [[nodiscard]] Value attribute(const std::string& name) const override {
    const auto length = static_cast<std::int64_t>(all_->size());
    const auto item = [&](std::int64_t at, const char* missing) {
      return at >= 0 && at < length ? (*all_)[static_cast<std::size_t>(at)] : Value::undefined(missing);
    };
    if (name == "index") return index_ + 1;
    if (name == "index0") return index_;
    if (name == "revindex") return length - index_;
    if (name == "revindex0") return length - index_ - 1;
    if (name == "first") return index_ == 0;
    if (name == "last") return index_ + 1 == length;
    if (name == "length") return length;
    if (name == "depth") return depth_;
    if (name == "depth0") return depth_ - 1;
    if (name == "previtem") return item(index_ - 1, "there is no previous item");
    if (name == "nextitem") return item(index_ + 1, "there is no next item");
    const auto self = std::const_pointer_cast<LoopState>(shared_from_this());
    if (name == "cycle") {
      return function(
          name,
          [self](Runtime&, const Arguments& a) {
            if (a.positional.empty()) fail("no items for cycling given");
            return a.positional[static_cast<std::size_t>(self->index_) % a.positional.size()];
          },
          height());
    }
    if (name == "changed") {
      return function(
          name,
          [self](Runtime&, const Arguments& a) -> Value {
            Value now = Value::tuple(a.positional);
            const bool changed = !self->last_ || !self->last_->equals(now);
            self->last_ = std::move(now);
            return changed;
          },
          height());
    }
    return Object::attribute(name);
  }

 private:
  std::shared_ptr<const List> all_;
  std::int64_t depth_, index_ = 0;
  std::optional<Value> last_;
};

}  // namespace rlalgo::text::detail
