// Makes expressions of schemas; see schema_pattern.hpp. A schema that no text fulfils has none: a property of it does not
// come, a list is empty, an alternative falls away.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/detail/scalar_patterns.hpp>
#include <rlalgo/serve/detail/schema_merge.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/pattern.hpp>

namespace rlalgo::serve::detail {

// What a schema stands for is too large.
struct SchemaTooLarge {
  std::string at;
};

class SchemaReader {
 public:
  using Text = ScalarPatterns::Text;

  // A $ref is followed `levels` times within itself.
  SchemaReader(const Json& root, bool spaces, int levels)
      : merger_(root), space_(spaces ? " ?" : ""), levels_(levels) {}

  [[nodiscard]] Text of(const Json& schema, const std::string& at, int depth = 0);

  // Any value, with objects and lists in it `levels` deep.
  [[nodiscard]] std::string any(int levels) const;
  [[nodiscard]] std::string any_object(int levels) const;

  // The expression, which can be used. [rlalgo.serve.24] it is too large.
  [[nodiscard]] static std::string compiled(const std::string& expression) {
    if (const Text out = ScalarPatterns::checked(expression, "")) return *out;
    refuse_schema("a schema that no text fulfils", "");
  }

  // Lists whose items an expression cannot keep apart, by their paths.
  [[nodiscard]] const std::vector<std::vector<std::string>>& unique() const noexcept { return unique_; }

  // A schema stands in itself.
  [[nodiscard]] bool recursive() const noexcept { return recursive_; }

 private:
  static constexpr int deepest = 40;
  static constexpr std::size_t most_text = 150'000;

  // `schema` below a step of the path.
  [[nodiscard]] Text below(std::string step, const Json& schema, const std::string& at, int depth) {
    path_.push_back(std::move(step));
    Text out = of(schema, at, depth);
    path_.pop_back();
    return out;
  }

  [[nodiscard]] Text plain(const Json& schema, const std::string& at, int depth);
  [[nodiscard]] Text alternatives(const Json& schema, const char* name, const std::string& at, int depth);
  [[nodiscard]] Text enumerated(const Json& schema, const std::string& at, int depth);
  [[nodiscard]] Text typed(const Json& schema, const Json& type, const std::string& at, int depth);
  [[nodiscard]] Text array(const Json& schema, const std::string& at, int depth);
  [[nodiscard]] Text distinct(const Json& schema, std::int64_t least, std::int64_t most, const std::string& at,
                              int depth);
  [[nodiscard]] Text object(const Json& schema, const std::string& at, int depth);
  [[nodiscard]] Text map(const Json& schema, std::int64_t least, std::int64_t most, const std::string& at, int depth);

  [[nodiscard]] bool fits(const Json& value, const Json& schema, const std::string& at, int depth);
  [[nodiscard]] std::vector<Json> values_of(const Json& schema, const std::string& at, int depth);
  // All values that a schema allows, if they are few and known.
  [[nodiscard]] std::optional<std::vector<Json>> finite(const Json& schema, const std::string& at, int depth);

  // Whether no text that is made of `a` can fulfil `b`; both flattened.
  [[nodiscard]] bool apart(const Json& a, const Json& b, const std::string& at, int depth = 0);

  // The value of a property, with the patterns that its name has.
  [[nodiscard]] Json property(const Json& schema, const std::string& name, const std::string& at, int depth);

  [[nodiscard]] Json flat(const Json& schema, const std::string& at) {
    std::vector<std::string> followed;
    return merger_.flattened(schema, at, followed);
  }
  [[nodiscard]] std::string listed(const std::string& item, std::int64_t least, std::int64_t most,
                                   const std::string& open, const std::string& close) const;
  [[nodiscard]] static std::string literal(const Json& value) { return escaped(value.dump()); }

  // Notes references as followed, and takes them back; false: one is deep enough in itself.
  [[nodiscard]] bool enter(const std::vector<std::string>& followed) {
    bool again = false;
    for (const std::string& reference : followed) {
      const int times = ++active_[reference];
      recursive_ = recursive_ || times > 1;
      again = again || times > levels_;
    }
    return !again;
  }
  void leave(const std::vector<std::string>& followed) {
    for (const std::string& reference : followed) --active_[reference];
  }

  ScalarPatterns scalars_;
  SchemaMerger merger_;
  std::string space_;
  int levels_;
  bool recursive_ = false;
  std::vector<std::string> path_;  // of the schema at hand, in the text
  std::vector<std::vector<std::string>> unique_;
  std::map<std::string, int> active_;  // references on the way to the schema at hand
};

}  // namespace rlalgo::serve::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/schema_reader_impl.hpp>
#endif
