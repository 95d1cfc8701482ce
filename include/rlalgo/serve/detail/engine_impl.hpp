// Definitions of engine.hpp; what is done where something fails is in engine_failures.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/serve/detail/failed_work.hpp>
#include <rlalgo/serve/detail/request_shares.hpp>
#include <rlalgo/serve/engine.hpp>
#include <rlalgo/serve/refusal.hpp>

namespace rlalgo::serve {

namespace detail {

inline double seconds_between(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace detail

RLALGO_INLINE Engine::Engine(const model::DecoderConfig& decoder, Config config, std::vector<data::TokenId> stop_ids)
    : config_(std::move(config)), decoder_(decoder, config_.engine, nullptr, std::move(stop_ids)) {
  if (config_.engine.cache_bytes > 0) {
    const inference::KvCache pages(decoder, config_.engine.cache_element.value_or(inference::CacheElement::float32));
    live_.page_limit = std::max<std::size_t>(1, config_.engine.cache_bytes / pages.page_bytes());
  }
  const std::vector<double> waits = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,  0.75,
                                     1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0};
  live_.first_token_seconds = live_.request_seconds = live_.queue_seconds = Histogram(waits);
  live_.inter_token_seconds = Histogram(
      {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0});
  counts_ = live_;
  thread_ = std::thread([this] { loop(); });
}

RLALGO_INLINE Engine::~Engine() {
  drain(0.0);
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

RLALGO_INLINE void Engine::post(Call call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
  }
  changed_.notify_all();
}

RLALGO_INLINE Engine::Ticket Engine::submit(Work work) {
  auto entry = std::make_shared<std::unique_ptr<Entry>>(std::make_unique<Entry>());
  Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    refuse_if_dead();
    if (draining_) refuse_request(503, 10, {.what = "the server is shutting down", .remedy = "ask another one"});
    // A piece waits in its own queue, whatever its size: that is for its client to wait for.
    if (queued_ > 0 && queued_ >= config_.most_waiting)
      refuse_request(429, 9,
                     {.what = "too many requests wait",
                      .found = std::to_string(queued_) + " and one more",
                      .expected = "at most " + std::to_string(config_.most_waiting),
                      .remedy = "try again in a moment"});
    Entry& e = **entry;
    e.shares = detail::shares_of(work.requests, config_.engine.max_slots);
    e.shares_left.resize(work.requests.size());
    for (const detail::Share& share : e.shares) ++e.shares_left[share.request];
    ticket = next_ticket_++;
    waiting_ += work.requests.size();
    ++queued_;
    ++unfinished_;
    e.ticket = ticket;
    if (work.seconds > 0.0)
      e.deadline = e.arrival + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(work.seconds));
    e.running.resize(e.shares.size());
    e.results.resize(work.requests.size());
    e.last_token.resize(work.requests.size());
    e.work = std::move(work);
    calls_.push_back([this, entry, ticket] {
      const auto at = entries_.emplace(ticket, std::move(*entry)).first;
      queue_.push(at->second->work.client, ticket);
    });
  }
  changed_.notify_all();
  return ticket;
}

RLALGO_INLINE void Engine::cancel(Ticket ticket) {
  post([this, ticket] {
    if (const auto at = entries_.find(ticket); at != entries_.end()) abort_entry(*at->second);
  });
}

RLALGO_INLINE void Engine::call(const std::function<void(inference::DecoderEngine&)>& f, double seconds) {
  struct State {
    std::mutex mutex;
    bool given_up = false;
    std::promise<void> done;
  };
  const auto state = std::make_shared<State>();
  std::future<void> done = state->done.get_future();
  {
    const std::lock_guard lock(mutex_);
    refuse_if_dead();
  }
  post([this, state, f] {
    const std::lock_guard lock(state->mutex);
    if (state->given_up) return;
    try {
      f(decoder_);
      state->done.set_value();
    } catch (...) {
      state->done.set_exception(std::current_exception());
    }
  });
  if (done.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
    const std::lock_guard lock(state->mutex);  // what has begun uses the caller's variables: its end is waited for
    if (done.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      state->given_up = true;
      refuse_request(500, 15, detail::late_call(seconds));
    }
  }
  done.get();
}

RLALGO_INLINE void Engine::pause(PauseMode mode, std::function<void()> done) {
  {
    const std::lock_guard lock(mutex_);
    paused_ = true;
  }
  post([this, mode, done = std::move(done)] {
    {
      const std::lock_guard lock(mutex_);
      if (!paused_) return done();  // resumed before it came to it
    }
    if (mode == PauseMode::abort) {
      while (!entries_.empty()) abort_entry(*entries_.begin()->second);
    }
    frozen_ = mode == PauseMode::keep;
    if (mode != PauseMode::wait || decoder_.scheduler().idle()) return done();
    when_quiet_.push_back(done);
  });
}

RLALGO_INLINE void Engine::resume() {
  {
    const std::lock_guard lock(mutex_);
    paused_ = false;
  }
  post([this] {
    frozen_ = false;
    for (const auto& done : std::exchange(when_quiet_, {})) done();
  });
}

RLALGO_INLINE bool Engine::paused() const {
  const std::lock_guard lock(mutex_);
  return paused_;
}

RLALGO_INLINE std::size_t Engine::abort(const std::vector<std::string>& ids) {
  std::size_t count = 0;
  call([&](inference::DecoderEngine&) {
    std::vector<Ticket> chosen;
    for (const auto& [ticket, entry] : entries_)
      if (ids.empty() || std::find(ids.begin(), ids.end(), entry->work.id) != ids.end()) chosen.push_back(ticket);
    for (const Ticket ticket : chosen)
      if (const auto at = entries_.find(ticket); at != entries_.end()) abort_entry(*at->second);
    count = chosen.size();
  });
  return count;
}

RLALGO_INLINE void Engine::drain(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  resume();
  std::unique_lock lock(mutex_);
  const auto none = [&] { return unfinished_ == 0; };
  if (quiet_.wait_for(lock, std::chrono::duration<double>(seconds), none)) return;
  lock.unlock();
  post([this] {
    while (!entries_.empty()) abort_entry(*entries_.begin()->second);
  });
  lock.lock();
  quiet_.wait_for(lock, std::chrono::seconds(60), none);  // a step that is under way ends first
}

RLALGO_INLINE bool Engine::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

RLALGO_INLINE Engine::Counts Engine::counts() const {
  const std::lock_guard lock(mutex_);
  Counts out = counts_;
  out.pending = waiting_;
  return out;
}

RLALGO_INLINE bool Engine::healthy() const {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  return !stepping_ || detail::seconds_between(step_began_, Clock::now()) < config_.watchdog_seconds;
}

// The engine's thread.

RLALGO_INLINE bool Engine::runnable() {
  return !frozen_ && !failure_ && (!decoder_.scheduler().idle() || (!paused_ && !queue_.empty()));
}

RLALGO_INLINE double Engine::seconds_to_deadline() const {
  double out = 1.0;
  const auto now = Clock::now();
  for (const auto& [ticket, entry] : entries_)
    if (entry->deadline) out = std::min(out, detail::seconds_between(now, *entry->deadline));
  return std::max(out, 0.0);
}

RLALGO_INLINE void Engine::loop() {
  for (;;) {
    std::deque<Call> calls;
    {
      std::unique_lock lock(mutex_);
      if (!runnable())
        changed_.wait_for(lock, std::chrono::duration<double>(seconds_to_deadline()),
                          [&] { return !calls_.empty() || stop_; });
      if (stop_ && calls_.empty()) return;
      std::swap(calls, calls_);
    }
    try {
      serve_round(calls);
    } catch (const std::exception& error) {  // no memory: for what is under way, not for what comes next
      begin_anew(error.what());
    }
  }
}

RLALGO_INLINE void Engine::serve_round(std::deque<Call>& calls) {
  serve_calls(calls);
  watch_deadlines();
  bool go = false;
  {
    const std::lock_guard lock(mutex_);
    go = !paused_;
  }
  if (go) admit();
  if (!frozen_ && !decoder_.scheduler().idle()) step();
  sweep();
  check_device();
  if (!when_quiet_.empty() && decoder_.scheduler().idle())
    for (const auto& done : std::exchange(when_quiet_, {})) done();
  publish_counts();
}

RLALGO_INLINE void Engine::serve_calls(std::deque<Call>& calls) {
  for (; !calls.empty(); calls.pop_front()) try {
      calls.front()();
    } catch (const std::exception& error) {
      begin_anew(error.what());
    }
}

// A few more requests than there are slots, so that a slot that becomes free is taken at once.
RLALGO_INLINE void Engine::admit() {
  const auto enough = static_cast<std::size_t>(2 * config_.engine.max_slots);
  while (!queue_.empty() && scheduled_ < enough) {
    const Ticket ticket = queue_.pop();
    const auto at = entries_.find(ticket);
    if (at == entries_.end()) continue;
    Entry& entry = *at->second;
    submit_next(entry);
    if (entries_.contains(ticket) && entry.next < entry.shares.size()) queue_.push(entry.work.client, ticket);
  }
}

RLALGO_INLINE void Engine::submit_next(Entry& entry) {
  const std::size_t before = entry.waiting(), at = entry.next++;
  const detail::Share share = entry.shares[at];
  inference::RequestSpec spec = detail::spec_of(entry.work.requests[share.request], share);
  spec.on_token = [this, &entry, share](const inference::TokenEvent& event) {
    inference::TokenEvent shifted = event;
    shifted.completion += share.first;
    on_token(entry, share.request, shifted);
  };
  spec.on_end = [this, &entry, at](auto, inference::RequestResult&& result) { on_end(entry, at, std::move(result)); };
  spec.on_failed = [this, &entry, at](auto, const std::exception_ptr& error) { on_failed(entry, at, error); };
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= before - entry.waiting();
    if (entry.waiting() == 0) --queued_;
  }
  if (share.first == 0) live_.queue_seconds.add(detail::seconds_between(entry.arrival, Clock::now()));
  entry.last_token[share.request].resize(static_cast<std::size_t>(entry.work.requests[share.request].count));
  try {
    entry.running[at] = decoder_.scheduler().submit(std::move(spec));
    scheduled_ += static_cast<std::size_t>(share.count);
  } catch (const core::Error& error) {
    const bool refused = error.room() != "tensor";  // not what the request asks, but what the device has
    if (!refused) suspect_ = true;
    fail(entry, Refusal(refused ? 400 : 500, {}, refused ? error : detail::failed_step(error.what())));
  } catch (const std::exception& error) {
    suspect_ = true;
    fail(entry, Refusal(500, {}, detail::failed_step(error.what())));
  }
}

RLALGO_INLINE void Engine::watch_deadlines() {
  const auto now = Clock::now();
  std::vector<Ticket> late;
  for (const auto& [ticket, entry] : entries_)
    if (entry->deadline && *entry->deadline <= now) late.push_back(ticket);
  for (const Ticket ticket : late) {
    Entry& entry = *entries_.at(ticket);
    fail(entry, Refusal(504, {}, detail::late_work(entry.work.seconds)));
  }
}

RLALGO_INLINE void Engine::step() {
  {
    const std::lock_guard lock(mutex_);
    stepping_ = true;
    step_began_ = Clock::now();
  }
  std::string failure;
  try {
    decoder_.scheduler().step();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  {
    const std::lock_guard lock(mutex_);
    stepping_ = false;
  }
  if (!failure.empty()) begin_anew(failure);
}

RLALGO_INLINE void Engine::on_token(Entry& entry, std::size_t index, const inference::TokenEvent& event) {
  const auto now = Clock::now();
  Clock::time_point& last = entry.last_token[index][static_cast<std::size_t>(event.completion)];
  if (last == Clock::time_point())
    live_.first_token_seconds.add(detail::seconds_between(entry.arrival, now));
  else
    live_.inter_token_seconds.add(detail::seconds_between(last, now));
  last = now;
  const auto& sink = entry.work.requests[index].on_token;
  if (!sink || entry.silent || entry.thrown) return;
  try {
    sink(event);
  } catch (const std::exception& error) {
    entry.thrown.emplace("serve", 15, core::ErrorText{.what = "an answer could not be made", .found = error.what()});
    trouble_.push_back(entry.ticket);
  }
}

// `at`: of its shares.
RLALGO_INLINE void Engine::on_end(Entry& entry, std::size_t at, inference::RequestResult&& result) {
  const std::size_t index = entry.shares[at].request;
  entry.running[at].reset();
  scheduled_ -= std::min(scheduled_, result.completions.size());
  for (const inference::CompletionResult& one : result.completions) {
    if (one.completion.finish == data::Finish::stop) ++live_.stopped;
    if (one.completion.finish == data::Finish::length) ++live_.cut;
    if (one.completion.finish == data::Finish::aborted) ++live_.aborted;
  }
  detail::put(entry.results[index], std::move(result), entry.shares[at], entry.work.requests[index].count);
  if (--entry.shares_left[index] == 0) finish(entry, index);
}

// The request has ended.
RLALGO_INLINE void Engine::finish(Entry& entry, std::size_t index) {
  if (++entry.ended == entry.work.requests.size())
    live_.request_seconds.add(detail::seconds_between(entry.arrival, Clock::now()));
  const auto& sink = entry.work.requests[index].on_end;
  if (sink && !entry.silent && !entry.thrown) {
    try {
      sink(0, std::move(entry.results[index]));
    } catch (const std::exception& error) {
      entry.thrown.emplace("serve", 15, core::ErrorText{.what = "an answer could not be made", .found = error.what()});
    }
  }
  if (entry.ended == entry.work.requests.size() || entry.thrown) trouble_.push_back(entry.ticket);
}

// Work that has ended, or whose sinks threw, outside of the scheduler's calls.
RLALGO_INLINE void Engine::sweep() {
  while (!trouble_.empty()) {
    const Ticket ticket = trouble_.back();
    trouble_.pop_back();
    const auto at = entries_.find(ticket);
    if (at == entries_.end()) continue;
    Entry& entry = *at->second;
    if (entry.thrown)
      fail(entry, Refusal(500, {}, *entry.thrown));
    else
      remove(entry);
  }
}

RLALGO_INLINE void Engine::abort_entry(Entry& entry) {
  for (std::size_t i = 0; i < entry.running.size(); ++i)
    if (const auto running = entry.running[i]) decoder_.scheduler().cancel(*running);
  while (entry.next < entry.shares.size()) {
    const std::size_t before = entry.waiting(), at = entry.next++;
    {
      const std::lock_guard lock(mutex_);
      waiting_ -= before - entry.waiting();
      if (entry.waiting() == 0) --queued_;
    }
    scheduled_ += static_cast<std::size_t>(entry.shares[at].count);
    on_end(entry, at, detail::nothing_of(entry.shares[at]));
  }
  if (entry.thrown)
    fail(entry, Refusal(500, {}, *entry.thrown));
  else
    remove(entry);
}

RLALGO_INLINE void Engine::remove(Entry& entry) {
  const std::size_t left = entry.waiting();
  const auto node = entries_.extract(entry.ticket);
  const std::lock_guard lock(mutex_);
  waiting_ -= left;
  if (left > 0) --queued_;
  if (--unfinished_ == 0) quiet_.notify_all();
}

RLALGO_INLINE void Engine::publish_counts() {
  live_.scheduler = decoder_.scheduler().counts();
  const std::lock_guard lock(mutex_);
  counts_ = live_;
}

}  // namespace rlalgo::serve
