// Definitions of reward_pool.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <range/v3/iterator/operations.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/chunk_by.hpp>
#include <range/v3/view/iota.hpp>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/remote/python_worker.hpp>
#include <rlalgo/remote/reward_pool.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

RLALGO_INLINE std::string RewardPool::load(const Request& request) {
  Seat& seat = seats_.front();
  if (!seat.worker) seat.worker = std::make_unique<PythonWorker>(config_.python);
  const PythonWorker::Loaded loaded = seat.worker->load_function(request.function);
  seat.loaded.insert(request.function);
  if (loaded.asynchronous) coroutines_.push_back(request);
  return loaded.name;
}

RLALGO_INLINE std::vector<double> RewardPool::call(const Request& request, const reward::RewardCall& call) {
  Outcome outcome;
  const auto is_this = [&](const Request& other) { return same(other, request); };
  if (coroutines_.size() > 1 && std::any_of(coroutines_.begin(), coroutines_.end(), is_this)) {
    outcome = waited_together(request, call);
  } else {
    outcome = std::move(run({request}, call).front());
  }
  if (call.log != nullptr) call.log->append(std::move(outcome.log));
  if (outcome.error) std::rethrow_exception(outcome.error);
  return std::move(outcome.values);
}

RLALGO_INLINE RewardPool::Outcome RewardPool::waited_together(const Request& request, const reward::RewardCall& call) {
  const std::string key = fingerprint(call);
  const auto kept = [&] {
    return std::find_if(kept_.begin(), kept_.end(), [&](const auto& k) { return same(k.first, request); });
  };
  if (key != kept_for_ || kept() == kept_.end()) {
    kept_.clear();
    kept_for_ = key;
    std::vector<Outcome> outcomes = run(coroutines_, call);
    for (std::size_t i = 0; i < outcomes.size(); ++i) kept_.emplace_back(coroutines_[i], std::move(outcomes[i]));
  }
  const auto found = kept();
  Outcome outcome = std::move(found->second);
  kept_.erase(found);
  return outcome;
}

RLALGO_INLINE std::string RewardPool::fingerprint(const reward::RewardCall& call) {
  std::string key = std::to_string(call.step);
  for (std::size_t i = 0; i < call.size(); ++i) {
    key += '\0' + std::to_string(call.completion_ids[i].size()) + '\0' + call.texts[i] + '\0';
    key += call.prompts[i]->dump(-1, ' ', false, reward::Json::error_handler_t::replace);
    key += call.columns[i].dump(-1, ' ', false, reward::Json::error_handler_t::replace);
  }
  return key;
}

RLALGO_INLINE std::vector<std::size_t> RewardPool::part_ends(const reward::RewardCall& call) const {
  namespace views = ranges::views;
  const auto of_one_prompt = [&](std::size_t a, std::size_t b) { return *call.prompts[a] == *call.prompts[b]; };
  std::vector<std::size_t> group_ends;
  for (const auto group : views::iota(std::size_t{0}, call.size()) | views::chunk_by(of_one_prompt))
    group_ends.push_back(group.front() + static_cast<std::size_t>(ranges::distance(group)));
  const std::size_t per_worker = (group_ends.size() + seats_.size() - 1) / seats_.size();
  std::vector<std::size_t> ends;
  for (const auto part : group_ends | views::chunk(per_worker)) ends.push_back(part.back());
  return ends;
}

RLALGO_INLINE std::vector<RewardPool::Outcome> RewardPool::run(const std::vector<Request>& requests,
                                                               const reward::RewardCall& call) {
  const std::vector<std::size_t> ends = call.size() == 0 ? std::vector<std::size_t>{0} : part_ends(call);
  std::vector<std::future<std::vector<Outcome>>> parts;
  for (std::size_t k = 0; k < ends.size(); ++k) {
    const std::size_t begin = k == 0 ? 0 : ends[k - 1];
    parts.push_back(std::async(ends.size() == 1 ? std::launch::deferred : std::launch::async,
                               [this, k, &requests, part = call.rows(begin, ends[k], nullptr)] {
                                 return run_part(seats_[k], requests, part);
                               }));
  }
  std::vector<Outcome> joined(requests.size());
  std::vector<std::vector<std::pair<std::size_t, reward::RewardLog>>> logs(requests.size());
  for (std::size_t k = 0; k < parts.size(); ++k) {
    std::vector<Outcome> outcomes = parts[k].get();
    for (std::size_t r = 0; r < requests.size(); ++r) {
      Outcome& one = outcomes[r];
      joined[r].values.insert(joined[r].values.end(), one.values.begin(), one.values.end());
      if (one.error && !joined[r].error) joined[r].error = one.error;
      logs[r].emplace_back(ends[k] - (k == 0 ? 0 : ends[k - 1]), std::move(one.log));
    }
  }
  for (std::size_t r = 0; r < requests.size(); ++r) reward::join_logs(logs[r], joined[r].log);
  return joined;
}

RLALGO_INLINE std::vector<RewardPool::Outcome> RewardPool::run_part(Seat& seat, const std::vector<Request>& requests,
                                                                    const reward::RewardCall& part) {
  std::vector<std::string> warnings;
  for (int attempt = 0;; ++attempt) {
    const std::string numbered =
        attempt == 0 ? ""
                     : ", attempt " + std::to_string(attempt + 1) + " of " + std::to_string(config_.max_retries + 1);
    std::vector<Outcome> outcomes;
    try {
      if (!seat.worker) seat.worker = std::make_unique<PythonWorker>(config_.python);
      for (const Request& r : requests)
        if (!seat.loaded.contains(r.function)) {
          (void)seat.worker->load_function(r.function);
          seat.loaded.insert(r.function);
        }
      outcomes = seat.worker->call(requests, part, numbered);
    } catch (const core::Error& e) {
      seat.worker.reset();
      seat.loaded.clear();
      const bool process_failed = e.room() == "remote" && e.number() >= 6 && e.number() <= 8;
      if (process_failed && attempt < config_.max_retries) {
        warnings.push_back(std::string(e.what()) + ". The process is started again");
        continue;
      }
      outcomes.resize(requests.size());
      for (Outcome& outcome : outcomes) outcome.error = std::current_exception();
    }
    if (!outcomes.empty())
      outcomes.front().log.warnings.insert(outcomes.front().log.warnings.begin(), warnings.begin(), warnings.end());
    return outcomes;
  }
}

RLALGO_INLINE PythonReward::PythonReward(std::shared_ptr<RewardPool> pool, std::string function, reward::Json keywords)
    : pool_(std::move(pool)),
      request_{.function = std::move(function), .keywords = std::move(keywords)},
      name_(pool_->load(request_)) {}

}  // namespace rlalgo::remote
