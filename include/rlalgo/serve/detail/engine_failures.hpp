// Definitions of engine.hpp: what is done where something fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/serve/detail/failed_work.hpp>
#include <rlalgo/serve/engine.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

RLALGO_INLINE std::optional<core::Error> Engine::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

RLALGO_INLINE void Engine::refuse_if_dead() const {
  if (failure_) throw Refusal(503, {}, *failure_);
}

// The scheduler knows no more what belongs to whom: every request ends with the error, and it begins anew.
RLALGO_INLINE void Engine::begin_anew(const std::string& failure) {
  suspect_ = true;
  end_all(detail::failed_step(failure));
}

RLALGO_INLINE void Engine::end_all(const core::Error& error) {
  decoder_.scheduler().clear();
  decoder_.scheduler().reset_prefix_cache();
  for (auto& [ticket, entry] : entries_) entry->running.assign(entry->running.size(), std::nullopt);
  scheduled_ = 0;
  while (!entries_.empty()) fail(*entries_.begin()->second, Refusal(500, {}, error));
}

// Where something has failed: whether the device will ever answer again. A wait for it is a step that does not end.
RLALGO_INLINE void Engine::check_device() {
  if (!std::exchange(suspect_, false)) return;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    stepping_ = true;
    step_began_ = Clock::now();
  }
  std::optional<core::Error> dead;
  try {
    decoder_.check_device();
  } catch (const std::exception& error) {
    dead = detail::dead_device(error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    stepping_ = false;
    failure_ = dead;
  }
  if (dead) end_all(*dead);
}

// A pass with a row of it failed.
RLALGO_INLINE void Engine::on_failed(Entry& entry, std::size_t at, const std::exception_ptr& error) {
  entry.running[at].reset();
  scheduled_ -= std::min(scheduled_, static_cast<std::size_t>(entry.shares[at].count));
  suspect_ = true;
  if (!entry.thrown) entry.thrown.emplace(detail::failed_step(detail::text_of(error)));
  trouble_.push_back(entry.ticket);
}

RLALGO_INLINE void Engine::fail(Entry& entry, const core::Error& error) {
  entry.silent = true;
  for (std::optional<inference::RequestId>& id : entry.running)
    if (const auto running = std::exchange(id, std::nullopt)) decoder_.scheduler().cancel(*running);
  ++live_.failed;
  if (entry.work.on_failed) {
    try {
      entry.work.on_failed(error);
    } catch (const std::exception&) {
      // Nobody is left who could be answered.
    }
  }
  remove(entry);
}

}  // namespace rlalgo::serve
