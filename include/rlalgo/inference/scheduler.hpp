// The upper half of the engine: requests come and go at any time, and every step is one pass over what there is to do.
//
//   submit(request) → id      step()      cancel(id)      drain()
//
// Each step computes one row for every decoding completion and up to prefill_rows of prompts, and draws a token for
// each completion that is ready. Requests are served in the order of arrival. A completion starts when a slot and the
// memory for it are there; a slot is a row of the pass, memory is what limits the number of requests in work. When the
// memory is short, the youngest completion gives its pages back (preemption) and is computed again, prompt and what was
// drawn, when there is room; its tokens stay. Completions of one request share the pages of their prompt; requests with
// a common prefix under the same weights share it through the prefix cache, at any distance in time.
//
// Requests on different weights (versions, adapters) go in passes of their own within a step, and keep their weights to
// their end.
//
// Reproducibility: a logit depends on weights and tokens alone (forward.hpp), a draw on the request's key and indices.
// So the tokens and log-probs of a request are the same bits whatever comes and goes beside it, in whichever order,
// with cache hits and preemption or without.
//
// One thread at a time. An error out of step() (logits that are not finite, a sink that throws) leaves requests in an
// unknown state: clear() forgets them all.
//
// Errors: [rlalgo.inference.5] logits that are not finite; [.7] a setting out of range; [.10] a request that no step
// could serve within the memory; [.1–4] and [.11–12] what else a request may not ask.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/thread_pool.hpp>
#include <rlalgo/inference/detail/append_token.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/inference/detail/draw_batch.hpp>
#include <rlalgo/inference/detail/roster.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder_config.hpp>

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
  Scheduler(const model::DecoderConfig& decoder, Forward& forward, KvCache& cache, core::ThreadPool& pool,
            SchedulerConfig config = {}, TextStreams text = nullptr)
      : decoder_(decoder),
        config_(detail::checked(std::move(config), forward)),
        text_(std::move(text)),
        forward_(forward),
        cache_(cache),
        prefixes_(cache),
        roster_(config_.max_slots),
        draws_(forward, pool, decoder.vocab_size, config_.max_slots) {
    if (config_.cache_bytes > 0) cache_.limit(std::max<std::size_t>(1, config_.cache_bytes / cache_.page_bytes()));
    rows_.reserve(static_cast<std::size_t>(config_.max_slots + config_.prefill_rows));
    wanted_.reserve(rows_.capacity());
    passes_.reserve(static_cast<std::size_t>(config_.max_slots));
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // The weights of requests that bring none.
  void set_weights(Forward::WeightsHandle weights) { weights_ = std::move(weights); }

  // The values named by `contents` are no more: nothing computed with them will be reused.
  void forget(std::uint64_t contents) {
    prefixes_.drop(contents);
    for (auto& [id, request] : requests_)
      if (request->spec.weights->contents == contents) request->indexed = false;
  }
  void reset_prefix_cache() {
    prefixes_.clear();
    for (auto& [id, request] : requests_) request->indexed = false;
  }

  RequestId submit(RequestSpec spec) {
    detail::check_request(decoder_, spec, text_ != nullptr);
    if (!spec.weights) spec.weights = weights_;
    auto owned = std::make_unique<detail::Scheduled>();
    detail::Scheduled& request = *owned;
    request.id = next_id_++;
    request.spec = std::move(spec);
    request.room = detail::room_of(decoder_, request.spec);
    detail::check_memory(cache_, request.prompt_size(), request.room);
    prepare(request);
    requests_.emplace(request.id, std::move(owned));
    enqueue(request);
    return request.id;
  }

  // Ends what the request has left as aborted; false = it has ended before.
  bool cancel(RequestId id) {
    const auto at = requests_.find(id);
    if (at == requests_.end()) return false;
    detail::Scheduled& request = *at->second;
    std::vector<bool> live(static_cast<std::size_t>(request.spec.count), false);
    for (std::int64_t j = request.started; j < request.spec.count; ++j) live[static_cast<std::size_t>(j)] = true;
    for (const std::int64_t j : request.preempted) live[static_cast<std::size_t>(j)] = true;
    for (std::size_t k = roster_.size(); k-- > 0;)
      if (roster_[k].request == &request) {
        live[static_cast<std::size_t>(roster_[k].completion)] = true;
        vacate(k);
      }
    for (std::size_t j = 0; j < live.size(); ++j)
      if (live[j]) {
        request.result.completions[j].completion.finish = data::Finish::aborted;
        detail::end_text(request, j);
      }
    request.preempted.clear();
    request.started = request.spec.count;
    end(request);
    return true;
  }

  [[nodiscard]] bool idle() const noexcept { return requests_.empty(); }

  // One pass for each set of weights in use. False when nothing was left to do.
  bool step() {
    if (idle()) return false;
    admit();
    starved_ = false;
    passes_.clear();
    for (std::size_t k = 0; k < roster_.size(); ++k) {
      const Forward::WeightsHandle& weights = roster_[k].request->spec.weights;
      if (std::find(passes_.begin(), passes_.end(), weights) == passes_.end()) passes_.push_back(weights);
    }
    for (const Forward::WeightsHandle& weights : passes_) pass(weights);
    passes_.clear();
    return true;
  }

  void drain() {
    while (step()) {
    }
  }

  // Forgets all requests without a word to their sinks.
  void clear() {
    while (!roster_.empty()) {
      cache_.release(roster_[0].sequence);
      roster_.remove(0);
    }
    queue_.clear();
    passes_.clear();
    for (auto& [id, request] : requests_) cache_.release(request->prompt);
    requests_.clear();
  }

  [[nodiscard]] Counts counts() const {
    Counts out = counts_;
    out.running = roster_.size();
    out.waiting = queue_.size();
    out.pages_in_use = cache_.pages_in_use();
    out.pages_kept = prefixes_.kept();
    return out;
  }

 private:
  // Reserves all that the request will fill.
  void prepare(detail::Scheduled& request) {
    const RequestSpec& spec = request.spec;
    if (!spec.ignore_eos) request.end_ids = config_.eos_ids;
    request.end_ids.insert(request.end_ids.end(), spec.sampling.stop_ids.begin(), spec.sampling.stop_ids.end());
    const auto count = static_cast<std::size_t>(spec.count);
    request.result.completions.resize(count);
    for (CompletionResult& one : request.result.completions) {
      one.completion.ids.reserve(static_cast<std::size_t>(std::min<std::int64_t>(request.room, 4096)));
      one.completion.log_probs.reserve(one.completion.ids.capacity());
      one.completion.weights_version = spec.weights->version;
      if (spec.text || !spec.stop_strings.empty()) request.texts.push_back({text_(), StopStrings(spec.stop_strings)});
    }
    request.first.resize(count);
    if (spec.top_log_probs > 0) request.first_top.resize(count);
    request.indexed = config_.prefix_cache;
    KvCache::reserve(request.prompt, request.prompt_size());
    draws_.reserve(count);
    if (const std::int64_t length = request.prompt_size() + request.room; length > longest_) {
      longest_ = length;
      forward_.reserve(longest_);
      roster_.reserve(longest_);
    }
    counts_.prompt_tokens += static_cast<std::uint64_t>(request.prompt_size());
  }

  // Who runs.

  void enqueue(detail::Scheduled& request) {
    if (std::exchange(request.queued, true)) return;
    const auto at = std::upper_bound(queue_.begin(), queue_.end(), &request,
                                     [](const auto* a, const auto* b) { return a->id < b->id; });
    queue_.insert(at, &request);
  }

  // Gives free slots to the next completions, oldest request first, while there is memory to begin with.
  void admit() {
    while (!queue_.empty() && !roster_.full()) {
      detail::Scheduled& request = *queue_.front();
      if (!may_start(request)) return;
      std::int64_t completion = request.started;
      if (request.preempted.empty()) {
        ++request.started;
      } else {
        const auto next = std::min_element(request.preempted.begin(), request.preempted.end());
        completion = *next;
        request.preempted.erase(next);
      }
      const std::size_t k = roster_.add(request, completion);
      if (!request.wants_slots()) {
        request.queued = false;
        queue_.pop_front();
      }
      if (request.complete)
        proceed(k, false);
      else if (!request.completion(completion).ids.empty() && request.heirs() == 1)
        resume_alone(k);
    }
  }

  bool may_start(const detail::Scheduled& request) {
    if (cache_.limit() == 0) return true;
    if (starved_ && !roster_.empty()) return false;
    const bool begun = request.complete || request.running > 0;
    const std::size_t own = begun ? 2 : KvCache::pages_for(request.prompt_size() + 1) + 1;
    while (!cache_.available(own + roster_.promised_pages()))
      if (!roster_.empty() || !release_idle_prompt(&request)) return roster_.empty();
    return true;
  }

  // A resumed completion whose prompt nobody else needs is a sequence of its own.
  void resume_alone(std::size_t k) {
    detail::Slot& slot = roster_[k];
    detail::Scheduled& request = *slot.request;
    roster_.settle(k);
    if (request.prompt.length > 0) cache_.transfer(request.prompt, slot.sequence);
    if (request.indexed && slot.sequence.length == 0)
      prefixes_.match(request.spec.weights->contents, slot.tokens(), slot.tokens().size() - 1, slot.sequence);
  }

  // The completion at the k-th oldest goes on from its complete prompt: takes its first token, and pages of its own.
  // False when it has left order_.
  bool proceed(std::size_t k, bool may_preempt) {
    detail::Slot& slot = roster_[k];
    detail::Scheduled& request = *slot.request;
    if (request.completion(slot.completion).ids.empty()) {
      const auto j = static_cast<std::size_t>(slot.completion);
      if (accept(k, request.first[j], request.first_top.empty() ? nullptr : &request.first_top[j])) return false;
    }
    if (request.heirs() == 1) {
      cache_.transfer(request.prompt, slot.sequence);
      request.complete = false;
    } else {
      while (!cache_.fork(request.prompt, slot.sequence))
        if (!may_preempt || !make_room(k)) {
          starved_ = true;
          return true;
        }
    }
    roster_.settle(k);
    return true;
  }

  // Frees the pages of prompts that no slot waits for, or of somebody younger than the k-th oldest.
  bool make_room(std::size_t k) {
    if (release_idle_prompt(nullptr)) return true;
    if (k + 1 >= roster_.size()) return false;
    preempt(roster_.size() - 1);
    return true;
  }

  bool release_idle_prompt(const detail::Scheduled* but) {
    for (auto at = queue_.rbegin(); at != queue_.rend(); ++at) {
      detail::Scheduled& request = **at;
      if (&request == but || request.waiting > 0 || request.prompt.pages.empty()) continue;
      cache_.release(request.prompt);
      request.complete = false;
      return true;
    }
    return false;
  }

  void preempt(std::size_t k) {
    detail::Scheduled& request = *roster_[k].request;
    request.preempted.push_back(roster_[k].completion);
    ++counts_.preemptions;
    vacate(k);
    enqueue(request);
  }

  // Takes the slot at the k-th oldest from its completion. What it has computed stays in the prefix cache.
  void vacate(std::size_t k) {
    detail::Slot& slot = roster_[k];
    if (slot.request->indexed && slot.sequence.length > 0)
      prefixes_.insert(slot.request->spec.weights->contents, slot.tokens(), slot.sequence);
    cache_.release(slot.sequence);
    roster_.remove(k);
  }

  // One pass.

  void pass(const Forward::WeightsHandle& weights) {
    collect(weights);
    if (rows_.empty()) return;
    forward_.run(*weights, rows_);
    for (std::size_t k = 0; k < roster_.size(); ++k) {
      detail::Scheduled& request = *roster_[k].request;
      if (request.spec.weights != weights || !roster_[k].waits || request.complete) continue;
      if (request.indexed) prefixes_.insert(weights->contents, {request.spec.prompt}, request.prompt);
      request.complete = request.prompt.length == request.prompt_size();
    }
    for (std::size_t begin = 0; begin < wanted_.size();) {
      begin += draws_.answer(*weights, std::span<const detail::Draw>(wanted_).subspan(begin));
      for (detail::Draw& draw : draws_.answers()) take(draw);
    }
    for (std::size_t k = 0; k < roster_.size();) {
      const detail::Slot& slot = roster_[k];
      const bool ready = slot.waits && slot.request->complete && slot.request->spec.weights == weights;
      if (!ready || proceed(k, false)) ++k;
    }
  }

  // The rows of this pass: decoding completions, then prompts and what is computed again, all oldest first.
  void collect(const Forward::WeightsHandle& weights) {
    rows_.clear();
    wanted_.clear();
    for (std::size_t k = 0; k < roster_.size(); ++k) {
      detail::Slot& slot = roster_[k];
      if (slot.waits || slot.request->spec.weights != weights || slot.uncomputed() != 1) continue;
      bool room = cache_.extend(slot.sequence, 1);
      while (!room && make_room(k)) room = cache_.extend(slot.sequence, 1);
      if (room)
        add_rows(k, 1);
      else if (roster_.size() > 1)
        preempt(k--);
      else
        starved_ = true;
    }
    std::int64_t budget = config_.prefill_rows;
    const detail::Scheduled* last = nullptr;
    for (std::size_t k = 0; k < roster_.size() && budget > 0; ++k) {
      detail::Slot& slot = roster_[k];
      detail::Scheduled& request = *slot.request;
      if (request.spec.weights != weights) continue;
      if (slot.waits && request.complete) {  // there was no page to begin with
        if (!proceed(k, rows_.empty())) --k;
      } else if (slot.waits && std::exchange(last, &request) != &request) {
        budget -= add_prompt_rows(k, budget);
      } else if (!slot.waits && slot.uncomputed() > 1) {
        budget -= add_rows_again(k, budget);
      }
    }
  }

  std::int64_t add_prompt_rows(std::size_t k, std::int64_t budget) {
    detail::Scheduled& request = *roster_[k].request;
    const RequestSpec& spec = request.spec;
    if (request.prompt.length == 0 && request.indexed && !spec.prompt_log_probs) {
      const std::int64_t found =
          prefixes_.match(spec.weights->contents, {spec.prompt}, request.prompt_size() - 1, request.prompt);
      if (!request.drawn) {
        request.result.cached_tokens = found;
        counts_.cached_tokens += static_cast<std::uint64_t>(found);
      }
    }
    const std::int64_t begin = request.prompt.length;
    const std::int64_t take = std::min(budget, request.prompt_size() - begin);
    if (!claim(k, request.prompt, take)) return 0;
    const auto known = static_cast<std::int64_t>(request.result.prompt_log_probs.size());
    for (std::int64_t p = begin; p < begin + take; ++p) {
      const bool last = p + 1 == request.prompt_size();
      if (last ? !request.drawn : spec.prompt_log_probs && p >= known)
        wanted_.push_back({.kind = last ? detail::Draw::Kind::first : detail::Draw::Kind::prompt,
                           .request = &request,
                           .index = last ? 0 : p + 1,
                           .row = static_cast<std::int64_t>(rows_.size())});
      rows_.push_back({spec.prompt[static_cast<std::size_t>(p)], p, request.prompt.pages.data()});
    }
    return take;
  }

  // Tokens of a completion that are known and not in the cache: after a preemption, or given.
  std::int64_t add_rows_again(std::size_t k, std::int64_t budget) {
    detail::Slot& slot = roster_[k];
    const std::int64_t take = std::min(budget, slot.uncomputed());
    if (!claim(k, slot.sequence, take)) return 0;
    add_rows(k, take);
    return take;
  }

  // Pages for `count` positions more. Pages of rows that are collected already cannot be taken from their owners.
  bool claim(std::size_t k, KvCache::Sequence& sequence, std::int64_t count) {
    while (!cache_.extend(sequence, count))
      if (!rows_.empty() || !make_room(k)) {
        starved_ = true;
        return false;
      }
    return true;
  }

  // The rows of the last `count` positions of a slot's sequence. A row is asked for the token after it, if that is not
  // known yet.
  void add_rows(std::size_t k, std::int64_t count) {
    detail::Slot& slot = roster_[k];
    const TokenView tokens = slot.tokens();
    const auto drawn = static_cast<std::int64_t>(slot.request->completion(slot.completion).ids.size());
    for (std::int64_t p = slot.sequence.length - count; p < slot.sequence.length; ++p) {
      const std::int64_t index = p + 1 - slot.request->prompt_size();
      if (index >= drawn)
        wanted_.push_back({.kind = detail::Draw::Kind::next,
                           .request = slot.request,
                           .slot = roster_.index(k),
                           .completion = slot.completion,
                           .index = index,
                           .row = static_cast<std::int64_t>(rows_.size())});
      rows_.push_back({tokens[p], p, slot.sequence.pages.data()});
    }
  }

  // What the logits say.

  void take(detail::Draw& draw) {
    detail::Scheduled& request = *draw.request;
    if (draw.kind == detail::Draw::Kind::prompt) {
      request.result.prompt_log_probs.push_back({draw.drawn.id, draw.drawn.log_prob});
      if (*request.spec.prompt_log_probs > 0) request.result.prompt_top.push_back(draw.top);
    } else if (draw.kind == detail::Draw::Kind::first) {
      const auto j = static_cast<std::size_t>(draw.completion);
      request.first[j] = draw.drawn;
      if (!request.first_top.empty()) request.first_top[j] = draw.top;
      request.drawn = true;
    } else {
      accept(roster_.rank(draw.slot), draw.drawn, request.spec.top_log_probs > 0 ? &draw.top : nullptr);
    }
  }

  // Appends a token to the completion of the k-th oldest slot; true when that was its last and the slot is free.
  bool accept(std::size_t k, Drawn drawn, const std::vector<TokenLogProb>* top) {
    detail::Scheduled& request = *roster_[k].request;
    ++counts_.drawn_tokens;
    if (!detail::append_token(request, roster_[k].completion, drawn, top)) return false;
    vacate(k);
    if (request.heirs() == 0 && request.preempted.empty()) {
      cache_.release(request.prompt);
      request.complete = false;
    }
    if (++request.ended == request.spec.count) end(request);
    return true;
  }

  void end(detail::Scheduled& request) {
    cache_.release(request.prompt);
    if (std::exchange(request.queued, false)) queue_.erase(std::find(queue_.begin(), queue_.end(), &request));
    const auto node = requests_.extract(request.id);
    if (request.spec.on_end) request.spec.on_end(request.id, std::move(request.result));
  }

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
  bool starved_ = false;  // somebody with a slot waits for pages
  Counts counts_;
  // Of this pass:
  std::vector<Forward::WeightsHandle> passes_;
  std::vector<Row> rows_;
  std::vector<detail::Draw> wanted_;  // `row` is that of rows_
  detail::DrawBatch draws_;
};

}  // namespace rlalgo::inference
