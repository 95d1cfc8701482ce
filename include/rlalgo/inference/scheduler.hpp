// The upper half of the engine: requests come and go at any time, and every step is one pass over what there is to do.
//
//   submit(request) → id      step()      cancel(id)      drain()
//
// Each step computes one row for every decoding completion and up to prefill_rows of prompts, and draws a token for
// each completion that is ready. While more prompt tokens wait than go into one pass, those that decode are held up, so
// that a burst of requests gets its first tokens early; they draw at the latest after prefill_ahead prompt tokens.
// Requests are served in the order of arrival. A completion starts when a slot and the
// memory for it are there; a slot is a row of the pass, memory is what limits the number of requests in work. When the
// memory is short, the youngest completion gives its pages back (preemption) and is computed again, prompt and what was
// drawn, when there is room; its tokens stay. Completions of one request share the pages of their prompt; requests with
// a common prefix under the same weights share it through the prefix cache, at any distance in time.
//
// Requests on different weights (versions, adapters) keep them to their end. Within a step each goes in a pass of its own; where the device
// can (JoinedForward), those on one base that decode go in one pass, and the prompts of each behind it.
//
// Reproducibility: a logit depends on weights and tokens alone (forward.hpp), a draw on the request's key and indices.
// So the tokens and log-probs of a request are the same bits whatever else comes and goes, in whichever order,
// with cache hits and preemption or without.
//
// A pass that fails (a kernel, the device's memory, logits that are not finite) ends the requests that had a row in it, where they have a
// sink for that (RequestSpec::on_failed); what was computed with their weights is not found again in the prefix cache. Where memory is
// refused for the pages of a request, it alone ends. Where it is refused for a pass, the youngest prompt of it ends, and the pass is
// computed without it; not where sequences carry a state, which a pass changes.
//
// Where a device computes apart from the host, a request without stop strings hears of a token while the next pass is computed, at its end or
// at the end of a step without a pass.
//
// One thread at a time. An error out of step() (a pass of a request without that sink, a sink that throws) leaves requests in an
// unknown state: clear() forgets them all.
//
// Errors: [rlalgo.inference.5] logits that are not finite; [.7] a setting out of range; [.10] a request that no step
// could serve within the memory; [.1–4] and [.11–12] what else a request may not ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/inference/detail/append_token.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/inference/detail/draw_batch.hpp>
#include <rlalgo/inference/detail/later_tokens.hpp>
#include <rlalgo/inference/detail/roster.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/detail/weight_groups.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

class Scheduler {
 public:
  using Config = SchedulerConfig;
  using TextStreams = std::function<TextStream()>;  // makes the decoder of one completion

  struct Counts {
    std::size_t running = 0, waiting = 0;                // completions with a slot; requests that want one
    std::size_t pages_in_use = 0, pages_kept = 0;        // of the KV cache: by completions; by the prefix cache alone
    std::uint64_t prompt_tokens = 0, cached_tokens = 0;  // of prompts so far, and how many came from the prefix cache
    std::uint64_t drawn_tokens = 0, preemptions = 0;
  };

  // All must outlive the scheduler; `cache` is used by no one else.
  Scheduler(const model::DecoderConfig& decoder, Forward& forward, KvCache& cache, os::ThreadPool& pool,
            SchedulerConfig config = {}, TextStreams text = nullptr);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The weights of requests that bring none.
  void set_weights(Forward::WeightsHandle weights) { weights_ = std::move(weights); }

  // The values named by `contents` are no more: nothing computed with them will be reused.
  void forget(std::uint64_t contents);
  void reset_prefix_cache();
  // Forgets all prefixes and gives back the memory of the KV cache that no request uses.
  void release_memory();

  RequestId submit(RequestSpec spec);

  // Ends what the request has left as aborted; false = it has ended before.
  bool cancel(RequestId id);

  [[nodiscard]] bool idle() const noexcept { return requests_.empty(); }

  // A pass for each set of weights in use; where several on one base decode, one for them and one for the prompts of each. False when
  // nothing was left to do.
  bool step();

  void drain();

  // Forgets all requests without a word to their sinks.
  void clear();

  [[nodiscard]] Counts counts() const;

 private:
  // Reserves all that the request will fill.
  void prepare(detail::Scheduled& request);

  // Who runs.

  void enqueue(detail::Scheduled& request);

  // Gives free slots to the next completions, oldest request first, while there is memory to begin with.
  void admit();

  bool may_start(const detail::Scheduled& request);

  // A resumed completion whose prompt nobody else needs is a sequence of its own.
  void resume_alone(std::size_t k);

  // The completion at the k-th oldest goes on from its complete prompt: takes its first token, and pages of its own.
  // False when it has left order_.
  bool proceed(std::size_t k, bool may_preempt);

  // Frees the pages of prompts that no slot waits for, or of somebody younger than the k-th oldest.
  bool make_room(std::size_t k);

  bool release_idle_prompt(const detail::Scheduled* but);

  void preempt(std::size_t k);

  // Takes the slot at the k-th oldest from its completion. What it has computed stays in the prefix cache.
  void vacate(std::size_t k);

  // One pass.

  using Group = std::span<const Forward::WeightsHandle>;
  // Who has rows in a pass.
  struct Pass {
    Group decoding;                                   // that can stand in one
    const Forward::WeightsHandle* prompts = nullptr;  // null: no prompts
    bool hold_up = false;                             // prompts go first

    [[nodiscard]] const Forward::Weights& any() const { return decoding.empty() ? **prompts : *decoding.front(); }
    [[nodiscard]] bool begins(const Forward::WeightsHandle& weights) const {
      return prompts != nullptr && *prompts == weights;
    }
  };

  // The passes of weights that decode in one; how many rows they had.
  std::size_t step_of(Group group);

  // How many rows it had.
  std::size_t run_pass(const Pass& pass);

  void compute(const Pass& pass);

  // All rows, without the youngest prompts where there is no memory for them.
  void run_rows(const Pass& pass);

  // Ends the requests of this pass, or throws `error`.
  void fail_pass(const Pass& pass, const std::exception_ptr& error);

  // f() for a request: where that throws, the request ends behind the pass.
  template <class F>
  void for_one(detail::Scheduled& request, const F& f) {
    try {
      f();
    } catch (...) {
      request.failed = std::current_exception();
      some_failed_ = true;
    }
  }

  // Ends requests that failed by themselves, or throws why the first did.
  void end_failed();
  void end_failed(RequestId id, const std::exception_ptr& error);

  // Pages of a sequence of the request, which has a row in this pass then.
  bool extend(detail::Scheduled& request, KvCache::Sequence& sequence, std::int64_t count);

  // The rows of this pass: decoding completions, then prompts and what is computed again, all oldest first.
  void collect(const Pass& pass);

  void add_decoding(Group group);

  void add_prompts(const Forward::WeightsHandle& weights);

  std::int64_t add_prompt_rows(std::size_t k, std::int64_t budget);

  // Tokens of a completion that are known and not in the cache: after a preemption, or given.
  std::int64_t add_rows_again(std::size_t k, std::int64_t budget);

  // Pages for `count` positions more. Pages of rows that are collected already cannot be taken from their owners.
  bool claim(std::size_t k, KvCache::Sequence& sequence, std::int64_t count);

  // The rows of the last `count` positions of a slot's sequence, of those weights of the pass. A row is asked for the token after it, if that is not
  // known yet.
  void add_rows(std::size_t k, std::int64_t count, std::size_t weights);

  // The state behind the last collected row of a completion goes with its page.
  void save_behind(detail::Slot& slot, std::int64_t position);

  // What the logits say.

  void take(detail::Draw& draw);

  // Appends a token to the completion of the k-th oldest slot; true when that was its last and the slot is free.
  bool accept(std::size_t k, Drawn drawn, const std::vector<TokenLogProb>* top);

  void end(detail::Scheduled& request);

  model::DecoderConfig decoder_;
  SchedulerConfig config_;
  TextStreams text_;
  Forward& forward_;
  KvCache& cache_;
  PrefixCache prefixes_;
  Forward::WeightsHandle weights_;
  std::unordered_map<RequestId, std::unique_ptr<detail::Scheduled>> requests_;
  RequestId next_id_ = 0;
  std::deque<detail::Scheduled*> queue_;  // that want slots, oldest first
  detail::Roster roster_;
  std::int64_t longest_ = 0;
  bool starved_ = false;      // somebody with a slot waits for pages
  std::int64_t ahead_ = 0;    // prompt tokens computed since somebody is held up
  bool may_hold_up_ = false;  // in this step
  bool some_failed_ = false;  // requests, by themselves
  Counts counts_;
  // Of this pass:
  std::uint64_t pass_ = 0;       // its number
  detail::WeightGroups groups_;  // of this step
  std::vector<Row> rows_;
  struct Prompt {
    detail::Scheduled* request;
    std::size_t row, wanted;  // where its part of each begins
  };
  std::vector<Prompt> prompts_;
  std::vector<detail::Draw> wanted_;  // `row` is that of rows_
  detail::DrawBatch draws_;
  detail::LaterTokens later_;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/scheduler_impl.hpp>
#endif
#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/scheduler_passes.hpp>
#endif
