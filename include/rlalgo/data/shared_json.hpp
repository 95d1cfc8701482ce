// A JSON value that many rows share: copying it copies a pointer. It never changes; null until it is given one.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

namespace rlalgo::data {

class SharedJson {
  using Json = nlohmann::ordered_json;

 public:
  SharedJson() = default;
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, SharedJson> && std::constructible_from<Json, T>)
      SharedJson(T&& value)  // NOLINT: whatever a Json is made of
      : value_(std::make_shared<const Json>(std::forward<T>(value))) {}

  const Json& operator*() const {
    static const Json null;
    return value_ ? *value_ : null;
  }
  const Json* operator->() const { return &**this; }
  operator const Json&() const { return **this; }  // NOLINT: read wherever a Json is

  friend bool operator==(const SharedJson& a, const SharedJson& b) { return &*a == &*b || *a == *b; }

 private:
  std::shared_ptr<const Json> value_;
};

}  // namespace rlalgo::data
