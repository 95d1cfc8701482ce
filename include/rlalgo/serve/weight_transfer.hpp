// New weights in three acts: start, any number of updates, finish. Nothing changes before the last one succeeds.
//
//   transfer.start();  transfer.add(tensors); …  transfer.finish();
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

#include <rlalgo/core/clock.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/weight_store.hpp>

namespace rlalgo::serve {

class WeightTransfer {
 public:
  explicit WeightTransfer(WeightStore& store, double patience = 600.0) : store_(store), patience_(patience) {}

  void start() {
    if (open_ && idle_.seconds() < patience_)
      out_of_order("a weight update is under way", "POST /finish_weight_update, or a pause of " +
                                                       std::to_string(static_cast<int>(patience_)) + " seconds");
    staged_.clear();
    open_ = true;
    idle_ = {};
  }

  // A name that comes again replaces what was sent before. Where one does not fit, none is taken.
  void add(std::vector<model::NamedTensor> tensors) {
    require_open();
    for (const auto& [name, value] : tensors) store_.check(name, value.sizes().vec());
    for (auto& [name, value] : tensors) staged_.insert_or_assign(name, std::move(value));
    idle_ = {};
  }

  // `version`: the name of the new weights; empty: their number.
  void finish(const std::string& version) {
    require_open();
    if (!staged_.empty()) store_.update({staged_.begin(), staged_.end()});
    if (!version.empty()) store_.name_version(version);
    staged_.clear();
    open_ = false;
  }

  [[nodiscard]] bool open() const noexcept { return open_; }

 private:
  void require_open() const {
    if (!open_) out_of_order("no weight update is under way", "POST /start_weight_update before");
  }
  [[noreturn]] static void out_of_order(const std::string& what, const std::string& expected) {
    refuse_request(400, 20, {.what = what, .expected = expected});
  }

  WeightStore& store_;
  double patience_;
  bool open_ = false;
  core::Stopwatch idle_;
  std::map<std::string, tensor::Tensor> staged_;
};

}  // namespace rlalgo::serve
