// Definitions of scheduler.hpp; those of a pass are in scheduler_passes.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/append_token.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/inference/detail/draw_batch.hpp>
#include <rlalgo/inference/detail/expert_notes.hpp>
#include <rlalgo/inference/detail/prompts_first.hpp>
#include <rlalgo/inference/detail/roster.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/inference/scheduler_config.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

RLALGO_INLINE Scheduler::Scheduler(const model::DecoderConfig& decoder, Forward& forward, KvCache& cache,
                                   os::ThreadPool& pool, SchedulerConfig config, TextStreams text)
    : decoder_(decoder),
      config_(detail::checked(std::move(config), forward)),
      text_(std::move(text)),
      forward_(forward),
      cache_(cache),
      prefixes_(cache),
      roster_(config_.max_slots),
      draws_(forward, pool, decoder.vocab_size, config_.max_slots) {
  if (config_.cache_bytes > 0) cache_.limit(std::max<std::size_t>(1, config_.cache_bytes / cache_.page_bytes()));
  cache_.limit_saved(config_.prefix_cache ? config_.saved_bytes : 0);
  rows_.reserve(static_cast<std::size_t>(config_.max_slots + config_.prefill_rows));
  wanted_.reserve(rows_.capacity());
}

RLALGO_INLINE void Scheduler::forget(std::uint64_t contents) {
  prefixes_.drop(contents);
  for (auto& [id, request] : requests_)
    if (request->spec.weights->contents == contents) request->indexed = false;
}

RLALGO_INLINE void Scheduler::reset_prefix_cache() {
  prefixes_.clear();
  for (auto& [id, request] : requests_) request->indexed = false;
}

RLALGO_INLINE void Scheduler::release_memory() {
  reset_prefix_cache();
  cache_.trim();
}

RLALGO_INLINE RequestId Scheduler::submit(RequestSpec spec) {
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

RLALGO_INLINE bool Scheduler::cancel(RequestId id) {
  const auto at = requests_.find(id);
  if (at == requests_.end()) return false;
  detail::Scheduled& request = *at->second;
  later_.tell(request);
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

RLALGO_INLINE bool Scheduler::step() {
  if (idle()) return false;
  admit();
  starved_ = false;
  groups_.assign(roster_, forward_);
  const std::int64_t before = ahead_;
  may_hold_up_ = before < config_.prefill_ahead;
  std::size_t rows = 0;
  for (const detail::WeightGroups::Group& group : groups_.all()) rows += step_of(group);
  if (rows == 0) later_.tell();
  if (ahead_ == before) ahead_ = 0;  // nobody was held up
  groups_.clear();
  return true;
}

RLALGO_INLINE std::size_t Scheduler::step_of(Group group) {
  const auto hold_up = [&](Group some) {
    return may_hold_up_ && detail::prompts_first(roster_, prefixes_, some, config_.prefill_rows);
  };
  std::size_t rows = 0;
  if (!detail::several_decode(roster_, group)) {
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Group one = group.subspan(i, 1);
      rows += run_pass({one, one.data(), hold_up(one)});
    }
    return rows;
  }
  const bool held_up = hold_up(group);
  if (!held_up) rows = run_pass({group});
  for (const Forward::WeightsHandle& weights : group) rows += run_pass({{}, &weights, held_up});
  return held_up && rows == 0 ? run_pass({group}) : rows;  // the prompts wait for pages
}

RLALGO_INLINE void Scheduler::drain() {
  while (step()) {
  }
}

RLALGO_INLINE void Scheduler::clear() {
  while (!roster_.empty()) {
    cache_.release(roster_[0].sequence);
    roster_.remove(0);
  }
  queue_.clear();
  groups_.clear();
  later_.clear();
  some_failed_ = false;
  for (auto& [id, request] : requests_) cache_.release(request->prompt);
  requests_.clear();
}

RLALGO_INLINE Scheduler::Counts Scheduler::counts() const {
  Counts out = counts_;
  out.running = roster_.size();
  out.waiting = queue_.size();
  out.pages_in_use = cache_.pages_in_use();
  out.pages_kept = prefixes_.kept();
  return out;
}

RLALGO_INLINE void Scheduler::prepare(detail::Scheduled& request) {
  const RequestSpec& spec = request.spec;
  if (!spec.ignore_eos) request.end_ids = config_.eos_ids;
  request.end_ids.insert(request.end_ids.end(), spec.sampling.stop_ids.begin(), spec.sampling.stop_ids.end());
  const auto count = static_cast<std::size_t>(spec.count);
  request.result.completions.resize(count);
  for (CompletionResult& one : request.result.completions) {
    one.completion.ids.reserve(static_cast<std::size_t>(std::min<std::int64_t>(request.room, 4096)));
    one.completion.log_probs.reserve(one.completion.ids.capacity());
    one.completion.weights_version = spec.weights->version;
    if (spec.text || !spec.stop_strings.empty())
      request.texts.push_back({spec.text_stream ? spec.text_stream() : text_(), StopStrings(spec.stop_strings)});
  }
  request.first.resize(count);
  if (spec.top_log_probs > 0) request.first_top.resize(count);
  request.indexed = config_.prefix_cache;
  KvCache::reserve(request.prompt, request.prompt_size());
  draws_.reserve(count);
  if (const std::int64_t length = request.prompt_size() + request.room; length > longest_) {
    forward_.reserve(length);
    roster_.reserve(length);
    longest_ = length;
  }
  counts_.prompt_tokens += static_cast<std::uint64_t>(request.prompt_size());
}

RLALGO_INLINE void Scheduler::enqueue(detail::Scheduled& request) {
  if (std::exchange(request.queued, true)) return;
  const auto at = std::upper_bound(queue_.begin(), queue_.end(), &request,
                                   [](const auto* a, const auto* b) { return a->id < b->id; });
  queue_.insert(at, &request);
}

RLALGO_INLINE void Scheduler::admit() {
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
    for_one(request, [&] {
      if (request.complete)
        proceed(k, false);
      else if (!request.completion(completion).ids.empty() && request.heirs() == 1)
        resume_alone(k);
    });
    end_failed();  // nobody has a row yet
  }
}

RLALGO_INLINE bool Scheduler::may_start(const detail::Scheduled& request) {
  if (cache_.limit() == 0) return true;
  if (starved_ && !roster_.empty()) return false;
  const bool begun = request.complete || request.running > 0;
  const std::size_t own = begun ? 2 : KvCache::pages_for(request.prompt_size() + 1) + 1;
  while (!cache_.available(own + roster_.promised_pages()))
    if (!roster_.empty() || !release_idle_prompt(&request)) return roster_.empty();
  return true;
}

RLALGO_INLINE void Scheduler::resume_alone(std::size_t k) {
  detail::Slot& slot = roster_[k];
  detail::Scheduled& request = *slot.request;
  roster_.settle(k);
  if (request.prompt.length > 0) cache_.transfer(request.prompt, slot.sequence);
  // A row is computed for each token that is not drawn yet, though given ones may be known further.
  const auto drawn = static_cast<std::int64_t>(request.completion(slot.completion).ids.size());
  if (request.indexed && slot.sequence.length == 0)
    prefixes_.match(request.spec.weights->contents, slot.tokens(), request.prompt_size() + drawn - 1, slot.sequence);
}

RLALGO_INLINE bool Scheduler::proceed(std::size_t k, bool may_preempt) {
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
    request.pass = pass_;
    while (!cache_.fork(request.prompt, slot.sequence))
      if (!may_preempt || !make_room(k)) {
        starved_ = true;
        return true;
      }
  }
  roster_.settle(k);
  return true;
}

RLALGO_INLINE bool Scheduler::make_room(std::size_t k) {
  if (release_idle_prompt(nullptr)) return true;
  if (k + 1 >= roster_.size()) return false;
  preempt(roster_.size() - 1);
  return true;
}

RLALGO_INLINE bool Scheduler::release_idle_prompt(const detail::Scheduled* but) {
  for (auto at = queue_.rbegin(); at != queue_.rend(); ++at) {
    detail::Scheduled& request = **at;
    if (&request == but || request.waiting > 0 || request.prompt.pages.empty()) continue;
    cache_.release(request.prompt);
    request.complete = false;
    return true;
  }
  return false;
}

RLALGO_INLINE void Scheduler::preempt(std::size_t k) {
  detail::Scheduled& request = *roster_[k].request;
  request.preempted.push_back(roster_[k].completion);
  ++counts_.preemptions;
  vacate(k);
  enqueue(request);
}

RLALGO_INLINE void Scheduler::vacate(std::size_t k) {
  detail::Slot& slot = roster_[k];
  if (slot.request->indexed && slot.sequence.length > 0)
    prefixes_.insert(slot.request->spec.weights->contents, slot.tokens(), slot.sequence);
  cache_.release(slot.sequence);
  roster_.remove(k);
}

RLALGO_INLINE void Scheduler::take(detail::Draw& draw) {
  detail::Scheduled& request = *draw.request;
  if (draw.kind == detail::Draw::Kind::prompt) {
    request.result.prompt_log_probs.push_back({draw.drawn.id, draw.drawn.log_prob});
    request.result.prompt_ranks.push_back(draw.rank);
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

RLALGO_INLINE bool Scheduler::accept(std::size_t k, Drawn drawn, const std::vector<TokenLogProb>* top) {
  detail::Scheduled& request = *roster_[k].request;
  ++counts_.drawn_tokens;
  const std::int64_t j = roster_[k].completion;
  if (!later_.say(request, j, detail::append_token(request, j, drawn, top), forward_.overlaps())) return false;
  if (cache_.note_bytes() > 0) detail::note_experts(cache_, roster_[k]);
  vacate(k);
  if (request.heirs() == 0 && request.preempted.empty()) {
    cache_.release(request.prompt);
    request.complete = false;
  }
  if (++request.ended == request.spec.count) end(request);
  return true;
}

RLALGO_INLINE void Scheduler::end(detail::Scheduled& request) {
  cache_.release(request.prompt);
  if (std::exchange(request.queued, false)) queue_.erase(std::find(queue_.begin(), queue_.end(), &request));
  const auto node = requests_.extract(request.id);
  if (request.spec.on_end) request.spec.on_end(request.id, std::move(request.result));
}

}  // namespace rlalgo::inference
