// Expressions of the texts and numbers that a schema without references allows (schema_pattern.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <rlalgo/serve/fields.hpp>

namespace rlalgo::serve::detail {

class ScalarPatterns {
 public:
  using Text = std::optional<std::string>;  // nullopt: no text fulfils it

  [[nodiscard]] Text string(const Json& schema, const std::string& at) const;
  [[nodiscard]] Text number(const Json& schema, bool fraction, const std::string& at) const;

  // Texts of the pattern found anywhere, as between the quotes of a JSON text.
  [[nodiscard]] std::string search(const Json& pattern, const std::string& at) const;

  // The expression, if it can be used. [rlalgo.serve.24]
  [[nodiscard]] static Text checked(const std::string& expression, const std::string& at);

  [[nodiscard]] static std::int64_t count(const Json& schema, const char* name, std::int64_t otherwise,
                                          const std::string& at);

  // Any text, any number.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const std::string& number() const noexcept { return number_; }

 private:
  [[nodiscard]] std::string format(const Json& name, const std::string& at) const;

  const std::string character_ =
      "([^\"\\\\\\x00-\\x1f]|\\\\[\"\\\\/bfnrt]|\\\\u([0-9a-cefA-CEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}))";
  const std::string text_ = "\"" + character_ + "*\"";
  const std::string whole_ = "-?(0|[1-9][0-9]{0,15})";
  const std::string number_ = whole_ + "(\\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?";
};

// Refuses keywords that would be ignored.
void check_keywords(const Json& schema, const std::string& at);

}  // namespace rlalgo::serve::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/scalar_patterns_impl.hpp>
#endif
