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
#include <charconv>
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

  std::vector<SplitPart> parse() {
    std::vector<SplitPart> parts;
    do {
      parts.push_back(part());
    } while (accept('+'));
    skip();
    if (at_ != text_.size()) fail("unexpected \"" + std::string(text_.substr(at_)) + "\"");
    return parts;
  }

 private:
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& why) const {
    core::raise("data", 7,
                {.what = "split is not a split expression",
                 .found = "\"" + std::string(text_) + "\" (" + why + ")",
                 .expected = "such as train, train[:500], train[-5%:] or train[:10]+test[:10%]"});
  }
  SplitPart part() {
    SplitPart out;
    skip();
    while (at_ < text_.size() && std::string_view("[]+(): ").find(text_[at_]) == std::string_view::npos)
      out.name += text_[at_++];
    if (out.name.empty()) fail("a split name is missing");
    if (!accept('[')) return out;
    out.from = bound(out);
    if (!accept(':')) fail("':' is missing");
    out.to = bound(out);
    if (!accept(']')) fail("']' is missing");
    if (out.percent) {
      for (const auto& bound : {out.from, out.to})
        if (bound && std::abs(*bound) > 100) fail("a percentage is beyond 100");
    }
    if (accept('(')) {
      const std::size_t close = text_.find(')', at_);
      const std::string rounding(text_.substr(at_, close == std::string_view::npos ? 0 : close - at_));
      if (rounding != "closest" && rounding != "pct1_dropremainder") fail("rounding is closest or pct1_dropremainder");
      out.drop_remainder = rounding == "pct1_dropremainder";
      at_ = close + 1;
    }
    return out;
  }
  std::optional<std::int64_t> bound(SplitPart& part) {
    skip();
    std::string digits;
    if (at_ < text_.size() && text_[at_] == '-') digits += text_[at_++];
    while (at_ < text_.size() && ((text_[at_] >= '0' && text_[at_] <= '9') || text_[at_] == '_')) {
      if (text_[at_] != '_') digits += text_[at_];
      ++at_;
    }
    if (digits.empty()) return std::nullopt;
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) fail("a bound is not an integer");
    if (accept('%')) part.percent = true;
    return value;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace detail

[[nodiscard]] inline std::vector<SplitPart> parse_split(std::string_view expression) {
  return detail::SplitParser(expression).parse();
}

}  // namespace rlalgo::data
