// A calculator as a tool: arithmetic in double precision.
//
//   calculator(expression): + − * / % ** ^ (power), parentheses, unary signs, numbers with digit-group commas
//
// Results are printed with up to 15 significant digits. What is not an expression, a division by zero, or a result that
// is not finite is an error that the model reads.
#pragma once

#include <cctype>
#include <cstddef>
#include <string>
#include <string_view>

#include <rlalgo/environment/tools.hpp>

namespace rlalgo::environment {

namespace detail {

// expression := term (± term)*; term := signed (*,/,% signed)*; signed := ± signed | power; power := atom (** signed)?
class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}

  double value();

 private:
  static constexpr int most_nested = 100;

  [[noreturn]] void fail(const std::string& what) const;
  void skip();
  bool take(std::string_view symbol);

  double expression();

  double term();

  double divisor();

  double with_sign();

  double power();

  double atom();

  double number();

  // Exactly three digits after the comma.
  [[nodiscard]] bool group_follows() const;

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace detail

// The value of an arithmetic expression; throws std::invalid_argument with what is wrong and where.
[[nodiscard]] double calculate(std::string_view expression);

[[nodiscard]] Tool calculator();

}  // namespace rlalgo::environment

#ifndef RLALGO_COMPILED
#include <rlalgo/environment/detail/calculator_impl.hpp>
#endif
