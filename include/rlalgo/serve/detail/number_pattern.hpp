// Expressions of decimal numbers between bounds, as JSON writes them: no exponent, no zero before other digits, no −0.
//
//   x = int.frac:  x ≥ a  ⇔  int > int(a), or int = int(a) and frac ≥ frac(a) digit by digit
//
// Whole numbers have at most 16 digits, others 15 before and behind the point together near a bound: a reader's double is on
// the same side of the bound as the text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace rlalgo::serve::detail {

// A decimal number without a sign, its zeros at both ends dropped.
struct Decimal {
  std::string whole = "0", fraction;

  [[nodiscard]] bool zero() const { return whole == "0" && fraction.empty(); }
};

struct SignedDecimal {
  bool negative = false;
  Decimal size;
};

// Of a number as JSON or printf writes it: -1.5e-07.
[[nodiscard]] inline SignedDecimal decimal(std::string text) {
  SignedDecimal out;
  out.negative = text.starts_with('-');
  if (out.negative) text.erase(0, 1);
  std::int64_t exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::stoll(text.substr(e + 1));
    text.resize(e);
  }
  const std::size_t point = text.find('.');
  std::string whole = text.substr(0, point), fraction = point == std::string::npos ? "" : text.substr(point + 1);
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction.front();
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(0, 1, whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  while (fraction.ends_with('0')) fraction.pop_back();
  out.size = {whole.empty() ? "0" : whole, fraction};
  out.negative = out.negative && !out.size.zero();
  return out;
}

[[nodiscard]] inline int compare_whole(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b) < 0 ? -1 : a == b ? 0 : 1;
}
[[nodiscard]] inline int compare(const Decimal& a, const Decimal& b) {
  const int whole = compare_whole(a.whole, b.whole);
  if (whole != 0) return whole;
  const int fraction = a.fraction.compare(b.fraction);  // no zeros at the end: a shorter one is smaller
  return fraction < 0 ? -1 : fraction == 0 ? 0 : 1;
}

[[nodiscard]] inline std::string digits(char from, char to) {
  if (from == to) return std::string(1, from);
  return std::string("[") + from + "-" + to + "]";
}
[[nodiscard]] inline std::string any_digits(std::size_t n) {
  return n == 0 ? "" : n == 1 ? "[0-9]" : "[0-9]{" + std::to_string(n) + "}";
}
[[nodiscard]] inline std::string either(const std::string& a, const std::string& b) {
  return a.empty() ? b : b.empty() ? a : a + "|" + b;
}

// Digits of one length, from `a` to `b`.
[[nodiscard]] inline std::string equally_long(const std::string& a, const std::string& b) {
  if (a.empty()) return "";
  if (a.front() == b.front()) return a.front() + equally_long(a.substr(1), b.substr(1));
  const std::size_t rest = a.size() - 1;
  const bool low = a.find_first_not_of('0', 1) == std::string::npos,
             high = b.find_first_not_of('9', 1) == std::string::npos;
  std::string out;
  if (!low) out = a.front() + equally_long(a.substr(1), std::string(rest, '9'));
  const char from = static_cast<char>(a.front() + (low ? 0 : 1)), to = static_cast<char>(b.front() - (high ? 0 : 1));
  if (from <= to) out = either(out, digits(from, to) + any_digits(rest));
  if (!high) out = either(out, b.front() + equally_long(std::string(rest, '0'), b.substr(1)));
  return "(" + out + ")";
}

// Whole numbers from `a` to `b`, without brackets round the alternatives; "": there is none.
[[nodiscard]] inline std::string whole_between(std::string a, const std::string& b) {
  std::string out;
  if (compare_whole(a, b) > 0) return out;
  while (a.size() < b.size()) {
    out = either(out, equally_long(a, std::string(a.size(), '9')));
    a = "1" + std::string(a.size(), '0');
  }
  return either(out, equally_long(a, b));
}

[[nodiscard]] inline std::string plus_one(std::string whole) {
  std::size_t i = whole.size();
  while (i > 0 && whole[i - 1] == '9') whole[--i] = '0';
  if (i == 0) return "1" + whole;
  ++whole[i - 1];
  return whole;
}
// `whole` is above 0.
[[nodiscard]] inline std::string minus_one(std::string whole) {
  std::size_t i = whole.size();
  while (whole[i - 1] == '0') whole[--i] = '9';
  --whole[i - 1];
  if (whole.size() > 1 && whole.front() == '0') whole.erase(0, 1);
  return whole;
}

// What may stand behind the point, from digit to digit: `low` and `high` are what is left of the bounds (nullopt: none).
class FractionPattern {
 public:
  FractionPattern(bool low_excluded, bool high_excluded) : low_excluded_(low_excluded), high_excluded_(high_excluded) {}

  // The digits that may follow, `room` at most.
  struct Digits {
    std::string some;   // alternatives of at least one digit
    bool none = false;  // no further digit
  };
  [[nodiscard]] Digits follow(std::optional<std::string> low, const std::optional<std::string>& high,
                              std::size_t room) const {
    Digits out;
    if (low && low->empty() && !low_excluded_) low = std::nullopt;
    // No further digit: the number is what was written.
    out.none = (!low || (low->empty() && !low_excluded_)) && (!high || !high->empty() || !high_excluded_);
    if (room == 0) return out;
    for (char c = '0'; c <= '9';) {
      // Digits that lead to the same are one class.
      const auto [next_low, good_low] = after(low, c, true);
      const auto [next_high, good_high] = after(high, c, false);
      char last = c;
      while (last < '9') {
        const char next = static_cast<char>(last + 1);
        if (after(low, next, true) != std::pair(next_low, good_low) ||
            after(high, next, false) != std::pair(next_high, good_high))
          break;
        last = next;
      }
      if (good_low && good_high) {
        std::string rest;
        if (!next_low && !next_high) {
          rest = room > 1 ? "[0-9]{0," + std::to_string(room - 1) + "}" : "";
          out.some = either(out.some, digits(c, last) + rest);
        } else {
          const Digits more = follow(next_low, next_high, room - 1);
          if (!more.some.empty()) rest = "(" + more.some + ")" + (more.none ? "?" : "");
          if (more.none || !more.some.empty()) out.some = either(out.some, digits(c, last) + rest);
        }
      }
      c = static_cast<char>(last + 1);
    }
    return out;
  }

 private:
  using After = std::pair<std::optional<std::string>, bool>;  // what is left of the bound; whether it can still hold

  [[nodiscard]] static After after(const std::optional<std::string>& bound, char digit, bool low) {
    if (!bound) return {std::nullopt, true};
    const char own = bound->empty() ? '0' : bound->front();
    if (digit == own) return {bound->empty() ? "" : bound->substr(1), true};
    return {std::nullopt, low == (digit > own)};
  }

  bool low_excluded_, high_excluded_;
};

struct Bound {
  Decimal at;
  bool excluded = false;
};

// Numbers without a sign from `low` to `high` (nullopt: no end); alternatives, "": there is none. `fraction`: digits behind the
// point may come.
[[nodiscard]] inline std::string sizes_between(const Bound& low, const std::optional<Bound>& high, bool fraction) {
  if (high) {
    const int order = compare(low.at, high->at);
    if (order > 0 || (order == 0 && (low.excluded || high->excluded))) return "";
  }
  const std::size_t longest = fraction ? 15 : 16;
  if (!fraction) {
    std::string from = low.at.whole, to = high ? high->at.whole : std::string(longest, '9');
    if (!low.at.fraction.empty() || low.excluded) from = plus_one(from);
    if (high && high->at.fraction.empty() && high->excluded) {
      if (to == "0") return "";
      to = minus_one(to);
    }
    if (to.size() > longest) to = std::string(longest, '9');
    return whole_between(from, to);
  }
  const std::size_t near = std::max(low.at.whole.size(), high ? high->at.whole.size() : 1);
  const std::size_t room = near < 14 ? 15 - near : 1;
  const FractionPattern pattern(low.excluded, high && high->excluded);
  const auto at_bound = [&](const std::string& whole, const std::optional<std::string>& from,
                            const std::optional<std::string>& to) {
    const auto [some, none] = pattern.follow(from, to, room);
    if (some.empty()) return none ? whole : std::string();
    return whole + "(\\.(" + some + "))" + (none ? "?" : "");
  };
  if (high && low.at.whole == high->at.whole) return at_bound(low.at.whole, low.at.fraction, high->at.fraction);
  std::string out = at_bound(low.at.whole, low.at.fraction, std::nullopt);
  const std::string last = high ? high->at.whole : std::string(longest, '9');
  const std::string between = whole_between(plus_one(low.at.whole), high ? minus_one(last) : last);
  if (!between.empty()) out = either(out, "(" + between + ")(\\.[0-9]{1," + std::to_string(room) + "})?");
  if (high) out = either(out, at_bound(high->at.whole, std::nullopt, high->at.fraction));
  return out;
}

struct SignedBound {
  SignedDecimal at;
  bool excluded = false;
};

// "": there is none.
[[nodiscard]] inline std::string numbers_between(const std::optional<SignedBound>& low,
                                                 const std::optional<SignedBound>& high, bool fraction) {
  std::string out;
  if (!high || !high->at.negative) {
    const Bound from = low && !low->at.negative ? Bound{low->at.size, low->excluded} : Bound{};
    out = sizes_between(from, high ? std::optional(Bound{high->at.size, high->excluded}) : std::nullopt, fraction);
    if (!out.empty()) out = "(" + out + ")";
  }
  if (!low || low->at.negative) {
    const Bound from = high && high->at.negative ? Bound{high->at.size, high->excluded} : Bound{{}, true};
    const std::string below =
        sizes_between(from, low ? std::optional(Bound{low->at.size, low->excluded}) : std::nullopt, fraction);
    if (!below.empty()) out = either(out, "-(" + below + ")");
  }
  return out.empty() ? out : "(" + out + ")";
}

}  // namespace rlalgo::serve::detail
