// Definitions of stateless_group.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/group_failure.hpp>
#include <rlalgo/distributed/detail/within.hpp>
#include <rlalgo/distributed/pickle.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/distributed/stateless_group.hpp>
#include <rlalgo/os/clock.hpp>

namespace rlalgo::distributed {

namespace detail {

inline std::string random_uuid() {
  std::random_device source;
  std::string out;
  for (int i = 0; i < 32; ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) out += '-';
    const unsigned digit = source() & 15U;
    out += "0123456789abcdef"[i == 12 ? 4U : i == 16 ? 8U | (digit & 3U) : digit];
  }
  return out;
}

}  // namespace detail

struct StatelessGroup::State {
  State(const Store& s, int r, int n) : store(s), rank(r), size(n), seen(static_cast<std::size_t>(n)) {}

  static constexpr double lifetime = 3600.0;  // of a value, seconds
  static constexpr double grace = 5.0;        // for an answer of the store, seconds

  const Store store;
  const int rank, size;
  std::int64_t sent = 0;                                   // objects of this rank
  std::vector<std::int64_t> seen;                          // of each other one
  std::deque<std::pair<std::string, os::Stopwatch>> mine;  // values to be removed
  std::atomic<bool> stopped = false;

  static std::string key(int source, std::int64_t i) {
    return "broadcast_from/" + std::to_string(source) + "/" + std::to_string(i);
  }
  [[nodiscard]] std::int64_t& seen_of(int source) { return seen[static_cast<std::size_t>(source)]; }

  void tell(const std::string& pickle) {
    while (!mine.empty() && mine.front().second.seconds() > lifetime) {
      store.erase(mine.front().first);
      mine.pop_front();
    }
    mine.emplace_back(key(rank, sent), os::Stopwatch());
    store.set(key(rank, sent++), pickle);
  }

  // Until `there` says so.
  void wait(const std::string& what, const std::string& found, double seconds, const os::Stopwatch& since,
            const std::function<bool()>& there) const {
    auto pause = std::chrono::microseconds(100);
    while (!there()) {
      if (stopped) detail::group_failed(what, "it was given up", seconds);
      if (since.seconds() >= seconds) detail::group_failed(what, found, seconds);
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(5000));
    }
  }

  std::string hear(int source, const std::string& what, double seconds, const os::Stopwatch& since) {
    const std::string name = key(source, seen_of(source));
    wait(what, "nothing from rank " + std::to_string(source), seconds, since, [&] { return store.has(name); });
    ++seen_of(source);
    return store.get(name);
  }

  std::string broadcast(const std::string& pickle, int source, double seconds) {
    const os::Stopwatch since;
    if (source != rank) return hear(source, "broadcast of an object", seconds, since);
    tell(pickle);
    return pickle;
  }

  // Of all ranks; `also(r)` says that rank r has come in another way.
  void wait_for_all(const std::string& prefix, double seconds, const std::function<bool(int)>& also) const {
    const os::Stopwatch since;
    for (int other = 0; other < size; ++other)
      wait("barrier", "rank " + std::to_string(other) + " did not come", seconds, since,
           [&] { return store.has(prefix + std::to_string(other)) || also(other); });
  }

  void barrier(double seconds) {
    const os::Stopwatch since;
    std::string id = "barrier_" + detail::random_uuid();
    if (rank == 0) {
      tell(pickled_text(id));
    } else {
      const std::optional<std::string> text = text_in(hear(0, "barrier", seconds, since));
      if (!text) return older_barrier(seconds, since);
      id = *text;
    }
    const std::string arrival = "arrival_" + id + "_", departure = "departure_" + id + "_";
    std::set<int> older;  // ranks that broadcast None instead
    const auto came_older = [&](int other) {
      if (rank != 0 || other == 0) return false;
      if (older.contains(other)) return true;
      if (!store.has(key(other, seen_of(other)))) return false;
      ++seen_of(other);
      older.insert(other);
      return true;
    };
    store.set(arrival + std::to_string(rank), "1");
    wait_for_all(arrival, seconds, came_older);
    store.set(departure + std::to_string(rank), "1");
    if (rank != 0) return;
    wait_for_all(departure, seconds, [&](int other) { return older.contains(other); });
    for (int other = 0; other < size; ++other)
      for (const std::string& prefix : {arrival, departure})
        if (!older.contains(other)) store.erase(prefix + std::to_string(other));
  }

  // Rank 0's None has been heard.
  void older_barrier(double seconds, const os::Stopwatch& since) {
    for (int other = 1; other < size; ++other) {
      if (other == rank)
        tell(pickled_none());
      else
        (void)hear(other, "barrier", seconds, since);
    }
  }
};

RLALGO_INLINE StatelessGroup::StatelessGroup(const Store& store, int rank, int size)
    : state_(std::make_shared<State>(store, rank, size)) {}

RLALGO_INLINE int StatelessGroup::rank() const { return state_->rank; }
RLALGO_INLINE int StatelessGroup::size() const { return state_->size; }

RLALGO_INLINE std::string StatelessGroup::broadcast(const std::string& pickle, int source, double seconds) {
  return detail::within(seconds + State::grace, "broadcast of an object", [state = state_, pickle, source, seconds] {
    return state->broadcast(pickle, source, seconds);
  });
}

RLALGO_INLINE void StatelessGroup::barrier(double seconds) {
  // Arrivals and departures have `seconds` each.
  detail::within(2 * seconds + State::grace, "barrier", [state = state_, seconds] { state->barrier(seconds); });
}

RLALGO_INLINE void StatelessGroup::stop() noexcept { state_->stopped = true; }

}  // namespace rlalgo::distributed
