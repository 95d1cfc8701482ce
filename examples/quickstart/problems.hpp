// Arithmetic word problems in the format of GSM8K, made from counters: problem i of a seed is always the same text.
//
// A problem has a right solution ("… = 7 pears.\n#### 7"). `sloppy_solution` writes what a careless pupil would hand
// in: right in some cases, else the wrong operation, a slip in the result, or no final "####" line. Pre-training on
// sloppy solutions leaves a model that knows the numbers and the format but samples the right answer less than half of
// the time: what reinforcement learning then has to sharpen.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include <rlalgo/core/philox.hpp>

namespace quickstart {

// Draws of one problem: a counter over Philox uniforms keyed by (seed, problem index).
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t problem) : seed_(seed), problem_(problem) {}
  int between(int low, int high) {  // inclusive
    return low + static_cast<int>(unit() * (high - low + 1));
  }
  double unit() { return rlalgo::core::uniform({seed_, rlalgo::core::Stream::data}, problem_, count_++); }
  template <std::size_t n>
  std::string_view pick(const std::array<std::string_view, n>& options) {
    return options[static_cast<std::size_t>(between(0, static_cast<int>(n) - 1))];
  }

 private:
  std::uint64_t seed_, problem_, count_ = 0;
};

struct Problem {
  std::string question;
  std::string items;  // what is counted
  int x = 0, y = 0;
  char operation = '+';  // '+', '-', '*'
  int result = 0;
};

inline int apply(char operation, int x, int y) { return operation == '+' ? x + y : operation == '-' ? x - y : x * y; }

inline std::string step(int x, char operation, int y, int result, std::string_view items) {
  return std::to_string(x) + " " + operation + " " + std::to_string(y) + " = " + std::to_string(result) + " " +
         std::string(items) + ".";
}

inline Problem make_problem(std::uint64_t seed, std::uint64_t index) {
  static constexpr std::array<std::string_view, 12> people = {"Ada",  "Ben",  "Chen", "Dana", "Emil", "Fay",
                                                              "Gita", "Hugo", "Ines", "Jon",  "Kira", "Liam"};
  static constexpr std::array<std::string_view, 10> things = {"pears", "books", "coins",   "stamps",  "shells",
                                                              "cards", "plums", "marbles", "pencils", "buttons"};
  Draw draw(seed, index);
  Problem p;
  const std::string who(draw.pick(people));
  std::string other(draw.pick(people));
  if (other == who) other = "Mia";
  p.items = std::string(draw.pick(things));
  const int kind = draw.between(0, 5);
  const auto number = [&](int low, int high) { return draw.between(low, high); };
  if (kind <= 1) {
    p.operation = '+';
    p.x = number(2, 12);
    p.y = number(2, 12);
    p.question = kind == 0
                     ? who + " has " + std::to_string(p.x) + " " + p.items + ". " + other + " gives " + who + " " +
                           std::to_string(p.y) + " more. How many " + p.items + " does " + who + " have now?"
                     : who + " finds " + std::to_string(p.x) + " " + p.items + " on Monday and " + std::to_string(p.y) +
                           " on Tuesday. How many " + p.items + " does " + who + " find in all?";
  } else if (kind <= 3) {
    p.operation = '-';
    p.y = number(2, 9);
    p.x = p.y + number(1, 10);
    p.question = kind == 2 ? who + " had " + std::to_string(p.x) + " " + p.items + " and lost " + std::to_string(p.y) +
                                 ". How many " + p.items + " are left?"
                           : who + " has " + std::to_string(p.x) + " " + p.items + " and gives " + std::to_string(p.y) +
                                 " to " + other + ". How many " + p.items + " does " + who + " keep?";
  } else {
    p.operation = '*';
    p.x = number(2, 5);
    p.y = number(2, 6);
    p.question = kind == 4 ? who + " fills " + std::to_string(p.x) + " boxes with " + std::to_string(p.y) + " " +
                                 p.items + " each. How many " + p.items + " are in the boxes?"
                           : std::to_string(p.x) + " friends bring " + std::to_string(p.y) + " " + p.items +
                                 " each. How many " + p.items + " do they bring together?";
  }
  p.result = apply(p.operation, p.x, p.y);
  return p;
}

inline std::string right_solution(const Problem& p) {
  return step(p.x, p.operation, p.y, p.result, p.items) + "\n#### " + std::to_string(p.result);
}

// Right with probability 0.4; else the wrong operation 0.25, a slip of one or two 0.2, or no "####" line 0.15.
inline std::string sloppy_solution(const Problem& p, Draw& draw) {
  const double u = draw.unit();
  if (u < 0.40) return right_solution(p);
  if (u < 0.65) {
    const char wrong = p.operation == '+' ? (draw.unit() < 0.5 ? '-' : '*') : '+';
    const int x = wrong == '-' && p.x < p.y ? p.y : p.x;
    const int y = wrong == '-' && p.x < p.y ? p.x : p.y;
    const int result = apply(wrong, x, y);
    return step(x, wrong, y, result, p.items) + "\n#### " + std::to_string(result);
  }
  if (u < 0.85) {
    const int slip = p.result + (draw.unit() < 0.5 ? 1 : -1) * draw.between(1, 2);
    const int result = slip < 0 ? p.result + 1 : slip;
    return step(p.x, p.operation, p.y, result, p.items) + "\n#### " + std::to_string(result);
  }
  return step(p.x, p.operation, p.y, p.result, p.items);
}

}  // namespace quickstart
