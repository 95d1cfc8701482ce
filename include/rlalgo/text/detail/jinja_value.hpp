// The values of chat templates: Python's None, bool, int, float, str, list, tuple, dict, Jinja's undefined, and objects
// with behavior (namespaces, macros, loops, methods, generators).
//
// Containers are immutable and shared, as in Jinja's immutable sandbox; only a namespace's attributes change.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_meter.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

class Value;
using List = std::vector<Value>;
struct Dict;
struct Arguments;
class Runtime;
class Namespace;

// A value with behavior of its own.
class Object {
 public:
  virtual ~Object() = default;
  Object() = default;
  explicit Object(int height) : height_(height) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  [[nodiscard]] virtual std::string type_name() const = 0;
  [[nodiscard]] virtual std::string text() const { return "<" + type_name() + ">"; }
  [[nodiscard]] virtual bool truthy() const { return true; }
  [[nodiscard]] virtual bool callable() const { return false; }
  virtual Value call(Runtime& runtime, Arguments arguments);
  // The attribute, or undefined.
  [[nodiscard]] virtual Value attribute(const std::string& name) const;
  // The items to iterate over; nothing if not iterable. A generator gives them once.
  [[nodiscard]] virtual std::shared_ptr<const List> items() { return nullptr; }
  // The length; negative if it has none.
  [[nodiscard]] virtual std::int64_t length() const { return -1; }
  // How deeply the values inside are nested.
  [[nodiscard]] int height() const noexcept { return height_; }

 private:
  int height_ = 0;
};

// Containers know how deeply they are nested: beyond height_limit none is made, so that printing, comparing and
// destroying them, which recurse, cannot exhaust the stack.
class Value {
 public:
  static constexpr int height_limit = 500;

  Value() = default;
  Value(bool v) : kind_(Kind::boolean) { plain_.integer = v ? 1 : 0; }
  Value(std::int64_t v) : kind_(Kind::integer) { plain_.integer = v; }
  Value(int v) : Value(static_cast<std::int64_t>(v)) {}
  Value(double v) : kind_(Kind::real) { plain_.real = v; }
  Value(std::string v);
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(List v);
  Value(std::shared_ptr<const List> v);
  Value(Dict v);
  Value(std::shared_ptr<Object> v);
  // Out of line: there are thousands of these.
  [[gnu::noinline]] Value(const Value&) = default;
  [[gnu::noinline]] Value(Value&&) noexcept = default;
  [[gnu::noinline]] Value& operator=(const Value&) = default;
  [[gnu::noinline]] Value& operator=(Value&&) noexcept = default;
  [[gnu::noinline]] ~Value() = default;

  // Text that is HTML already (Markup), as the filters safe and escape give it: adding plain text escapes that.
  static Value markup(std::string text) {
    Value value(std::move(text));
    value.plain_.integer = 1;
    return value;
  }
  // message: what to say when it is used.
  static Value undefined(std::string message);
  static Value tuple(List items);

  [[nodiscard]] bool is_undefined() const noexcept { return kind_ == Kind::undefined; }
  [[nodiscard]] bool is_none() const noexcept { return kind_ == Kind::none; }
  [[nodiscard]] bool is_bool() const noexcept { return kind_ == Kind::boolean; }
  [[nodiscard]] bool is_int() const noexcept { return kind_ == Kind::integer; }
  [[nodiscard]] bool is_float() const noexcept { return kind_ == Kind::real; }
  [[nodiscard]] bool is_integral() const noexcept { return is_int() || is_bool(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integral() || is_float(); }
  [[nodiscard]] bool is_string() const noexcept { return kind_ == Kind::string; }
  [[nodiscard]] bool is_markup() const noexcept { return is_string() && plain_.integer != 0; }
  [[nodiscard]] bool is_list() const noexcept { return kind_ == Kind::list; }
  [[nodiscard]] bool is_tuple() const noexcept { return kind_ == Kind::tuple; }
  [[nodiscard]] bool is_sequence() const noexcept { return is_list() || is_tuple(); }
  [[nodiscard]] bool is_dict() const noexcept { return kind_ == Kind::dict; }
  [[nodiscard]] bool is_object() const noexcept { return kind_ == Kind::object; }

  // Each expects the kind it names.
  [[nodiscard]] const std::string& string() const { return *static_cast<const std::string*>(held_.get()); }
  [[nodiscard]] const List& list() const { return *static_cast<const List*>(held_.get()); }
  [[nodiscard]] std::shared_ptr<const List> shared_list() const { return std::static_pointer_cast<const List>(held_); }
  [[nodiscard]] const Dict& dict() const { return *static_cast<const Dict*>(held_.get()); }
  [[nodiscard]] Object& object() const { return *static_cast<Object*>(const_cast<void*>(held_.get())); }
  template <class T>
  [[nodiscard]] T* as() const {
    return is_object() ? dynamic_cast<T*>(&object()) : nullptr;
  }
  [[nodiscard]] std::int64_t integer() const { return plain_.integer; }
  [[nodiscard]] double real() const { return is_float() ? plain_.real : static_cast<double>(plain_.integer); }
  [[nodiscard]] bool boolean() const { return plain_.integer != 0; }
  [[nodiscard]] const std::string& undefined_message() const { return *static_cast<const std::string*>(held_.get()); }
  [[nodiscard]] int height() const noexcept { return height_; }
  // Fails with the undefined value's own message.
  void require_defined() const {
    if (is_undefined()) fail(undefined_message());
  }

  [[nodiscard]] std::string type_name() const;  // Python's name: 'str', 'int', 'NoneType' …
  [[nodiscard]] bool truthy() const;
  [[nodiscard]] std::string text() const;  // str()
  [[nodiscard]] std::string repr() const;

  [[nodiscard]] bool same_object(const Value& other) const {  // Python's `is`
    if (kind_ != other.kind_) return false;
    return is_list() || is_dict() || is_object() ? held_ == other.held_ : equals(other);
  }
  [[nodiscard]] bool equals(const Value& other) const;

 private:
  enum class Kind : std::uint8_t { undefined, none, boolean, integer, real, string, list, tuple, dict, object };

  Value(Kind kind, std::shared_ptr<const void> held) : kind_(kind), held_(std::move(held)) {}
  void measure(const List& items);
  void set_height(int below) {
    height_ = below + 1;
    if (height_ > height_limit) fail("a value is nested too deeply");
  }

  Kind kind_ = Kind::none;
  int height_ = 0;  // 0: no container
  union {
    std::int64_t integer;
    double real;
  } plain_{0};
  std::shared_ptr<const void> held_;  // string, list, tuple, dict, object; the message of undefined
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  [[nodiscard]] const Value* find(const Value& key) const {
    charge(entries.size() / 8);
    for (const auto& [name, value] : entries) {
      if (name.equals(key)) return &value;
    }
    return nullptr;
  }
  [[nodiscard]] const Value* find(std::string_view key) const {
    charge(entries.size() / 8);
    for (const auto& [name, value] : entries) {
      if (name.is_string() && name.string() == key) return &value;
    }
    return nullptr;
  }
  void set(const Value& key, Value value) {
    charge(entries.size() / 8 + 4);
    for (auto& [name, held] : entries) {
      if (name.equals(key)) {
        held = std::move(value);
        return;
      }
    }
    entries.emplace_back(key, std::move(value));
  }
};

inline void Value::measure(const List& items) {
  charge(items.size() * sizeof(Value) / 16 + 1);
  int below = 0;
  for (const Value& item : items) below = std::max(below, item.height_);
  set_height(below);
}
inline Value::Value(std::string v) : kind_(Kind::string) {
  charge(v.size() / 8);
  held_ = std::make_shared<const std::string>(std::move(v));
}
inline Value::Value(List v) : kind_(Kind::list) {
  measure(v);
  held_ = std::make_shared<const List>(std::move(v));
}
inline Value::Value(std::shared_ptr<const List> v) : kind_(Kind::list), held_(std::move(v)) { measure(list()); }
inline Value::Value(Dict v) : kind_(Kind::dict) {
  charge(v.entries.size() * sizeof(Value) / 8 + 1);
  int below = 0;
  for (const auto& [key, value] : v.entries) below = std::max({below, key.height_, value.height_});
  set_height(below);
  held_ = std::make_shared<const Dict>(std::move(v));
}
inline Value::Value(std::shared_ptr<Object> v) : kind_(Kind::object) {
  if (v->height() > 0) set_height(v->height());
  held_ = std::shared_ptr<const void>(v, v.get());
}
inline Value Value::undefined(std::string message) {
  return {Kind::undefined, std::make_shared<const std::string>(std::move(message))};
}
inline Value Value::tuple(List items) {
  Value value(std::move(items));
  value.kind_ = Kind::tuple;
  return value;
}

// The arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at a position or with a name; null if not given.
  [[nodiscard]] const Value* find(std::size_t index, std::string_view name) const {
    if (index < positional.size()) return &positional[index];
    for (const auto& [key, value] : named) {
      if (key == name) return &value;
    }
    return nullptr;
  }
  [[nodiscard]] Value get(std::size_t index, std::string_view name, Value otherwise = {}) const {
    const Value* found = find(index, name);
    return found == nullptr ? std::move(otherwise) : *found;
  }
};

// For the texts among arguments, which are copied, searched for or put in.
inline void charge_texts(const Arguments& arguments) {
  for (const Value& value : arguments.positional)
    if (value.is_string()) charge_bytes(value.string().size());
  for (const auto& [name, value] : arguments.named)
    if (value.is_string()) charge_bytes(value.string().size());
}

// What filters, tests and methods may ask of the running template.
class Runtime {
 public:
  virtual ~Runtime() = default;
  Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  virtual Value call(const Value& callee, Arguments arguments) = 0;
  virtual Value filter(const std::string& name, const Value& input, Arguments arguments) = 0;
  virtual bool test(const std::string& name, const Value& input, Arguments arguments) = 0;
  virtual Value attribute(const Value& of, const std::string& name) = 0;  // a.name
  virtual Value item(const Value& of, const Value& key) = 0;              // a[key]
  virtual void adopt(std::shared_ptr<Namespace> made) = 0;                // to be emptied when the rendering ends
};

inline Value Object::call(Runtime&, Arguments) { fail("'" + type_name() + "' object is not callable"); }
inline Value Object::attribute(const std::string& name) const {
  return Value::undefined("'" + type_name() + " object' has no attribute '" + name + "'");
}

// What map, select and reverse give: items that can be walked once. Always true, without length.
class Generator : public Object {
 public:
  explicit Generator(const Value& items) : Object(items.height()), items_(items.shared_list()) {}
  [[nodiscard]] std::string type_name() const override { return "generator"; }
  [[nodiscard]] std::shared_ptr<const List> items() override {
    return std::exchange(items_, std::make_shared<const List>());
  }

 private:
  std::shared_ptr<const List> items_;
};

// dict.keys(), values(), items().
class View : public Object {
 public:
  View(std::string type, const Value& items)
      : Object(items.height()), type_(std::move(type)), items_(items.shared_list()) {}
  [[nodiscard]] std::string type_name() const override { return type_; }
  [[nodiscard]] std::string text() const override { return type_ + "(" + Value(items_).repr() + ")"; }
  [[nodiscard]] bool truthy() const override { return !items_->empty(); }
  [[nodiscard]] std::shared_ptr<const List> items() override { return items_; }
  [[nodiscard]] std::int64_t length() const override { return static_cast<std::int64_t>(items_->size()); }

 private:
  std::string type_;
  std::shared_ptr<const List> items_;
};

inline Value generator(List items) {
  return Value(std::static_pointer_cast<Object>(std::make_shared<Generator>(Value(std::move(items)))));
}

inline std::string Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_float()) return "float";
  if (is_string()) return "str";
  if (is_list()) return "list";
  if (is_tuple()) return "tuple";
  if (is_dict()) return "dict";
  return object().type_name();
}

inline bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_integral()) return integer() != 0;
  if (is_float()) return real() != 0.0;
  if (is_string()) return !string().empty();
  if (is_sequence()) return !list().empty();
  if (is_dict()) return !dict().entries.empty();
  return object().truthy();
}

inline std::string Value::text() const {
  if (is_undefined()) return {};
  return is_string() ? string() : repr();
}

inline std::string Value::repr() const {
  charge(1);
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return boolean() ? "True" : "False";
  if (is_int()) return std::to_string(integer());
  if (is_float()) return float_repr(real());
  if (is_string()) {
    charge_bytes(string().size());
    return string_repr(string());
  }
  if (is_object()) return object().text();
  std::string out;
  if (is_dict()) {
    for (const auto& [key, value] : dict().entries) {
      out += out.empty() ? "" : ", ";
      out += key.repr();
      out += ": ";
      out += value.repr();
    }
    charge_bytes(out.size());
    return "{" + out + "}";
  }
  for (const Value& item : list()) {
    out += out.empty() ? "" : ", ";
    out += item.repr();
  }
  charge_bytes(out.size());
  if (is_list()) return "[" + out + "]";
  return "(" + out + (list().size() == 1 ? ",)" : ")");
}

inline bool Value::equals(const Value& other) const {
  charge(is_string() || is_float() || is_integral() ? 0 : 1);
  if (is_number() && other.is_number()) {
    return is_float() || other.is_float() ? real() == other.real() : integer() == other.integer();
  }
  if (kind_ != other.kind_) return false;
  if (is_string()) {
    if (string().size() != other.string().size()) return false;
    charge(string().size() / 64);
    return string() == other.string();
  }
  if (is_sequence()) {
    const List &a = list(), &b = other.list();
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (i % 8 == 0) charge(1);
      if (!a[i].equals(b[i])) return false;
    }
    return true;
  }
  if (is_dict()) {
    if (dict().entries.size() != other.dict().entries.size()) return false;
    for (const auto& [key, value] : dict().entries) {
      charge(1);
      const Value* found = other.dict().find(key);
      if (found == nullptr || !found->equals(value)) return false;
    }
    return true;
  }
  return is_object() ? &object() == &other.object() : true;  // undefined and None equal themselves
}

// a < b, as Python orders numbers, strings, lists and tuples; anything else fails.
inline bool less(const Value& a, const Value& b, const char* symbol = "<") {
  a.require_defined();
  b.require_defined();
  if (a.is_number() && b.is_number()) {
    return a.is_float() || b.is_float() ? a.real() < b.real() : a.integer() < b.integer();
  }
  if (a.is_string() && b.is_string()) {
    charge(std::min(a.string().size(), b.string().size()) / 64);
    return a.string() < b.string();
  }
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    for (std::size_t i = 0; i < a.list().size() && i < b.list().size(); ++i) {
      if (i % 8 == 0) charge(1);
      if (!a.list()[i].equals(b.list()[i])) return less(a.list()[i], b.list()[i], symbol);
    }
    return a.list().size() < b.list().size();
  }
  fail("'" + std::string(symbol) + "' not supported between instances of '" + a.type_name() + "' and '" +
       b.type_name() + "'");
}

// Shared items that can be looped over directly: for (const Value& item : iterate(value)).
class Items {
 public:
  Items(std::shared_ptr<const List> list) : list_(std::move(list)) {}
  [[nodiscard]] auto begin() const { return list_->begin(); }
  [[nodiscard]] auto end() const { return list_->end(); }
  const List* operator->() const { return list_.get(); }
  const List& operator*() const { return *list_; }
  [[nodiscard]] const std::shared_ptr<const List>& shared() const { return list_; }

 private:
  std::shared_ptr<const List> list_;
};

// The items of a list, tuple, dict (keys), string (characters) or iterable object; undefined has none.
inline Items iterate(const Value& value) {
  if (value.is_undefined()) return std::make_shared<const List>();
  if (value.is_sequence()) return value.shared_list();
  if (value.is_object()) {
    if (std::shared_ptr<const List> items = value.object().items()) return items;
  }
  List items;
  if (value.is_dict()) {
    charge(value.dict().entries.size() * 2);
    for (const auto& [key, held] : value.dict().entries) items.push_back(key);
  } else if (value.is_string()) {
    charge(value.string().size() * sizeof(Value) / 8);
    for (const std::string_view c : characters(value.string())) items.emplace_back(c);
  } else {
    fail("'" + value.type_name() + "' object is not iterable");
  }
  return std::make_shared<const List>(std::move(items));
}

inline std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) {
    charge(value.string().size() / 64);
    return static_cast<std::int64_t>(python_length(value.string()));
  }
  if (value.is_sequence()) return static_cast<std::int64_t>(value.list().size());
  if (value.is_dict()) return static_cast<std::int64_t>(value.dict().entries.size());
  if (value.is_object() && value.object().length() >= 0) return value.object().length();
  fail("object of type '" + value.type_name() + "' has no len()");
}

// needle in haystack.
inline bool contains(const Value& haystack, const Value& needle) {
  if (haystack.is_string()) {
    if (!needle.is_string()) {
      needle.require_defined();
      fail("'in <string>' requires string as left operand, not " + needle.type_name());
    }
    charge_bytes(haystack.string().size());
    charge_bytes(needle.string().size());
    return find_text(haystack.string(), needle.string()) != std::string::npos;
  }
  if (haystack.is_dict() && (needle.is_list() || needle.is_dict()))
    fail("unhashable type: '" + needle.type_name() + "'");
  if (haystack.is_dict()) return haystack.dict().find(needle) != nullptr;
  if (!haystack.is_undefined() && !haystack.is_sequence() && !haystack.is_object()) {
    fail("argument of type '" + haystack.type_name() + "' is not iterable");
  }
  for (const Value& item : iterate(haystack)) {
    charge(1);
    if (item.equals(needle)) return true;
  }
  return false;
}

}  // namespace rlalgo::text::detail
