// New weights in three acts: start, any number of updates, finish. Nothing changes before the last one succeeds.
//
//   transfer.start(session);  transfer.add(tensors, session); …  transfer.finish(version, session);
//
// A trainer that names its session may repeat an act whose answer it did not get: start begins anew, an update brings
// the same tensors, and what is finished stays finished. Without a name (vLLM's clients) each act counts once.
//
// A session that nobody touches for `patience` seconds gives way to the next start; one that is alive does not: two
// trainers at once are an error of the second. Used by one thread.
//
// Errors (status 400): [rlalgo.serve.20] an act out of order, or a session of somebody else; those of weight_store.hpp.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/weight_store.hpp>

namespace rlalgo::serve {

class WeightTransfer {
 public:
  explicit WeightTransfer(WeightStore& store, double patience = 60.0) : store_(store), patience_(patience) {}

  void start(const std::string& session = {}) {
    require_free(session);
    staged_.clear();
    open_ = true;
    session_ = session;
    idle_ = {};
  }

  // A name that comes again replaces what was sent before. Where one does not fit, none is taken.
  void add(std::vector<model::NamedTensor> tensors, const std::string& session = {}) {
    require_open(session);
    for (const auto& [name, value] : tensors) store_.check(name, value.sizes().vec());
    for (auto& [name, value] : tensors) staged_.insert_or_assign(name, std::move(value));
    idle_ = {};
  }

  // `version`: the name of the new weights; empty: their number.
  void finish(const std::string& version, const std::string& session = {}) {
    if (!open_ && !session.empty() && session == session_) return;
    require_open(session);
    if (!staged_.empty())
      store_.update({staged_.begin(), staged_.end()}, version);
    else if (!version.empty())
      store_.name_version(version);
    staged_.clear();
    open_ = false;
  }

  // Ends that session, where it is open, and forgets what it sent: something did not come whole.
  void abandon(const std::string& session = {}) {
    if (session != session_) return;
    staged_.clear();
    open_ = false;
  }

  // The trainer is there.
  void touch(const std::string& session = {}) {
    require_open(session);
    idle_ = {};
  }

  // Raises serve.20 where a start of that session would.
  void require_free(const std::string& session = {}) const {
    const bool again = !session.empty() && session == session_;
    if (open_ && !again && idle_.seconds() < patience_)
      out_of_order("a weight update is under way", "POST /finish_weight_update by the trainer that began it, or " +
                                                       std::to_string(static_cast<int>(patience_)) +
                                                       " seconds without a sign of it");
  }
  // Raises serve.20 where an update of that session would.
  void require_open(const std::string& session = {}) const {
    if (!open_) out_of_order("no weight update is under way", "POST /start_weight_update before");
    if (session != session_) out_of_order("the weight update under way is another trainer's", "one trainer at a time");
  }

 private:
  [[noreturn]] static void out_of_order(const std::string& what, const std::string& expected) {
    refuse_request(400, 20, {.what = what, .expected = expected});
  }

  WeightStore& store_;
  double patience_;
  bool open_ = false;
  std::string session_;  // of the update under way, or of the last one
  os::Stopwatch idle_;
  std::map<std::string, tensor::Tensor> staged_;
};

}  // namespace rlalgo::serve
