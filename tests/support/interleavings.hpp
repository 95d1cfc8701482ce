// Walks every interleaving of a model of threads: states and what may happen next, without threads.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <support/catch.hpp>

namespace rlalgo::support {

struct Walk {
  std::size_t states = 0, ends = 0;
};

// State: copyable, with `std::string key() const`, equal for states that are the same; `std::vector<State> next() const`, one for each
// step that may happen; `bool ended() const`. Every state that can be reached has a step or has ended, and an end can be reached from
// it: nothing waits for ever, however the threads are scheduled.
template <class State>
Walk walk(const State& first) {
  std::map<std::string, std::size_t> known;
  std::vector<State> states;
  std::vector<std::vector<std::size_t>> before;
  const auto number_of = [&](const State& state) {
    const auto [at, fresh] = known.try_emplace(state.key(), states.size());
    if (fresh) {
      states.push_back(state);
      before.emplace_back();
    }
    return at->second;
  };
  number_of(first);
  Walk out;
  std::vector<std::size_t> reaching;
  std::vector<bool> reaches;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::vector<State> next = states[i].next();
    INFO("state " << states[i].key());
    REQUIRE((states[i].ended() || !next.empty()));
    if (states[i].ended()) {
      ++out.ends;
      reaching.push_back(i);
    }
    for (const State& one : next) before[number_of(one)].push_back(i);
  }
  reaches.assign(states.size(), false);
  for (const std::size_t i : reaching) reaches[i] = true;
  while (!reaching.empty()) {
    const std::size_t at = reaching.back();
    reaching.pop_back();
    for (const std::size_t i : before[at])
      if (!reaches[i]) {
        reaches[i] = true;
        reaching.push_back(i);
      }
  }
  for (std::size_t i = 0; i < states.size(); ++i) {
    INFO("state " << states[i].key());
    REQUIRE(reaches[i]);
  }
  out.states = states.size();
  return out;
}

}  // namespace rlalgo::support
