// Definitions of scheduler.hpp.
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
  passes_.reserve(static_cast<std::size_t>(config_.max_slots));
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
  passes_.clear();
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    const Forward::WeightsHandle& weights = roster_[k].request->spec.weights;
    if (std::find(passes_.begin(), passes_.end(), weights) == passes_.end()) passes_.push_back(weights);
  }
  const std::int64_t before = ahead_;
  may_hold_up_ = before < config_.prefill_ahead;
  for (const Forward::WeightsHandle& weights : passes_) pass(weights);
  if (passes_.empty()) later_.tell();
  if (ahead_ == before) ahead_ = 0;  // nobody was held up
  passes_.clear();
  return true;
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
  passes_.clear();
  later_.clear();
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
    longest_ = length;
    forward_.reserve(longest_);
    roster_.reserve(longest_);
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
    if (request.complete)
      proceed(k, false);
    else if (!request.completion(completion).ids.empty() && request.heirs() == 1)
      resume_alone(k);
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

RLALGO_INLINE void Scheduler::pass(const Forward::WeightsHandle& weights) {
  ++pass_;
  try {
    compute(weights);
  } catch (...) {
    fail_pass(weights, std::current_exception());
  }
}

RLALGO_INLINE void Scheduler::compute(const Forward::WeightsHandle& weights) {
  collect(weights);
  if (!rows_.empty()) forward_.run(*weights, rows_);
  later_.tell();  // the device computes
  if (rows_.empty()) return;
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

// A device may say of a pass that it failed when its results are read: what it should have written is in the prefix cache by then.
RLALGO_INLINE void Scheduler::fail_pass(const Forward::WeightsHandle& weights, const std::exception_ptr& error) {
  forget(weights->contents);
  std::vector<RequestId> failed;
  for (const auto& [id, request] : requests_)
    if (request->pass == pass_) failed.push_back(id);
  const bool heard = std::ranges::all_of(failed, [&](RequestId id) { return bool(requests_.at(id)->spec.on_failed); });
  if (failed.empty() || !heard) std::rethrow_exception(error);
  std::sort(failed.begin(), failed.end());
  for (const RequestId id : failed) {
    RequestSpec& spec = requests_.at(id)->spec;
    const auto on_failed = std::move(spec.on_failed);
    spec.on_end = nullptr;
    cancel(id);
    on_failed(id, error);
  }
}

RLALGO_INLINE bool Scheduler::extend(detail::Scheduled& request, KvCache::Sequence& sequence, std::int64_t count) {
  const std::uint64_t before = std::exchange(request.pass, pass_);
  if (cache_.extend(sequence, count)) return true;
  request.pass = before;
  return false;
}

RLALGO_INLINE void Scheduler::collect(const Forward::WeightsHandle& weights) {
  rows_.clear();
  wanted_.clear();
  cache_.begin_pass();
  const bool hold_up = may_hold_up_ && detail::prompts_first(roster_, prefixes_, weights, config_.prefill_rows);
  if (!hold_up) add_decoding(weights);
  add_prompts(weights);
  if (!hold_up) return;
  ahead_ += static_cast<std::int64_t>(rows_.size());
  if (rows_.empty()) add_decoding(weights);  // the prompts wait for pages
}

RLALGO_INLINE void Scheduler::add_decoding(const Forward::WeightsHandle& weights) {
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    detail::Slot& slot = roster_[k];
    if (slot.waits || slot.request->spec.weights != weights || slot.uncomputed() != 1) continue;
    bool room = extend(*slot.request, slot.sequence, 1);
    while (!room && make_room(k)) room = extend(*slot.request, slot.sequence, 1);
    if (room)
      add_rows(k, 1);
    else if (roster_.size() > 1)
      preempt(k--);
    else
      starved_ = true;
  }
}

RLALGO_INLINE void Scheduler::add_prompts(const Forward::WeightsHandle& weights) {
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

RLALGO_INLINE std::int64_t Scheduler::add_prompt_rows(std::size_t k, std::int64_t budget) {
  detail::Scheduled& request = *roster_[k].request;
  const RequestSpec& spec = request.spec;
  if (request.prompt.length == 0 && request.may_reuse()) {
    const std::int64_t found =
        prefixes_.match(spec.weights->contents, {spec.prompt}, request.prompt_size() - 1, request.prompt);
    if (cache_.carried_bytes() > 0)
      request.branch = prefixes_.known_pages(spec.weights->contents, {spec.prompt}, request.prompt_size() - 1);
    if (!request.drawn) {
      request.result.cached_tokens = found;
      counts_.cached_tokens += static_cast<std::uint64_t>(found);
    }
  }
  const std::int64_t begin = request.prompt.length;
  const std::int64_t take = std::min(budget, request.prompt_size() - begin);
  if (!claim(k, request.prompt, take)) return 0;
  const auto known = static_cast<std::int64_t>(request.result.prompt_log_probs.size());
  const std::int64_t saved = begin + take == request.prompt_size() ? begin + take - 1 : begin + take;
  const std::int64_t last_page = saved / cpu::page_positions * cpu::page_positions;
  for (std::int64_t p = begin; p < begin + take; ++p) {
    const bool last = p + 1 == request.prompt_size();
    if (last ? !request.drawn : spec.prompt_log_probs && p >= known)
      wanted_.push_back({.kind = last ? detail::Draw::Kind::first : detail::Draw::Kind::prompt,
                         .request = &request,
                         .index = last ? 0 : p + 1,
                         .row = static_cast<std::int64_t>(rows_.size())});
    rows_.push_back({spec.prompt[static_cast<std::size_t>(p)], p, request.prompt.pages.data(), request.prompt.state});
    // The state behind the last page of what is computed now, and where others have gone another way.
    if (request.indexed && (p + 1 == last_page || p + 1 == request.branch))
      rows_.back().saved = cache_.save(request.prompt.ids[static_cast<std::size_t>(p / cpu::page_positions)]);
  }
  return take;
}

RLALGO_INLINE std::int64_t Scheduler::add_rows_again(std::size_t k, std::int64_t budget) {
  detail::Slot& slot = roster_[k];
  const std::int64_t take = std::min(budget, slot.uncomputed());
  if (!claim(k, slot.sequence, take)) return 0;
  add_rows(k, take);
  return take;
}

RLALGO_INLINE bool Scheduler::claim(std::size_t k, KvCache::Sequence& sequence, std::int64_t count) {
  while (!extend(*roster_[k].request, sequence, count))
    if (!rows_.empty() || !make_room(k)) {
      starved_ = true;
      return false;
    }
  return true;
}

RLALGO_INLINE void Scheduler::add_rows(std::size_t k, std::int64_t count) {
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
    rows_.push_back({tokens[p], p, slot.sequence.pages.data(), slot.sequence.state});
    if (slot.request->indexed && (p + 1) % cpu::page_positions == 0) save_behind(slot, p);
  }
}

RLALGO_INLINE void Scheduler::save_behind(detail::Slot& slot, std::int64_t position) {
  if (cache_.carried_bytes() == 0) return;
  const KvCache::PageId page = slot.sequence.ids[static_cast<std::size_t>(position / cpu::page_positions)];
  // Of what is drawn the last page is enough.
  if (slot.saved) cache_.outdate_saved(*slot.saved);
  slot.saved = page;
  rows_.back().saved = cache_.save(page);
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
