// Definitions of pattern.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/pattern_positions.hpp>
#include <rlalgo/serve/detail/pattern_reader.hpp>
#include <rlalgo/serve/pattern.hpp>

namespace rlalgo::serve {

RLALGO_INLINE Pattern::Pattern(const std::string& expression) {
  const std::string automaton = expression.substr(0, expression.find(detail::lists_mark));
  end_ = detail::PatternReader(automaton, positions_).read();
  std::vector<std::int32_t> begin = {0};
  detail::close_positions(positions_, begin);
  (void)find(std::move(begin));
}

RLALGO_INLINE Pattern::State Pattern::find(std::vector<std::int32_t> positions) const {
  if (const auto at = states_.find(positions); at != states_.end()) return at->second;
  kept_ += positions.size();
  if (known_.size() >= most_states || kept_ > most_kept) return dead;
  auto state = std::make_unique<Known>();
  state->accepts = std::binary_search(positions.begin(), positions.end(), end_);
  state->next.fill(unknown);
  state->positions = positions;
  const auto number = static_cast<State>(known_.size());
  known_.push_back(std::move(state));
  states_.emplace(std::move(positions), number);
  return number;
}

RLALGO_INLINE Pattern::State Pattern::step(State state, unsigned char byte) const {
  Known& known = *known_[static_cast<std::size_t>(state)];
  if (known.next[byte] != unknown) return known.next[byte];
  std::vector<std::int32_t> reached = detail::reached_positions(positions_, known.positions, byte);
  if (reached.empty()) return known.next[byte] = dead;
  detail::close_positions(positions_, reached);
  return known.next[byte] = find(std::move(reached));
}

RLALGO_INLINE Pattern::State Pattern::next(State state, std::string_view bytes) const {
  const std::lock_guard lock(mutex_);
  for (const char byte : bytes) {
    if (state == dead) return dead;
    state = step(state, static_cast<unsigned char>(byte));
  }
  return state;
}

RLALGO_INLINE bool Pattern::accepts(State state) const {
  const std::lock_guard lock(mutex_);
  return state != dead && known_[static_cast<std::size_t>(state)]->accepts;
}

RLALGO_INLINE std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (detail::is_mark(c)) {
      out += detail::written_mark(c);
      continue;
    }
    if (std::string_view("\\.^$|?*+()[]{}").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

RLALGO_INLINE std::string plain_expression(std::string_view expression) {
  std::string out;
  for (const char c : expression) out += detail::is_mark(c) ? detail::written_mark(c) : std::string(1, c);
  return out;
}

}  // namespace rlalgo::serve
