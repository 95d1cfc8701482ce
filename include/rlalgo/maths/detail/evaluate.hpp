// The value of a formula: exactly in a prime field, or in complex floating point.
//
// Field: integers, decimals, + − · / and whole powers, with a pseudo-random element for every symbol. Two formulas that
// are the same rational function agree in every field; two that are not agree by accident with probability of about
// degree/2^61 (Schwartz and Zippel), so this decides equality of numbers of any length and of polynomials and
// fractions. Floating point: everything else (roots, logarithms, π, …), at pseudo-random real values of the symbols.
// The points come from Philox keyed by the symbol's name: the same formula has the same value in every run.
#pragma once

#include <cmath>
#include <complex>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/maths/detail/node.hpp>
#include <rlalgo/maths/detail/work.hpp>

namespace rlalgo::maths::detail {

inline std::uint64_t name_hash(std::string_view name) {  // FNV-1a
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

inline std::uint64_t random_bits(std::string_view name, std::uint64_t point) {
  const auto block = core::philox({.seed = name_hash(name), .stream = core::Stream::data}, 0, point);
  return (static_cast<std::uint64_t>(block[0]) << 32) | block[1];
}

// --- Exact, modulo 2^61 − 1 ----------------------------------------------------------------------------------------
using Residue = std::uint64_t;
inline constexpr Residue modulus = (1ULL << 61) - 1;

inline Residue multiplied(Residue a, Residue b) {
  return static_cast<Residue>(static_cast<unsigned __int128>(a) * b % modulus);
}
inline Residue raised(Residue base, std::uint64_t exponent) {
  Residue result = 1;
  for (; exponent > 0; exponent >>= 1, base = multiplied(base, base))
    if (exponent & 1) result = multiplied(result, base);
  return result;
}
inline Residue inverse(Residue a) { return raised(a, modulus - 2); }

// A whole number that fits, when the formula is one.
inline std::optional<std::int64_t> whole_number(const Node& node) {
  switch (node.kind) {
    case Kind::number: {
      if (node.text.size() > 15) return std::nullopt;
      std::int64_t value = 0;
      bool fraction = false;
      for (const char c : node.text) {
        if (c == '.')
          fraction = true;
        else if (!fraction)
          value = value * 10 + (c - '0');
        else if (c != '0')
          return std::nullopt;
      }
      return value;
    }
    case Kind::negate:
      if (const auto value = whole_number(*node.parts[0])) return -*value;
      return std::nullopt;
    case Kind::add:
    case Kind::multiply: {
      std::int64_t total = node.kind == Kind::add ? 0 : 1;
      for (const NodePtr& part : node.parts) {
        const auto value = whole_number(*part);
        if (!value) return std::nullopt;
        const bool overflow = node.kind == Kind::add ? __builtin_add_overflow(total, *value, &total)
                                                     : __builtin_mul_overflow(total, *value, &total);
        if (overflow) return std::nullopt;
      }
      return total;
    }
    default:
      return std::nullopt;
  }
}

// Nothing when the formula is no rational function, or divides by zero.
inline std::optional<Residue> field_value(const Node& node, std::uint64_t point) {
  MathsWork::charge(8 + node.text.size());
  const auto part = [&](std::size_t i) { return field_value(*node.parts[i], point); };
  switch (node.kind) {
    case Kind::number: {
      Residue value = 0;
      std::uint64_t decimals = 0;
      bool fraction = false;
      for (const char c : node.text) {
        if (c == '.') {
          fraction = true;
          continue;
        }
        value = (multiplied(value, 10) + static_cast<Residue>(c - '0')) % modulus;
        if (fraction) ++decimals;
      }
      return multiplied(value, inverse(raised(10, decimals)));
    }
    case Kind::symbol:
    case Kind::word:
      return random_bits(node.text, point) % modulus;
    case Kind::pi:
      return random_bits("\\pi", point) % modulus;
    case Kind::euler:
      return random_bits("\\e", point) % modulus;
    case Kind::add: {
      Residue sum = 0;
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const auto value = part(i);
        if (!value) return std::nullopt;
        sum = (sum + *value) % modulus;
      }
      return sum;
    }
    case Kind::multiply: {
      Residue product = 1;
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const auto value = part(i);
        if (!value) return std::nullopt;
        product = multiplied(product, *value);
      }
      return product;
    }
    case Kind::negate:
      if (const auto value = part(0)) return (modulus - *value) % modulus;
      return std::nullopt;
    case Kind::percent:
      if (const auto value = part(0)) return multiplied(*value, inverse(100));
      return std::nullopt;
    case Kind::divide: {
      const auto above = part(0), below = part(1);
      if (!above || !below || *below == 0) return std::nullopt;
      return multiplied(*above, inverse(*below));
    }
    case Kind::power: {
      const auto base = part(0);
      const auto exponent = whole_number(*node.parts[1]);
      if (!base || !exponent || (*base == 0 && *exponent <= 0)) return std::nullopt;
      const Residue value = raised(*base, static_cast<std::uint64_t>(*exponent < 0 ? -*exponent : *exponent));
      return *exponent < 0 ? inverse(value) : value;
    }
    case Kind::factorial: {
      const auto n = whole_number(*node.parts[0]);
      if (!n || *n < 0 || *n > 100000) return std::nullopt;
      MathsWork::charge(static_cast<std::size_t>(*n));
      Residue value = 1;
      for (std::int64_t k = 2; k <= *n; ++k) value = multiplied(value, static_cast<Residue>(k));
      return value;
    }
    case Kind::function: {
      if (node.text == "binom") {
        const auto n = whole_number(*node.parts[0]), k = whole_number(*node.parts[1]);
        if (!n || !k || *n < 0 || *n > 100000) return std::nullopt;
        if (*k < 0 || *k > *n) return Residue{0};
        MathsWork::charge(static_cast<std::size_t>(*k));
        Residue above = 1, below = 1;
        for (std::int64_t i = 1; i <= *k; ++i) {
          above = multiplied(above, static_cast<Residue>(*n - *k + i));
          below = multiplied(below, static_cast<Residue>(i));
        }
        return multiplied(above, inverse(below));
      }
      if (!node.text.starts_with("call ")) return std::nullopt;
      std::string arguments = node.text;  // f(x): a function of its arguments' values
      for (std::size_t i = 0; i < node.parts.size(); ++i) {
        const auto value = part(i);
        if (!value) return std::nullopt;
        arguments += "," + std::to_string(*value);
      }
      return random_bits(arguments, 0) % modulus;
    }
    default:
      return std::nullopt;
  }
}

// --- Floating point ------------------------------------------------------------------------------------------------
using Complex = std::complex<long double>;
inline constexpr long double no_number = std::numeric_limits<long double>::quiet_NaN();

inline Complex complex_value(const Node& node, std::uint64_t point);

inline Complex function_value(const Node& node, std::uint64_t point) {
  const std::string& f = node.text;
  const Complex x = complex_value(*node.parts[0], point);
  if (f == "sqrt") {
    if (node.parts.size() == 1) return std::sqrt(x);
    const Complex n = complex_value(*node.parts[1], point);
    return std::pow(x, 1.0L / n);
  }
  if (f == "log") return std::log(x) / std::log(complex_value(*node.parts[1], point));
  if (f == "ln") return std::log(x);
  if (f == "exp") return std::exp(x);
  if (f == "abs") return std::abs(x);
  if (f == "sin") return std::sin(x);
  if (f == "cos") return std::cos(x);
  if (f == "tan") return std::tan(x);
  if (f == "cot") return 1.0L / std::tan(x);
  if (f == "sec") return 1.0L / std::cos(x);
  if (f == "csc") return 1.0L / std::sin(x);
  if (f == "sinh") return std::sinh(x);
  if (f == "cosh") return std::cosh(x);
  if (f == "tanh") return std::tanh(x);
  if (f == "arcsin") return std::asin(x);
  if (f == "arccos") return std::acos(x);
  if (f == "arctan") return std::atan(x);
  if (f == "floor" && x.imag() == 0) return std::floor(x.real());
  if (f == "ceil" && x.imag() == 0) return std::ceil(x.real());
  if ((f == "max" || f == "min" || f == "gcd" || f == "lcm")) {
    long double best = x.real();
    for (std::size_t i = 1; i < node.parts.size(); ++i) {
      const long double y = complex_value(*node.parts[i], point).real();
      if (f == "max") best = std::fmax(best, y);
      if (f == "min") best = std::fmin(best, y);
      if (f == "gcd" || f == "lcm") {
        long double a = std::fabs(best), b = std::fabs(y);
        if (!(a < 1e15L && b < 1e15L) || a != std::floor(a) || b != std::floor(b)) return {no_number, 0};
        const long double product = a * b;
        while (b > 0) {
          const long double rest = std::fmod(a, b);
          a = b;
          b = rest;
        }
        best = f == "gcd" ? a : (a > 0 ? product / a : 0);
      }
    }
    return best;
  }
  if (f == "binom") {
    const Complex k = complex_value(*node.parts[1], point);
    if (x.imag() != 0 || k.imag() != 0) return {no_number, 0};
    return std::exp(std::lgamma(x.real() + 1) - std::lgamma(k.real() + 1) - std::lgamma(x.real() - k.real() + 1));
  }
  if (f.starts_with("call ")) {
    std::string arguments = f;
    for (const NodePtr& p : node.parts) {
      const Complex value = complex_value(*p, point);
      arguments += "," + std::to_string(static_cast<double>(value.real())) + "," +
                   std::to_string(static_cast<double>(value.imag()));
    }
    return static_cast<long double>(random_bits(arguments, 0) >> 11) * 0x1p-53L + 0.5L;
  }
  return {no_number, 0};
}

// NaN where the formula has no value.
inline Complex complex_value(const Node& node, std::uint64_t point) {
  MathsWork::charge(8 + node.text.size());
  const auto part = [&](std::size_t i) { return complex_value(*node.parts[i], point); };
  switch (node.kind) {
    case Kind::number:
      return std::strtold(node.text.c_str(), nullptr);
    case Kind::symbol:
    case Kind::word: {  // in ±[0.3, 2.3)
      const std::uint64_t bits = random_bits(node.text, point);
      const long double size = 0.3L + 2.0L * static_cast<long double>(bits >> 11) * 0x1p-53L;
      return (point + (bits & 1)) % 2 == 0 ? size : -size;
    }
    case Kind::pi:
      return 3.14159265358979323846264338327950288L;
    case Kind::euler:
      return 2.71828182845904523536028747135266250L;
    case Kind::imaginary:
      return {0.0L, 1.0L};
    case Kind::infinity:
      return std::numeric_limits<long double>::infinity();
    case Kind::add: {
      Complex sum = 0;
      for (std::size_t i = 0; i < node.parts.size(); ++i) sum += part(i);
      return sum;
    }
    case Kind::multiply: {
      Complex product = 1;
      for (std::size_t i = 0; i < node.parts.size(); ++i) product *= part(i);
      return product;
    }
    case Kind::negate:
      return -part(0);
    case Kind::percent:
      return part(0) / 100.0L;
    case Kind::divide: {
      const Complex below = part(1);
      if (below == Complex(0)) return {no_number, 0};
      return part(0) / below;
    }
    case Kind::power: {
      const Complex base = part(0);
      if (const auto exponent = whole_number(*node.parts[1]); exponent && std::llabs(*exponent) <= 64) {
        Complex value = 1;
        for (std::int64_t k = 0; k < std::llabs(*exponent); ++k) value *= base;
        if (*exponent >= 0) return value;
        return value == Complex(0) ? Complex(no_number) : 1.0L / value;
      }
      const Complex exponent = part(1);
      if (base == Complex(0)) return exponent.real() > 0 ? Complex(0) : Complex(no_number);
      if (base.imag() == 0 && base.real() > 0 && exponent.imag() == 0) return std::pow(base.real(), exponent.real());
      return std::pow(base, exponent);
    }
    case Kind::factorial: {
      const Complex n = part(0);
      return n.imag() == 0 ? Complex(std::tgamma(n.real() + 1)) : Complex(no_number);
    }
    case Kind::function:
      return function_value(node, point);
    default:
      return {no_number, 0};
  }
}

inline bool holds_symbols(const Node& node) {
  MathsWork::charge(1);
  if (node.kind == Kind::symbol || node.kind == Kind::word) return true;
  if (node.kind == Kind::function && node.text.starts_with("call ")) return true;
  for (const NodePtr& part : node.parts)
    if (part && holds_symbols(*part)) return true;
  return false;
}

// The real value of a formula without symbols; infinities count.
inline std::optional<long double> constant(const Node& node) {
  if (holds_symbols(node)) return std::nullopt;
  if (node.kind == Kind::infinity) return std::numeric_limits<long double>::infinity();
  if (node.kind == Kind::negate && node.parts[0]->kind == Kind::infinity)
    return -std::numeric_limits<long double>::infinity();
  const Complex value = complex_value(node, 0);
  if (!std::isfinite(value.real()) || std::fabs(value.imag()) > 1e-12L * (1 + std::fabs(value.real())))
    return std::nullopt;
  return value.real();
}

}  // namespace rlalgo::maths::detail
