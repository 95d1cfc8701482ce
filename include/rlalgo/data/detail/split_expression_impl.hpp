// Definitions of split_expression.hpp.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/groups.hpp>
#include <rlalgo/data/split_expression.hpp>

namespace rlalgo::data {

namespace detail {

RLALGO_INLINE std::vector<SplitPart> SplitParser::parse() {
  std::vector<SplitPart> parts;
  do {
    parts.push_back(part());
  } while (accept('+'));
  skip();
  if (at_ != text_.size()) fail("unexpected \"" + std::string(text_.substr(at_)) + "\"");
  return parts;
}

RLALGO_INLINE void SplitParser::skip() {
  while (at_ < text_.size() && text_[at_] == ' ') ++at_;
}

RLALGO_INLINE bool SplitParser::accept(char c) {
  skip();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

RLALGO_INLINE void SplitParser::fail(const std::string& why) const {
  core::raise("data", 7,
              {.what = "split is not a split expression",
               .found = "\"" + std::string(text_) + "\" (" + why + ")",
               .expected = "such as train, train[:500], train[-5%:] or train[:10]+test[:10%]"});
}

RLALGO_INLINE SplitPart SplitParser::part() {
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

RLALGO_INLINE std::optional<std::int64_t> SplitParser::bound(SplitPart& part) {
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

}  // namespace detail

RLALGO_INLINE std::vector<SplitPart> parse_split(std::string_view expression) {
  return detail::SplitParser(expression).parse();
}

}  // namespace rlalgo::data
