// Definitions of calculator.hpp.
#pragma once

#include <cctype>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/environment/calculator.hpp>
#include <rlalgo/environment/tools.hpp>

namespace rlalgo::environment {

namespace detail {

RLALGO_INLINE double Arithmetic::value() {
  const double out = expression();
  skip();
  if (at_ != text_.size()) fail("unexpected '" + std::string(1, text_[at_]) + "'");
  return out;
}

RLALGO_INLINE void Arithmetic::fail(const std::string& what) const {
  throw std::invalid_argument(what + " at position " + std::to_string(at_));
}

RLALGO_INLINE void Arithmetic::skip() {
  while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
}

RLALGO_INLINE bool Arithmetic::take(std::string_view symbol) {
  skip();
  if (!text_.substr(at_).starts_with(symbol)) return false;
  at_ += symbol.size();
  return true;
}

RLALGO_INLINE double Arithmetic::expression() {
  double out = term();
  for (;;) {
    if (take("+"))
      out += term();
    else if (take("-"))
      out -= term();
    else
      return out;
  }
}

RLALGO_INLINE double Arithmetic::term() {
  double out = with_sign();
  for (;;) {
    skip();
    if (text_.substr(at_).starts_with("**")) return out;
    if (take("*")) {
      out *= with_sign();
    } else if (take("/")) {
      out /= divisor();
    } else if (take("%")) {
      const double by = divisor();
      out = out - by * std::floor(out / by);  // the sign of the divisor, as Python's
    } else {
      return out;
    }
  }
}

RLALGO_INLINE double Arithmetic::divisor() {
  const double out = with_sign();
  if (out == 0.0) throw std::invalid_argument("division by zero");
  return out;
}

RLALGO_INLINE double Arithmetic::with_sign() {
  if (++depth_ > most_nested) fail("too deeply nested");
  double out = 0.0;
  if (take("+"))
    out = with_sign();
  else if (take("-"))
    out = -with_sign();
  else
    out = power();
  --depth_;
  return out;
}

RLALGO_INLINE double Arithmetic::power() {
  const double base = atom();
  return take("**") || take("^") ? std::pow(base, with_sign()) : base;
}

RLALGO_INLINE double Arithmetic::atom() {
  if (take("(")) {
    const double out = expression();
    if (!take(")")) fail("expected ')'");
    return out;
  }
  return number();
}

RLALGO_INLINE double Arithmetic::number() {
  skip();
  std::string digits;
  bool point = false;
  for (; at_ < text_.size(); ++at_) {
    const char c = text_[at_];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      digits += c;
    } else if (c == '.' && !point) {
      point = true;
      digits += c;
    } else if (!(c == ',' && !point && !digits.empty() && group_follows())) {
      break;
    }
  }
  if (digits.empty() || digits == ".") fail("expected a number");
  return std::strtod(digits.c_str(), nullptr);
}

RLALGO_INLINE bool Arithmetic::group_follows() const {
  for (std::size_t i = 1; i <= 3; ++i)
    if (at_ + i >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_ + i])) == 0) return false;
  return at_ + 4 >= text_.size() || std::isdigit(static_cast<unsigned char>(text_[at_ + 4])) == 0;
}

}  // namespace detail

RLALGO_INLINE double calculate(std::string_view expression) {
  const double out = detail::Arithmetic(expression).value();
  if (!std::isfinite(out)) throw std::invalid_argument("the result is not a finite number");
  return out;
}

RLALGO_INLINE Tool calculator() {
  return {.schema =
              {{"name", "calculator"},
               {"description", "Evaluates an arithmetic expression."},
               {"parameters",
                {{"type", "object"},
                 {"properties",
                  {{"expression",
                    {{"type", "string"},
                     {"description", "The expression, with + - * / % ** and parentheses, for example (2 + 3) * 4."}}}}},
                 {"required", Json::array({"expression"})}}}},
          .run = [](const Json& arguments) {
            const auto expression = arguments.find("expression");
            if (expression == arguments.end() || !expression->is_string())
              throw std::invalid_argument("calculator needs a string 'expression'");
            char text[40];
            const double value = calculate(expression->get_ref<const std::string&>());
            std::snprintf(text, sizeof text, "%.15g", value == 0.0 ? 0.0 : value);
            return std::string(text);
          }};
}

}  // namespace rlalgo::environment
