// The scheduler on a thread of its own: work comes in from any thread, and is answered through the sinks of its
// requests, on the engine's thread.
//
//   const Engine::Ticket ticket = engine.submit({.requests = …, .on_failed = …});
//   engine.cancel(ticket);                  what is left ends as aborted, its memory is free at once
//   engine.call([](auto& decoder) { … });   between two steps, on the engine's thread; waits for it
//
// A piece of work is what one client asked for at once: a list of prompts. Clients are served round robin, and so are the pieces of one,
// a prompt each, or as many completions of it as there are slots (fair_queue.hpp), so that neither a thousand requests nor a list
// of a thousand prompts nor a thousand completions of one hold others up; within that the scheduler serves in the order of
// arrival. The pieces that wait are bounded (serve.9), and a deadline ends work that takes too long (serve.14).
//
// Exactly one of these is called of every piece of work: on_end of each of its requests, or on_failed once, after which
// none of its sinks is called any more. A sink must not call the engine, but may throw: its work fails.
//
// Where a step or a pass has failed, the device is asked whether it computes at all. One that does not (an address that was not there, a
// fault of the hardware) answers nothing any more in this process: all work ends, none is taken, failure() says why.
//
// Errors: [rlalgo.serve.33] the device computes nothing any more (503); [.9] too much work waits (429); [.10] the engine takes no more work (503); [.14] work that was
// not done in time (504); [.15] a step failed, or a call was not made in time (500).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/serve/detail/request_shares.hpp>
#include <rlalgo/serve/fair_queue.hpp>
#include <rlalgo/serve/histogram.hpp>

namespace rlalgo::serve {

// What a pause does with work under way. `keep`: it stands still; `wait`: it ends first; `abort`: it ends now.
enum class PauseMode { keep, wait, abort };

class Engine {
 public:
  struct Config {
    inference::EngineConfig engine{};
    std::size_t most_waiting = 1024;  // pieces of work of which something is not in the scheduler yet
    double watchdog_seconds = 120.0;  // a step that takes longer: healthy() is false
  };

  struct Work {
    std::string id;           // the name that abort() knows it by
    std::string client = {};  // whose place in the fair queue it takes
    std::vector<inference::RequestSpec> requests;
    std::function<void(const core::Error&)> on_failed;
    double seconds = 0.0;  // from now to the end of its last request; 0 = no limit
  };
  using Ticket = std::uint64_t;

  struct Counts {
    inference::Scheduler::Counts scheduler{};
    std::size_t pending = 0;                                      // requests that are not in the scheduler yet
    std::size_t page_limit = 0;                                   // of the KV cache; 0 = none
    std::uint64_t stopped = 0, cut = 0, aborted = 0, failed = 0;  // requests that have ended, by why
    Histogram first_token_seconds{}, inter_token_seconds{}, request_seconds{}, queue_seconds{};
  };

  Engine(const model::DecoderConfig& decoder, Config config, std::vector<data::TokenId> stop_ids);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  Ticket submit(Work work);
  void cancel(Ticket ticket);

  // Runs `f` between two steps; raises what it raises. Not from the engine's thread.
  void call(const std::function<void(inference::DecoderEngine&)>& f, double seconds = 600.0);

  // `done` is called on the engine's thread: at once, or with PauseMode::wait when nothing is under way any more.
  void pause(PauseMode mode, std::function<void()> done);
  void resume();
  [[nodiscard]] bool paused() const;

  // Ends work of these names as aborted, all of it without names; how many pieces.
  std::size_t abort(const std::vector<std::string>& ids);

  // Takes no more work, and waits for what there is at most `seconds`; then ends it as aborted. A pause is over.
  void drain(double seconds);
  [[nodiscard]] bool draining() const;

  [[nodiscard]] Counts counts() const;
  // False when a step has been under way for longer than the watchdog allows, and when there is a failure().
  [[nodiscard]] bool healthy() const;
  // Why no work will ever be done again, where that is so.
  [[nodiscard]] std::optional<core::Error> failure() const;

 private:
  using Clock = std::chrono::steady_clock;
  // A piece of work, as the engine's thread has it.
  struct Entry {
    Ticket ticket = 0;
    Work work;
    std::vector<detail::Share> shares;                         // of all requests
    std::size_t next = 0;                                      // of the shares, the first that is not in the scheduler
    std::size_t ended = 0;                                     // requests
    std::vector<std::optional<inference::RequestId>> running;  // [shares]
    std::vector<std::size_t> shares_left;                      // [requests]: that have not ended
    std::vector<inference::RequestResult> results;             // [requests]: of several shares, what has ended of them
    std::vector<std::vector<Clock::time_point>> last_token;    // [requests][completions]

    // The requests of which a share is not in the scheduler.
    [[nodiscard]] std::size_t waiting() const {
      return next < shares.size() ? work.requests.size() - shares[next].request : 0;
    }
    Clock::time_point arrival = Clock::now();
    std::optional<Clock::time_point> deadline;
    bool silent = false;  // its sinks are called no more
    std::optional<core::Error> thrown;
  };
  using Call = std::function<void()>;

  void loop();
  void serve_round(std::deque<Call>& calls);
  void serve_calls(std::deque<Call>& calls);
  void begin_anew(const std::string& failure);
  void check_device();
  void end_all(const core::Error& error);
  void refuse_if_dead() const;  // with `mutex_` held
  void admit();
  void submit_next(Entry& entry);
  void finish(Entry& entry, std::size_t index);
  void watch_deadlines();
  void step();
  void on_token(Entry& entry, std::size_t index, const inference::TokenEvent& event);
  void on_failed(Entry& entry, std::size_t at, const std::exception_ptr& error);
  void on_end(Entry& entry, std::size_t index, inference::RequestResult&& result);
  void fail(Entry& entry, const core::Error& error);
  void abort_entry(Entry& entry);
  void remove(Entry& entry);
  void sweep();
  void publish_counts();
  void post(Call call);
  [[nodiscard]] bool runnable();
  [[nodiscard]] double seconds_to_deadline() const;

  Config config_;
  inference::DecoderEngine decoder_;

  // Of the engine's thread:
  std::unordered_map<Ticket, std::unique_ptr<Entry>> entries_;
  FairQueue queue_;              // work with requests that are not in the scheduler yet
  std::vector<Ticket> trouble_;  // work whose sinks threw
  std::size_t scheduled_ = 0;    // completions in the scheduler
  bool frozen_ = false;
  bool suspect_ = false;                           // something has failed since the device was asked
  std::vector<std::function<void()>> when_quiet_;  // pauses that wait for what runs
  Counts live_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_, quiet_;
  std::deque<Call> calls_;
  Ticket next_ticket_ = 1;
  std::size_t waiting_ = 0;     // requests taken of which something is not yet in the scheduler
  std::size_t queued_ = 0;      // pieces of work that have such requests
  std::size_t unfinished_ = 0;  // pieces of work
  bool paused_ = false, draining_ = false, stop_ = false, stepping_ = false;
  Clock::time_point step_began_;
  Counts counts_;
  std::optional<core::Error> failure_;

  std::thread thread_;
};

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/engine_impl.hpp>
#endif
#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/engine_failures.hpp>
#endif
