// What a chat template finds beside its variables: range, namespace, dict, cycler, joiner, raise_exception,
// strftime_now.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/text/detail/jinja_methods.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>

namespace rlalgo::text::detail {

// namespace(…): the one value whose attributes a template may set.
class Namespace : public Object {
 public:
  [[nodiscard]] std::string type_name() const override { return "Namespace"; }
  [[nodiscard, gnu::cold]] Value attribute(const std::string& name) const override {
    const Value* found = attributes_.find(std::string_view(name));
    return found != nullptr ? *found : Object::attribute(name);
  }
  void clear() { attributes_.entries.clear(); }
  [[gnu::cold]] void set(const std::string& name, Value value) {
    if (name.starts_with('_'))
      fail("Chat templates cannot store underscore-prefixed attributes on a namespace, but got '" + name + "'.");
    attributes_.set(Value(name), std::move(value));
  }

 private:
  Dict attributes_;
};

class Cycler : public Object {
 public:
  explicit Cycler(const Value& items) : Object(items.height()), items_(items.list()) {}
  [[nodiscard]] std::string type_name() const override { return "Cycler"; }
  [[nodiscard]] Value attribute(const std::string& name) const override;
  Value next() { return items_[std::exchange(at_, (at_ + 1) % items_.size())]; }
  void reset() { at_ = 0; }

 private:
  friend Value make_cycler(const Arguments&);
  std::weak_ptr<Cycler> self_;
  List items_;
  std::size_t at_ = 0;
};

inline Value Cycler::attribute(const std::string& name) const {
  if (name == "current") return items_[at_];
  const std::shared_ptr<Cycler> self = self_.lock();
  if (name == "next")
    return function(
        name, [self](Runtime&, const Arguments&) { return self->next(); }, height());
  if (name == "reset") {
    return function(
        name,
        [self](Runtime&, const Arguments&) {
          self->reset();
          return Value();
        },
        height());
  }
  return Object::attribute(name);
}

[[gnu::cold]] inline Value make_cycler(const Arguments& arguments) {
  if (arguments.positional.empty()) fail("at least one item has to be provided");
  const auto cycler = std::make_shared<Cycler>(Value(arguments.positional));
  cycler->self_ = cycler;
  return Value(std::static_pointer_cast<Object>(cycler));
}

// range([start,] stop[, step]); as in the sandbox at most 100,000 numbers.
[[gnu::cold]] inline Value make_range(const Arguments& arguments) {
  constexpr std::int64_t limit = 100'000;
  if (arguments.positional.empty() || arguments.positional.size() > 3) fail("range expected from 1 to 3 arguments");
  const auto at = [&](std::size_t i) { return integer_argument(arguments.positional[i], "range() arguments"); };
  const bool one = arguments.positional.size() == 1;
  const std::int64_t start = one ? 0 : at(0), stop = one ? at(0) : at(1),
                     step = arguments.positional.size() == 3 ? at(2) : 1;
  if (step == 0) fail("range() arg 3 must not be zero");
  List numbers;
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop; i += step) {
    if (static_cast<std::int64_t>(numbers.size()) >= limit)
      fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    numbers.emplace_back(i);
    const __int128 next = static_cast<__int128>(i) + step;
    if (step > 0 ? next >= stop : next <= stop) break;
  }
  return numbers;
}

// dict(pairs or mapping, name=value…)
[[gnu::cold]] inline Dict make_dict(const Arguments& arguments) {
  Dict dict;
  if (const Value* from = arguments.find(0, "")) {
    if (from->is_dict()) {
      dict = from->dict();
    } else {
      for (const Value& pair : iterate(*from)) {
        const auto items = iterate(pair);
        if (items->size() != 2)
          fail("dictionary update sequence element has length " + std::to_string(items->size()) + "; 2 is required");
        dict.set((*items)[0], (*items)[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(Value(name), value);
  return dict;
}

// Local time by a strftime format.
[[gnu::cold]] inline std::string format_time(const std::string& format, std::time_t now) {
  if (format.size() > 4096) fail("strftime_now: a format of more than 4096 bytes");
  charge(2 * format.size() + 16);
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(format.size() * 16 + 256, '\0');
  // strftime cannot tell an empty result from a short buffer; a marker makes the result non-empty.
  const std::size_t length = std::strftime(out.data(), out.size(), (format + "|").c_str(), &local);
  if (length == 0) fail("strftime_now: the format gives a text that is too long");
  out.resize(length - 1);
  return out;
}

// Nothing if no global has this name. now: what strftime_now calls the time.
[[gnu::cold]] inline std::optional<Value> find_global(const std::string& name, std::time_t now) {
  if (name == "range") return function(name, [](Runtime&, const Arguments& a) { return make_range(a); });
  if (name == "dict") return function(name, [](Runtime&, const Arguments& a) -> Value { return make_dict(a); });
  if (name == "namespace") {
    return function(name, [](Runtime& runtime, const Arguments& a) {
      const Dict attributes = make_dict(a);
      const auto made = std::make_shared<Namespace>();
      for (const auto& [key, value] : attributes.entries) made->set(key.text(), value);
      runtime.adopt(made);
      return Value(std::static_pointer_cast<Object>(made));
    });
  }
  if (name == "cycler") return function(name, [](Runtime&, const Arguments& a) { return make_cycler(a); });
  if (name == "joiner") {
    return function(name, [](Runtime&, const Arguments& a) {
      const auto used = std::make_shared<bool>(false);
      const Value glue = a.get(0, "sep", ", ");
      return function(
          "joiner", [used, glue](Runtime&, const Arguments&) { return std::exchange(*used, true) ? glue : Value(""); },
          glue.height());
    });
  }
  if (name == "raise_exception") {
    return function(
        name, [](Runtime&, const Arguments& a) -> Value { throw TemplateFailure(a.get(0, "message").text(), true); });
  }
  if (name == "strftime_now") {
    return function(
        name, [now](Runtime&, const Arguments& a) -> Value { return format_time(a.get(0, "format").text(), now); });
  }
  return std::nullopt;
}

}  // namespace rlalgo::text::detail
