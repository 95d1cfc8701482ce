// Split expressions: `train`, `train[:500]`, `train[-5%:]`, `train[:10]+test[:10%](pct1_dropremainder)`.
//
// Grammar: part ('+' part)*, part = name ['[' [from] ':' [to] ']' ['(' rounding ')']]. Numbers may be negative and hold
// '_' between digits; a '%' on either side makes both percent. Percent → index: round half to even of p·n/100
// (`closest`), or p·⌊n/100⌋ (`pct1_dropremainder`, n ≥ 100). Negative = from the end; both ends are clipped to [0, n].
// Source: Hugging Face `datasets` (ReadInstruction).
//
// Errors: [rlalgo.data.7] not an expression, or a percentage that cannot be taken.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/groups.hpp>

namespace rlalgo::data {

struct SplitPart {
  std::string name;
  std::optional<std::int64_t> from;
  std::optional<std::int64_t> to;
  bool percent = false;
  bool drop_remainder = false;

  // The rows of this part in a split of n rows.
  [[nodiscard]] core::Span rows(std::size_t n) const {
    const std::int64_t size = static_cast<std::int64_t>(n);
    if (percent && drop_remainder && size < 100) {
      core::raise("data", 7,
                  {.what = "split \"" + name + "\" is too small for pct1_dropremainder",
                   .found = std::to_string(n) + " rows",
                   .expected = "at least 100"});
    }
    const auto index = [&](const std::optional<std::int64_t>& bound, std::int64_t absent) {
      if (!bound) return absent;
      std::int64_t at = *bound;
      if (percent && drop_remainder)
        at = at * (size / 100);
      else if (percent)
        at = static_cast<std::int64_t>(std::nearbyint(static_cast<double>(at * size) / 100.0));
      if (at < 0) at = std::max<std::int64_t>(at + size, 0);
      return std::min(at, size);
    };
    const std::int64_t begin = index(from, 0);
    const std::int64_t end = std::max(begin, index(to, size));
    return {static_cast<std::size_t>(begin), static_cast<std::size_t>(end)};
  }
};

namespace detail {

class SplitParser {
 public:
  explicit SplitParser(std::string_view text) : text_(text) {}

  std::vector<SplitPart> parse();

 private:
  void skip();
  bool accept(char c);
  [[noreturn]] void fail(const std::string& why) const;
  SplitPart part();
  std::optional<std::int64_t> bound(SplitPart& part);

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail

[[nodiscard]] std::vector<SplitPart> parse_split(std::string_view expression);

}  // namespace rlalgo::data

#ifndef RLALGO_COMPILED
#include <rlalgo/data/detail/split_expression_impl.hpp>
#endif
