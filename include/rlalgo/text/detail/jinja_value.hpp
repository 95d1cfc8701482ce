// The values of chat templates: Python's None, bool, int, float, str, list, tuple, dict, Jinja's undefined, and objects
// with behavior (namespaces, macros, loops, methods, generators).
//
// Containers are immutable and shared, as in Jinja's immutable sandbox; only a namespace's attributes change.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

// A failure while a template runs; the evaluator adds the line.
class TemplateFailure : public std::runtime_error {
 public:
  explicit TemplateFailure(const std::string& message, bool raised_by_template = false)
      : std::runtime_error(message), raised_by_template_(raised_by_template) {}
  [[nodiscard]] bool raised_by_template() const noexcept { return raised_by_template_; }

 private:
  bool raised_by_template_;
};

[[noreturn]] inline void fail(const std::string& message) { throw TemplateFailure(message); }

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
};

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> message;  // what to say when it is used
  };
  struct None {};
  struct Tuple {
    std::shared_ptr<const List> items;
  };
  using String = std::shared_ptr<const std::string>;

  Value() : data_(None{}) {}
  Value(bool v) : data_(v) {}
  Value(std::int64_t v) : data_(v) {}
  Value(int v) : data_(static_cast<std::int64_t>(v)) {}
  Value(double v) : data_(v) {}
  Value(std::string v) : data_(std::make_shared<const std::string>(std::move(v))) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(List v) : data_(std::make_shared<const List>(std::move(v))) {}
  Value(std::shared_ptr<const List> v) : data_(std::move(v)) {}
  Value(std::shared_ptr<const Dict> v) : data_(std::move(v)) {}
  Value(Dict v);
  Value(std::shared_ptr<Object> v) : data_(std::move(v)) {}

  static Value undefined(std::string message) {
    Value value;
    value.data_ = Undefined{std::make_shared<const std::string>(std::move(message))};
    return value;
  }
  static Value tuple(List items) {
    Value value;
    value.data_ = Tuple{std::make_shared<const List>(std::move(items))};
    return value;
  }

  [[nodiscard]] bool is_undefined() const noexcept { return std::holds_alternative<Undefined>(data_); }
  [[nodiscard]] bool is_none() const noexcept { return std::holds_alternative<None>(data_); }
  [[nodiscard]] bool is_bool() const noexcept { return std::holds_alternative<bool>(data_); }
  [[nodiscard]] bool is_int() const noexcept { return std::holds_alternative<std::int64_t>(data_); }
  [[nodiscard]] bool is_float() const noexcept { return std::holds_alternative<double>(data_); }
  [[nodiscard]] bool is_integral() const noexcept { return is_int() || is_bool(); }
  [[nodiscard]] bool is_number() const noexcept { return is_integral() || is_float(); }
  [[nodiscard]] bool is_string() const noexcept { return std::holds_alternative<String>(data_); }
  [[nodiscard]] bool is_list() const noexcept { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  [[nodiscard]] bool is_tuple() const noexcept { return std::holds_alternative<Tuple>(data_); }
  [[nodiscard]] bool is_sequence() const noexcept { return is_list() || is_tuple(); }
  [[nodiscard]] bool is_dict() const noexcept { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  [[nodiscard]] bool is_object() const noexcept { return std::holds_alternative<std::shared_ptr<Object>>(data_); }

  [[nodiscard]] const std::string& string() const { return *std::get<String>(data_); }
  [[nodiscard]] const List& list() const { return *shared_list(); }
  [[nodiscard]] const std::shared_ptr<const List>& shared_list() const {
    return is_tuple() ? std::get<Tuple>(data_).items : std::get<std::shared_ptr<const List>>(data_);
  }
  [[nodiscard]] const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  [[nodiscard]] Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  template <class T>
  [[nodiscard]] T* as() const {
    const auto* held = std::get_if<std::shared_ptr<Object>>(&data_);
    return held == nullptr ? nullptr : dynamic_cast<T*>(held->get());
  }
  [[nodiscard]] std::int64_t integer() const {
    return is_bool() ? static_cast<std::int64_t>(std::get<bool>(data_)) : std::get<std::int64_t>(data_);
  }
  [[nodiscard]] double real() const { return is_float() ? std::get<double>(data_) : static_cast<double>(integer()); }
  [[nodiscard]] bool boolean() const { return std::get<bool>(data_); }
  [[nodiscard]] const std::string& undefined_message() const { return *std::get<Undefined>(data_).message; }
  // Fails with the undefined value's own message.
  void require_defined() const {
    if (is_undefined()) fail(undefined_message());
  }

  [[nodiscard]] std::string type_name() const;  // Python's name: 'str', 'int', 'NoneType' …
  [[nodiscard]] bool truthy() const;
  [[nodiscard]] std::string text() const;  // str()
  [[nodiscard]] std::string repr() const;

  [[nodiscard]] bool same_object(const Value& other) const {  // Python's `is`
    if (data_.index() != other.data_.index()) return false;
    if (is_list()) return shared_list() == other.shared_list();
    if (is_dict()) return &dict() == &other.dict();
    if (is_object()) return &object() == &other.object();
    return equals(other);
  }
  [[nodiscard]] bool equals(const Value& other) const;

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, String, std::shared_ptr<const List>, Tuple,
               std::shared_ptr<const Dict>, std::shared_ptr<Object>>
      data_;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;

  [[nodiscard]] const Value* find(const Value& key) const {
    for (const auto& [name, value] : entries) {
      if (name.equals(key)) return &value;
    }
    return nullptr;
  }
  [[nodiscard]] const Value* find(std::string_view key) const {
    for (const auto& [name, value] : entries) {
      if (name.is_string() && name.string() == key) return &value;
    }
    return nullptr;
  }
  void set(const Value& key, Value value) {
    for (auto& [name, held] : entries) {
      if (name.equals(key)) {
        held = std::move(value);
        return;
      }
    }
    entries.emplace_back(key, std::move(value));
  }
};

inline Value::Value(Dict v) : data_(std::make_shared<const Dict>(std::move(v))) {}

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
  virtual void charge(std::size_t steps) = 0;                             // fails when the template does too much work
  virtual void adopt(std::shared_ptr<Namespace> made) = 0;                // to be emptied when the rendering ends
};

inline Value Object::call(Runtime&, Arguments) { fail("'" + type_name() + "' object is not callable"); }
inline Value Object::attribute(const std::string& name) const {
  return Value::undefined("'" + type_name() + " object' has no attribute '" + name + "'");
}

// What map, select and reverse give: items that can be walked once. Always true, without length.
class Generator : public Object {
 public:
  explicit Generator(List items) : items_(std::make_shared<const List>(std::move(items))) {}
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
  View(std::string type, List items) : type_(std::move(type)), items_(std::make_shared<const List>(std::move(items))) {}
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
  return Value(std::static_pointer_cast<Object>(std::make_shared<Generator>(std::move(items))));
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
  if (is_undefined()) return "Undefined";
  if (is_none()) return "None";
  if (is_bool()) return boolean() ? "True" : "False";
  if (is_int()) return std::to_string(integer());
  if (is_float()) return float_repr(real());
  if (is_string()) return string_repr(string());
  if (is_object()) return object().text();
  std::string out;
  if (is_dict()) {
    for (const auto& [key, value] : dict().entries) {
      out += (out.empty() ? "" : ", ") + key.repr() + ": " + value.repr();
    }
    return "{" + out + "}";
  }
  for (const Value& item : list()) out += (out.empty() ? "" : ", ") + item.repr();
  if (is_list()) return "[" + out + "]";
  return "(" + out + (list().size() == 1 ? ",)" : ")");
}

inline bool Value::equals(const Value& other) const {
  if (is_number() && other.is_number()) {
    return is_float() || other.is_float() ? real() == other.real() : integer() == other.integer();
  }
  if (data_.index() != other.data_.index()) return false;
  if (is_string()) return string() == other.string();
  if (is_sequence()) {
    const List &a = list(), &b = other.list();
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (!a[i].equals(b[i])) return false;
    }
    return true;
  }
  if (is_dict()) {
    if (dict().entries.size() != other.dict().entries.size()) return false;
    for (const auto& [key, value] : dict().entries) {
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
  if (a.is_string() && b.is_string()) return a.string() < b.string();
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    for (std::size_t i = 0; i < a.list().size() && i < b.list().size(); ++i) {
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
    for (const auto& [key, held] : value.dict().entries) items.push_back(key);
  } else if (value.is_string()) {
    for (const std::string_view c : characters(value.string())) items.emplace_back(c);
  } else {
    fail("'" + value.type_name() + "' object is not iterable");
  }
  return std::make_shared<const List>(std::move(items));
}

inline std::int64_t length_of(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<std::int64_t>(python_length(value.string()));
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
    return haystack.string().find(needle.string()) != std::string::npos;
  }
  if (haystack.is_dict() && (needle.is_list() || needle.is_dict()))
    fail("unhashable type: '" + needle.type_name() + "'");
  if (haystack.is_dict()) return haystack.dict().find(needle) != nullptr;
  if (!haystack.is_undefined() && !haystack.is_sequence() && !haystack.is_object()) {
    fail("argument of type '" + haystack.type_name() + "' is not iterable");
  }
  for (const Value& item : iterate(haystack)) {
    if (item.equals(needle)) return true;
  }
  return false;
}

}  // namespace rlalgo::text::detail
