// When completions are made, as a choice of assembly/completions.hpp: while training waits (Synchronous), or on a thread of their own
// while it goes on (Asynchronous).
#pragma once

#include <concepts>
#include <memory>

#include <rlalgo/sync/call_schedule.hpp>

namespace rlalgo::assembly {

struct Synchronous {
  static constexpr bool asynchronous = false;
};

struct Asynchronous {
  static constexpr bool asynchronous = true;
  std::shared_ptr<sync::CallSchedule> schedule = {};  // records or repeats which weights a call had; null: neither
};

template <class T>
concept Timing = requires {
  { T::asynchronous } -> std::convertible_to<bool>;  // static, constexpr
};

static_assert(Timing<Synchronous> && Timing<Asynchronous>);

}  // namespace rlalgo::assembly
