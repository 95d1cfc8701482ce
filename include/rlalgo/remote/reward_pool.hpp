// Python reward functions over several worker processes, which are started again when they die or hang.
//
// A call is cut into as many contiguous parts as there are workers, groups of one prompt intact (ceil(groups / workers)
// each), and the parts run at once; with one worker there is one part. Coroutine functions of a run are asked together,
// so that they wait at the same time, as TRL's trainer does with asyncio.gather. A worker that did not answer in time,
// died, or answered outside the protocol is replaced, and its part is tried again `max_retries` times, each with the
// whole timeout; a warning says so.
// Errors: those of python_worker.hpp, the last attempt's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/remote/python_worker.hpp>
#include <rlalgo/reward/function.hpp>

namespace rlalgo::remote {

struct PoolConfig {
  PythonConfig python = {};
  std::size_t workers = 1;  // processes
  int max_retries = 1;      // further attempts after a process died or hung
};

class RewardPool {
 public:
  using Request = PythonWorker::Request;
  using Outcome = PythonWorker::Outcome;

  explicit RewardPool(PoolConfig config)
      : config_(std::move(config)), seats_(std::max<std::size_t>(1, config_.workers)) {}

  // Imports `function` in the first worker; the others import it when they are first used. Returns its name.
  std::string load(const Request& request);

  std::vector<double> call(const Request& request, const reward::RewardCall& call);

 private:
  struct Seat {
    std::unique_ptr<PythonWorker> worker;
    std::set<std::string> loaded;
  };

  static bool same(const Request& a, const Request& b) { return a.function == b.function && a.keywords == b.keywords; }

  // All coroutines run when the first of them is asked for; what the others came to is kept until they are.
  Outcome waited_together(const Request& request, const reward::RewardCall& call);

  static std::string fingerprint(const reward::RewardCall& call);

  // Ends of the parts: whole groups of one prompt, as even as that allows.
  [[nodiscard]] std::vector<std::size_t> part_ends(const reward::RewardCall& call) const;

  // One outcome per request, over all rows.
  std::vector<Outcome> run(const std::vector<Request>& requests, const reward::RewardCall& call);

  // An error of the process becomes the outcome of every request, after the retries.
  std::vector<Outcome> run_part(Seat& seat, const std::vector<Request>& requests, const reward::RewardCall& part);

  PoolConfig config_;
  std::vector<Seat> seats_;
  std::vector<Request> coroutines_;
  std::string kept_for_;
  std::vector<std::pair<Request, Outcome>> kept_;
};

// One Python function as a reward function.
class PythonReward final : public reward::RewardFunction {
 public:
  PythonReward(std::shared_ptr<RewardPool> pool, std::string function, reward::Json keywords = reward::Json::object());
  [[nodiscard]] std::string name() const override { return name_; }
  std::vector<double> operator()(const reward::RewardCall& call) override { return pool_->call(request_, call); }

 private:
  std::shared_ptr<RewardPool> pool_;
  PythonWorker::Request request_;
  std::string name_;
};

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/reward_pool_impl.hpp>
#endif
