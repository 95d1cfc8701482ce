// Asynchronous generation: a thread makes the next generations while the optimizer works on the last ones.
//
//   trainer's thread:  publish · next(step): pops generation n · trains …        Trainer::step
//   producer's thread: waits for room · makes generation n + 1 (draws prompts, generates, scores rewards) · pushes
//
// Where there is room for two (depth 2 or more) and its scores do not decide on the next prompts, a generation is scored and
// pushed on a third thread, while the producer's draws the next.
// depth: generations that are ready or under way, at most. So generation n is begun when n − depth is popped, and with R
// optimizer steps for each generation and a sync every s steps its rows are at most ⌈depth·R⌉ + s − 1 updates behind
// when they are first trained on. depth 0 makes each when it is asked for, on the trainer's thread.
// stream_groups: generations are trained on while they are made. Groups are finished so many at a time, and a micro-batch is
// there when its last group is (pull). A generation that the trainer has begun with no longer counts for
// depth; with depth 0 each is made when it is asked for, so that its rows are of the weights that are trained.
// sync_interval: needs_weights(step), after which the trainer publishes, is true before the first generation, and then
// whenever so many steps have passed since the last time; also after a resume, whose generator has no weights yet.
// max_staleness: a generation that is further behind when it is popped is made again with the weights in force, of the
// same prompts; the trainer waits for it. Its rows count in async/dropped. What sampler::Replay put into it has an age of
// its own, and counts here as not stale.
//
// Old log-probs are the trainer's business (RolloutRows::complete). Rows of the very weights that are trained, drawn in
// this process, get NaN for their sampling log-probs: the two numbers are the same but for rounding, and a correction
// (loss::SamplingCorrection) then gives exactly 1.
//
// Threads: the source within, with its generator, rewards and prompt order, belongs to the producer from the first
// open() until it is joined; a generation belongs to the producer until it is pushed, and to the trainer from then on;
// `mutex` guards everything in State. Samplers of one Config::mutex make their generations one at a time, so that an
// evaluation may share generator and rewards with the training; what a sync policy shares with the generator guards
// itself (sync/weight_gate.hpp).
// An exception of the producer is reported at once (Config::tell) and raised by the next open(), with its type and text.
// The destructor asks Config::stop to stop, which generators and servers' clients should watch, and waits for the
// producer.
// State: the source's after the latest generation that is ready, and what is ready with its metrics. What is under way is
// not saved: a resumed run makes it anew, of the same prompts. So no prompt is trained on twice, and none is left out.
//
// Metrics of a step that pops: async/staleness/{mean,max} in updates, over rows; async/queue_depth, ready when it was
// asked for; async/queue_wait_s, for which the trainer waited; async/producer_idle_s, for which the producer waited for
// room; async/dropped, rows made again; async/generate_s and async/reward_s, of making a generation.
//
// Several ranks: each has a producer, which makes its share of every generation (shared.hpp), and they agree on what is made
// next: rank 0's producer says it, and the others follow. A generation is ready on all ranks or on none, so an interruption
// of one is raised where nothing is ready any more, and all ranks are then before the same step. A producer that fails fails
// all ranks at once.
//
// Source: axolotl's AsyncDataProducer, TRL's experimental AsyncGRPO (versions and limits of staleness).
// Departures: the first generation goes the same way as all others; rewards are scored asynchronously, too;
// generations beyond the end of the run are not begun; a failure does not wait for its place in the queue.
// Errors: [rlalgo.sampler.8] settings out of range, or a generator that reads the trainer's own tensors (usage);
// [rlalgo.sampler.9] the producer gives no sign of life; [rlalgo.os.8] a stop was asked for while the trainer waited;
// those of the source.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/activity.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/check_prefetch.hpp>
#include <rlalgo/sampler/detail/prefetch_state.hpp>
#include <rlalgo/sampler/detail/unmoved_rows.hpp>
#include <rlalgo/sampler/generation_batches.hpp>
#include <rlalgo/sampler/open_generation.hpp>
#include <rlalgo/sampler/prefetch_config.hpp>

namespace rlalgo::sampler {

template <class S>
class Prefetch : public GenerationBatches<Prefetch<S>> {
  using Base = GenerationBatches<Prefetch<S>>;
  static_assert(GenerationSource<S>,
                "sampler::Prefetch<Sampler>: the sampler within is no source of generations; it needs `Generator`, "
                "`open(call)`, `draws_ahead() const`, `capture() const`, `restore_source(state)` and `root() const` "
                "(sampler::Rollouts has them)");
  static_assert(!GenerationSource<S> || S::Generator::weights != inference::WeightSource::shared,
                "sampler::Prefetch: this generator reads the trainer's own tensors, which the optimizer writes at the "
                "same time; take inference::SnapshotEngine with sync::SnapshotWeights, or a server");
  friend class GenerationBatches<Prefetch<S>>;

 public:
  using Config = PrefetchConfig;
  using Generator = typename S::Generator;
  static constexpr Hooks hooks{.generates = true, .needs_weights = true, .asynchronous = true, .streams = true};

  Prefetch(PrefetchConfig config, std::shared_ptr<S> source) : config_(std::move(config)), source_(std::move(source)) {
    detail::check_prefetch(config_, inference::source_of(root().generator()));
  }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  ~Prefetch() {
    config_.stop.request_stop();
    end();
  }

  [[nodiscard]] const PrefetchConfig& settings() const noexcept { return config_; }
  [[nodiscard]] const auto& root() const { return source_->root(); }

  // Whether the trainer is to publish before next(step).
  [[nodiscard]] bool needs_weights(std::int64_t step) const {
    if (!asynchronous()) return Base::needs_weights(step);
    return !synced_ || step - *synced_ >= config_.sync_interval;
  }

  // Whether generations are made on a thread of their own.
  [[nodiscard]] bool asynchronous() const noexcept { return config_.depth > 0 || streams(); }
  [[nodiscard]] bool streams() const noexcept { return config_.stream_groups > 0; }

  RolloutBatch next(std::int64_t step) {
    if (!asynchronous()) return Base::next(step);
    if (needs_weights(step)) synced_ = step;
    waited_ = 0.0;
    if (streams()) {
      RolloutBatch batch = Base::begin_stream(step, config_.stream_groups);
      popped_.clear();
      return batch;
    }
    RolloutBatch batch = Base::next(step);
    batch.seconds = {{"wait", waited_}};
    return batch;
  }
  // The next micro-batch of a step that is trained on while it is made.
  void pull(RolloutBatch& batch) {
    Base::pull_stream(batch);
    batch.seconds = {{"wait", waited_}};
  }

  [[nodiscard]] std::unique_ptr<OpenGeneration> open(GenerationCall call) {
    if (!asynchronous())
      return std::make_unique<WholeGeneration>(state_.ready.empty() ? make(std::move(call))
                                                                    : std::move(take(call.number)->made));
    if (!producer_.joinable()) start(call.number);
    return std::make_unique<Popped>(*this, call);
  }
  [[nodiscard]] bool draws_ahead() const { return false; }

  // What was ready when it was called. Packing happens on the caller's thread: nothing here waits for the producer.
  [[nodiscard]] std::function<Json()> capture() const {
    const std::lock_guard lock(state_.mutex);
    std::vector<Made> ready;
    for (const std::shared_ptr<Item>& item : state_.ready)
      if (item->whole()) ready.push_back(item->made);
    return [source = state_.captured ? state_.captured : source_->capture(), ready = std::move(ready)] {
      Json out = source();
      if (!ready.empty()) out["queue"] = Base::pack_all(ready);
      return out;
    };
  }

  void restore_source(const Json& state) {
    std::vector<Made> ready = Base::unpack_all(state.value("queue", Json::array()));
    for (std::size_t i = 1; i < ready.size(); ++i)
      if (ready[i].number != ready[i - 1].number + 1) detail::raise_state("a queue with a gap");
    end();
    source_->restore_source(state);
    state_.captured = nullptr;
    state_.failure = nullptr;
    state_.given_up = false;
    state_.stale = false;
    state_.scoring = 0;
    state_.ready.clear();
    for (Made& made : ready) {
      const std::size_t rows = made.generation->episodes.size();
      state_.ready.push_back(std::make_shared<Item>(Item{std::move(made), rows}));
    }
    popped_.clear();
    synced_.reset();
  }

 private:
  using Item = detail::PrefetchItem;
  using State = detail::PrefetchState;
  using Popping = detail::Popping;

  // --- the trainer's thread

  // A generation of the queue, as far as it is made.
  class Popped final : public OpenGeneration {
   public:
    Popped(Prefetch& prefetch, const GenerationCall& call) : prefetch_(prefetch), step_(call.step) {
      const os::Stopwatch watch;
      item_ = prefetch.pop(call.number, call.step, popping_);
      wait(watch);
      made_.number = call.number;
      if (prefetch.streams()) prefetch.popped_.push_back(item_);
    }
    std::size_t pull() override {
      const os::Stopwatch watch;
      const std::size_t had = finished(), rows = prefetch_.await(*item_, had, step_, made_);
      wait(watch);
      prefetch_.settle(*made_.generation, had, rows, step_);
      if (rows == made_.generation->episodes.size()) detail::tell_about(made_, step_, popping_, prefetch_.state_);
      return finish_rows(rows);
    }

   private:
    void wait(const os::Stopwatch& watch) {
      const double seconds = watch.seconds();
      popping_.waited += seconds;
      prefetch_.waited_ += seconds;
    }

    Prefetch& prefetch_;
    std::int64_t step_;
    Popping popping_;
    std::shared_ptr<Item> item_;
  };

  void start(std::int64_t first) {
    state_.alive = std::chrono::steady_clock::now();
    state_.captured = source_->capture();
    if (!state_.ready.empty()) first = state_.ready.back()->made.number + 1;
    ending_ = std::stop_source();
    if (config_.world) config_.world->while_waiting([this, stop = ending_.get_token()] { waits_for_others(stop); });
    producer_ = std::jthread([this, first, stop = ending_.get_token()] { produce_all(first, stop); });
  }

  // What is under way is awaited.
  void end() {
    ending_.request_stop();
    state_.changed.notify_all();
    if (producer_.joinable()) producer_.join();
    producer_ = {};
  }

  std::shared_ptr<Item> pop(std::int64_t number, std::int64_t step, Popping& popping) {
    std::unique_lock lock(state_.mutex);
    state_.asked = number;
    state_.changed.notify_all();
    for (;;) {
      if (state_.failure && (!state_.given_up || state_.ready.empty() || state_.stale))
        std::rethrow_exception(state_.failure);
      if (!popping.ready) popping.ready = static_cast<double>(state_.ready_whole());
      if (!state_.ready.empty() && !state_.stale) {
        if (const Item& front = *state_.ready.front(); !too_old(front, step)) {
          std::shared_ptr<Item> item = take(number);
          lock.unlock();
          state_.changed.notify_all();
          return item;
        } else if (front.whole()) {
          popping.dropped += static_cast<double>(front.rows);
          state_.stale = true;
          state_.changed.notify_all();
        }
      }
      wait_a_little(lock, step);
    }
  }

  // Waits for more rows than `had`; `made`: what is known of them.
  std::size_t await(const Item& item, std::size_t had, std::int64_t step, Made& made) {
    std::unique_lock lock(state_.mutex);
    while (item.rows == had) {
      if (state_.failure) std::rethrow_exception(state_.failure);
      wait_a_little(lock, step);
    }
    made.generation = item.made.generation;
    if (item.whole()) made = item.made;
    return item.rows;
  }

  void wait_a_little(std::unique_lock<std::mutex>& lock, std::int64_t step) {
    const core::Activity waiting("waiting for completions");
    detail::check_alive(state_, config_);
    if (state_.changed.wait_for(lock, std::chrono::milliseconds(100)) != std::cv_status::timeout) return;
    if (!config_.meanwhile) return;
    lock.unlock();
    config_.meanwhile(step);
    lock.lock();
  }

  // With the mutex held, as the next three; or without a producer.
  std::shared_ptr<Item> take(std::int64_t number) {
    std::shared_ptr<Item> item = std::move(state_.ready.front());
    state_.ready.pop_front();
    if (item->made.number != number)
      detail::raise_state("a queue that does not go on with the next generation", std::to_string(item->made.number),
                          std::to_string(number));
    return item;
  }

  [[nodiscard]] bool too_old(const Item& item, std::int64_t step) const {
    if (config_.max_staleness < 0) return false;
    const Generation& generation = *item.made.generation;
    for (std::size_t i = 0; i < item.rows; ++i)
      if (!generation.is_replayed(i) && step - generation.episodes[i].first().weights_version > config_.max_staleness)
        return true;
    return false;
  }

  // Of the rows [begin, end).
  void settle(Generation& generation, std::size_t begin, std::size_t end, std::int64_t step) const {
    if (!inference::draws_as_trained(root().generator())) return;
    detail::forget_sampling(generation, begin, end, step);
  }

  // Put back what a failed step had popped, before everything else.
  void take_back(std::vector<Made> made) {
    const std::lock_guard lock(state_.mutex);
    if (streams()) {
      for (auto item = popped_.rbegin(); item != popped_.rend(); ++item) state_.ready.push_front(*item);
      popped_.clear();
      return;
    }
    for (auto one = made.rbegin(); one != made.rend(); ++one) {
      const std::size_t rows = one->generation->episodes.size();
      state_.ready.push_front(std::make_shared<Item>(Item{std::move(*one), rows}));
    }
  }

  // --- the producer's thread

  void produce_all(std::int64_t next, const std::stop_token& stop) {
    std::future<void> scoring;  // of the generation that was drawn last; it ends before this thread does
    guarded(stop, [&] {
      for (;;) {
        const auto number = next_work(next, stop);
        if (!number || (config_.begin && !config_.begin(*number, stop))) return;
        if (*number == next) {
          overlaps() ? draw_next(next, scoring, stop) : make_next(next);
          ++next;
        } else {
          if (scoring.valid()) scoring.get();
          replace_stale(make({.number = *number, .step = step_of(*number)}));
        }
      }
    });
  }

  template <class Work>
  void guarded(const std::stop_token& stop, Work&& work) {
    try {
      work();
    } catch (const std::exception& e) {
      detail::fail(state_, config_, stop, e.what());
    } catch (...) {
      detail::fail(state_, config_, stop, "an exception of a type of its own");
    }
  }

  [[nodiscard]] bool overlaps() const {
    return config_.depth > 1 && !streams() && !config_.world && source_->draws_ahead();
  }

  // The same on all ranks.
  std::optional<std::int64_t> next_work(std::int64_t next, const std::stop_token& stop) {
    if (!config_.world) return detail::wait_for_work(state_, config_, next, stop);
    const bool leads = config_.world->rank() == 0;
    const auto own = leads ? detail::wait_for_work(state_, config_, next, stop) : std::nullopt;
    if (leads && !own) return std::nullopt;  // the end: the others learn it from their own trainers
    const std::int64_t number =
        std::stoll(config_.world->broadcast("the next generation", leads ? std::to_string(*own) : std::string()));
    if (number != next) wait_until_stale(stop);
    return number;
  }

  // What rank 0's trainer found too old, this rank's will.
  void wait_until_stale(const std::stop_token& stop) {
    std::unique_lock lock(state_.mutex);
    while (!state_.stale) {
      state_.alive = std::chrono::steady_clock::now();
      if (stop.stop_requested()) os::raise_interrupted("os", 8, {.what = "the generation has ended"});
      state_.changed.wait_for(lock, std::chrono::milliseconds(100));
    }
  }

  // Another rank's producer is watched by its own trainer.
  void waits_for_others(const std::stop_token& stop) {
    if (stop.stop_requested()) os::raise_interrupted("os", 8, {.what = "the generation has ended"});
    const std::lock_guard lock(state_.mutex);
    state_.alive = std::chrono::steady_clock::now();
  }

  // With what samplers share locked; of several ranks the source does that (SharedConfig::mutex).
  template <class Work>
  auto exclusively(Work&& work) {
    std::unique_lock<std::mutex> making, scoring;
    if (!config_.world) {
      making = std::unique_lock(*config_.mutex);
      scoring = std::unique_lock(*config_.scoring_mutex);
    }
    return work();
  }
  Made make(GenerationCall call) {
    return exclusively([&] { return finish(*source_->open(std::move(call))); });
  }

  // Makes generation `number`, and puts it into the queue: when it is whole, or with its first groups.
  void make_next(std::int64_t number) {
    std::shared_ptr<Item> item;
    Made made = exclusively([&] {
      const auto open = source_->open({.number = number, .step = step_of(number), .groups = config_.stream_groups});
      for (open->pull(); !open->whole(); open->pull()) item = show(*open, std::move(item));
      return std::move(open->made());
    });
    push(std::move(made), item, 0);
  }

  // The rows of it that are finished, in the queue.
  std::shared_ptr<Item> show(OpenGeneration& open, std::shared_ptr<Item> item) {
    {
      const std::lock_guard lock(state_.mutex);
      state_.alive = std::chrono::steady_clock::now();
      if (item == nullptr) {
        item = std::make_shared<Item>();
        item->made.number = open.made().number;
        item->made.generation = open.made().generation;
        state_.ready.push_back(item);
      }
      item->rows = open.finished();
    }
    state_.changed.notify_all();
    return item;
  }

  // Draws generation `number`, and has it scored and put into the queue while the next one is drawn.
  void draw_next(std::int64_t number, std::future<void>& scoring, const std::stop_token& stop) {
    std::unique_lock making(*config_.mutex);
    std::shared_ptr<OpenGeneration> drawn = source_->open({.number = number, .step = step_of(number)});
    drawn->draw();
    making.unlock();
    if (scoring.valid()) scoring.get();
    {
      const std::lock_guard lock(state_.mutex);
      state_.alive = std::chrono::steady_clock::now();
      state_.scoring = 1;
    }
    scoring = std::async(std::launch::async, [this, stop, drawn = std::move(drawn)] {
      guarded(stop, [&] {
        Made made = [&] {
          const std::lock_guard scored(*config_.scoring_mutex);
          return finish(*drawn);
        }();
        push(std::move(made), nullptr, 1);
      });
    });
  }

  // `item`: of the queue, or null: it is not there yet. `scored`: 1 where another thread scored it, else 0.
  void push(Made made, std::shared_ptr<Item> item, std::int64_t scored) {
    {
      const std::lock_guard lock(state_.mutex);
      state_.alive = std::chrono::steady_clock::now();
      if (item == nullptr) state_.ready.push_back(item = std::make_shared<Item>());
      item->rows = made.generation->episodes.size();
      item->made = std::move(made);
      state_.captured = source_->capture();
      state_.scoring -= scored;
    }
    state_.changed.notify_all();
  }

  // The optimizer step that trains on generation `number` first.
  [[nodiscard]] std::int64_t step_of(std::int64_t number) const {
    const Geometry& g = Base::geometry();
    return number * g.micro_steps() / g.gradient_accumulation_steps;
  }

  // The first generation of the queue, made again.
  void replace_stale(Made made) {
    {
      const std::lock_guard lock(state_.mutex);
      state_.alive = std::chrono::steady_clock::now();
      state_.ready.front()->made = std::move(made);
      state_.stale = false;
      state_.captured = source_->capture();
    }
    state_.changed.notify_all();
  }

  PrefetchConfig config_;
  std::shared_ptr<S> source_;
  std::optional<std::int64_t> synced_;         // the step of the latest publish of this process
  double waited_ = 0.0;                        // for the rows of this step
  std::vector<std::shared_ptr<Item>> popped_;  // streamed generations that this step popped
  State state_;
  std::stop_source ending_;
  std::jthread producer_;  // last: it uses all the others
};

}  // namespace rlalgo::sampler
