// The fields of a JSON request: read by name with their type and range, and noted, so that names that nobody asked for
// can be reported.
//
//   Fields fields(object);
//   const std::int64_t n = fields.integer("n", 1, 4096).value_or(1);
//   for (const std::string& name : fields.unread()) …
//
// null is the same as absent. A whole number may be written 5.0; true is no number.
//
// Errors (status 400): [rlalgo.serve.1] the body is no JSON object; [.2] a field is missing; [.3] a field of the wrong
// type; [.4] a value out of range.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/data/rollout.hpp>

namespace rlalgo::serve {

using data::Json;

class Fields {
 public:
  // `object` must outlive the fields. Raises serve.3 where it is none; `place` names it in errors: "params[3]".
  explicit Fields(const Json& object, std::string place = {});

  [[nodiscard]] const Json& whole() const noexcept { return object_; }
  [[nodiscard]] bool has(const std::string& name) { return find(name) != nullptr; }
  // The value, whatever it is; null where it is absent.
  [[nodiscard]] const Json* find(const std::string& name);
  [[nodiscard]] const Json& required(const std::string& name);

  [[nodiscard]] std::optional<double> number(const std::string& name, double least, double most);
  [[nodiscard]] std::optional<std::int64_t> integer(const std::string& name, std::int64_t least, std::int64_t most);
  [[nodiscard]] bool flag(const std::string& name, bool otherwise);
  [[nodiscard]] std::optional<std::string> text(const std::string& name);
  [[nodiscard]] std::string required_text(const std::string& name);
  [[nodiscard]] const Json* object(const std::string& name);
  [[nodiscard]] const Json* list(const std::string& name);
  // A text, or a list of texts.
  [[nodiscard]] std::vector<std::string> texts(const std::string& name);
  // Token ids in [0, vocab).
  [[nodiscard]] std::vector<data::TokenId> ids(const std::string& name, std::int64_t vocab);

  // Names in the object that were never asked for.
  [[nodiscard]] std::vector<std::string> unread() const;

  [[nodiscard]] std::string place_of(const std::string& name) const;

  [[noreturn]] void wrong_type(const std::string& name, const Json& found, const std::string& expected) const;
  [[noreturn]] void out_of_range(const std::string& name, const std::string& found, const std::string& expected) const;

 private:
  const Json& object_;
  std::string place_;
  std::set<std::string, std::less<>> read_;
};

// The value of a body. Raises serve.1.
[[nodiscard]] Json parse_body(std::string_view body);

// A list of token ids in [0, vocab). Raises serve.3 and .4 with `place`.
[[nodiscard]] std::vector<data::TokenId> token_ids(const Json& list, std::int64_t vocab, const std::string& place);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/fields_impl.hpp>
#endif
