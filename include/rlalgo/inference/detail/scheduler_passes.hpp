// Definitions of scheduler.hpp: a pass, from its rows to what its logits say, and what is done where it fails.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/detail/memory_failures.hpp>
#include <rlalgo/inference/detail/scheduled.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/prefix_cache.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/inference/scheduler.hpp>

namespace rlalgo::inference {

RLALGO_INLINE std::size_t Scheduler::run_pass(const Pass& pass) {
  ++pass_;
  try {
    compute(pass);
  } catch (...) {
    fail_pass(pass, std::current_exception());
  }
  end_failed();
  return rows_.size();
}

RLALGO_INLINE void Scheduler::compute(const Pass& pass) {
  collect(pass);
  if (rows_.empty()) return;
  run_rows(pass);
  later_.tell();  // the device computes
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    detail::Scheduled& request = *roster_[k].request;
    if (!pass.begins(request.spec.weights) || !roster_[k].waits || request.complete || request.failed) continue;
    if (request.indexed) prefixes_.insert(request.spec.weights->contents, {request.spec.prompt}, request.prompt);
    request.complete = request.prompt.length == request.prompt_size();
  }
  for (std::size_t begin = 0; begin < wanted_.size();) {
    begin += draws_.answer(pass.any(), std::span<const detail::Draw>(wanted_).subspan(begin));
    for (detail::Draw& draw : draws_.answers()) take(draw);
  }
  for (std::size_t k = 0; k < roster_.size();) {
    const detail::Slot& slot = roster_[k];
    bool stays = true;
    if (slot.waits && slot.request->complete && !slot.request->failed && pass.begins(slot.request->spec.weights))
      for_one(*slot.request, [&] { stays = proceed(k, false); });
    if (stays) ++k;
  }
}

RLALGO_INLINE void Scheduler::run_rows(const Pass& pass) {
  for (;;) try {
      if (pass.decoding.size() > 1)
        forward_.joined()->run(pass.decoding, rows_);
      else
        forward_.run(pass.any(), rows_);
      return;
    } catch (const std::exception& error) {
      const std::size_t others = prompts_.empty() ? 0 : prompts_.back().row;
      if (!detail::is_memory(error) || others == 0 || cache_.carried_bytes() > 0) throw;
      prompts_.back().request->failed = std::current_exception();
      some_failed_ = true;
      rows_.resize(others);
      wanted_.resize(prompts_.back().wanted);
      prompts_.pop_back();
    }
}

// A device may say of a pass that it failed when its results are read: what it should have written is in the prefix cache by then.
RLALGO_INLINE void Scheduler::fail_pass(const Pass& pass, const std::exception_ptr& error) {
  for (const Forward::WeightsHandle& weights : pass.decoding) forget(weights->contents);
  if (pass.prompts != nullptr) forget((*pass.prompts)->contents);
  std::vector<RequestId> failed;
  for (const auto& [id, request] : requests_)
    if (request->pass == pass_) failed.push_back(id);
  const bool heard = std::ranges::all_of(failed, [&](RequestId id) { return bool(requests_.at(id)->spec.on_failed); });
  if (failed.empty() || !heard) std::rethrow_exception(error);
  std::sort(failed.begin(), failed.end());
  for (const RequestId id : failed) end_failed(id, error);
}

RLALGO_INLINE void Scheduler::end_failed() {
  if (!std::exchange(some_failed_, false)) return;
  std::vector<std::pair<RequestId, std::exception_ptr>> failed;
  for (const auto& [id, request] : requests_)
    if (request->failed) failed.emplace_back(id, request->failed);
  std::ranges::sort(failed, {}, &std::pair<RequestId, std::exception_ptr>::first);
  for (const auto& [id, error] : failed) end_failed(id, error);
}

RLALGO_INLINE void Scheduler::end_failed(RequestId id, const std::exception_ptr& error) {
  detail::Scheduled& request = *requests_.at(id);
  if (!request.spec.on_failed) std::rethrow_exception(error);
  const auto on_failed = std::move(request.spec.on_failed);
  request.spec.on_end = nullptr;
  request.indexed = false;  // what was not computed is not found again
  cancel(id);
  on_failed(id, error);
}

RLALGO_INLINE bool Scheduler::extend(detail::Scheduled& request, KvCache::Sequence& sequence, std::int64_t count) {
  const std::uint64_t before = std::exchange(request.pass, pass_);
  if (cache_.extend(sequence, count)) return true;
  request.pass = before;
  return false;
}

RLALGO_INLINE void Scheduler::collect(const Pass& pass) {
  rows_.clear();
  wanted_.clear();
  prompts_.clear();
  cache_.begin_pass();
  if (!pass.hold_up) add_decoding(pass.decoding);
  if (pass.prompts != nullptr) add_prompts(*pass.prompts);
  if (!pass.hold_up) return;
  ahead_ += static_cast<std::int64_t>(rows_.size());
  if (rows_.empty()) add_decoding(pass.decoding);  // the prompts wait for pages
}

RLALGO_INLINE void Scheduler::add_decoding(Group group) {
  for (std::size_t k = 0; k < roster_.size(); ++k) {
    detail::Slot& slot = roster_[k];
    detail::Scheduled& request = *slot.request;
    if (slot.waits || request.failed || slot.uncomputed() != 1) continue;
    const auto which = std::find(group.begin(), group.end(), request.spec.weights);
    if (which == group.end()) continue;
    for_one(request, [&] {
      bool room = extend(request, slot.sequence, 1);
      while (!room && make_room(k)) room = extend(request, slot.sequence, 1);
      if (room)
        add_rows(k, 1, static_cast<std::size_t>(which - group.begin()));
      else if (roster_.size() > 1)
        preempt(k--);
      else
        starved_ = true;
    });
  }
}

RLALGO_INLINE void Scheduler::add_prompts(const Forward::WeightsHandle& weights) {
  std::int64_t budget = config_.prefill_rows;
  const detail::Scheduled* last = nullptr;
  for (std::size_t k = 0; k < roster_.size() && budget > 0; ++k) {
    detail::Slot& slot = roster_[k];
    detail::Scheduled& request = *slot.request;
    if (request.spec.weights != weights || request.failed) continue;
    const Prompt prompt{&request, rows_.size(), wanted_.size()};
    for_one(request, [&] {
      if (slot.waits && request.complete) {  // there was no page to begin with
        if (!proceed(k, rows_.empty())) --k;
      } else if (slot.waits && std::exchange(last, &request) != &request) {
        budget -= add_prompt_rows(k, budget);
      } else if (!slot.waits && slot.uncomputed() > 1) {
        budget -= add_rows_again(k, budget);
      }
    });
    if (rows_.size() > prompt.row) prompts_.push_back(prompt);
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
  add_rows(k, take, 0);
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

RLALGO_INLINE void Scheduler::add_rows(std::size_t k, std::int64_t count, std::size_t weights) {
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
    rows_.push_back({tokens[p], p, slot.sequence.pages.data(), slot.sequence.state, nullptr, weights});
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

}  // namespace rlalgo::inference
