// Texts of a regular expression, byte by byte: which of them a text can still become.
//
//   Pattern pattern("[0-9]{3}-[a-f]+");
//   Pattern::State s = pattern.next(pattern.start(), "12");      pattern.accepts(s) → false
//
// The whole text must match: ^ at the beginning and $ at the end change nothing. Syntax: literals, ., classes with
// ranges and negation, \d \w \s \D \W \S \n \r \t \f \v \0 \xHH \uHHHH, groups, |, * + ? {n} {n,} {n,m}. \d, \w and \s
// are ASCII. Anchors elsewhere, lazy and possessive quantifiers, references and look-around are refused: they say
// nothing of a whole text, or more than an automaton knows.
//
// States are made when they are first reached, from sets of positions in the expression; a text costs one look-up a
// byte afterwards. Beyond 10,000 states, or 4,000,000 positions in them, a text cannot go on. Any thread.
//
// Errors (status 400): [rlalgo.serve.23] an expression that cannot be read, or is too large.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/serve/detail/pattern_positions.hpp>

namespace rlalgo::serve {

class Pattern {
 public:
  using State = std::int32_t;
  static constexpr State dead = -1;

  explicit Pattern(const std::string& expression);

  [[nodiscard]] State start() const noexcept { return 0; }
  // dead: no text of the expression begins so.
  [[nodiscard]] State next(State state, std::string_view bytes) const;
  [[nodiscard]] bool accepts(State state) const;

 private:
  static constexpr State unknown = -2;
  static constexpr std::size_t most_states = 10'000, most_kept = 4'000'000;

  struct Known {
    std::vector<std::int32_t> positions;
    std::array<State, 256> next;
    bool accepts;
  };

  [[nodiscard]] State step(State state, unsigned char byte) const;
  [[nodiscard]] State find(std::vector<std::int32_t> positions) const;

  detail::PatternPositions positions_;
  std::int32_t end_ = 0;
  mutable std::mutex mutex_;
  mutable std::size_t kept_ = 0;  // positions of all states
  mutable std::vector<std::unique_ptr<Known>> known_;
  mutable std::map<std::vector<std::int32_t>, State> states_;
};

// An expression for exactly this text.
[[nodiscard]] std::string escaped(std::string_view text);

// An expression from outside: the control characters by which schema_pattern.hpp marks groups of its own stand for
// themselves.
[[nodiscard]] std::string plain_expression(std::string_view expression);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/pattern_impl.hpp>
#endif
