// What a step says of its own side: how much of the device's peak its passes use and how much of its memory, and more where generation is asynchronous; the
// sampler's side is sampler/prefetch.hpp's.
//
//   sync/seconds            of handing over the weights, in steps that do
//   async/forward_s         seconds of the forward passes of the step; on a device, of asking for them
//   async/train_seq_len     tokens of the longest row of the step, prompt and completion
//   async/training_tok/s    loss tokens of the step ÷ its seconds, waits included; over several steps the sums' ratio
//
// Source: TRL's experimental AsyncGRPO (weight_sync_time_s, forward_time_s, train_seq_len, training_tok/s). Departures: of
// the step where TRL's are of its last micro-batch, and loss tokens of all micro-batches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <rlalgo/core/metrics.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/tensor/memory_peaks.hpp>

namespace rlalgo::trainer::detail {

// Made when the step begins.
struct AsynchronousWatch {
  os::Stopwatch step;
  double forward = 0.0;    // seconds
  double published = 0.0;  // seconds
  double flops = 0.0;      // of the passes with gradient (model/training_flops.hpp)

  // Of this rank:
  //   train/mfu   flops ÷ (seconds · peak); over several steps the sums' ratio
  //   memory/max_allocated (GiB), memory/max_active (GiB), memory/device_reserved (GiB)   the most of the device's memory in the step, as
  //               axolotl logs it (tensor/memory_peaks.hpp); of a CPU there are none
  template <class Placed>
  void tell_device(double peak, double seconds, Placed& placement, core::Metrics& metrics) const {
    if (peak > 0.0 && flops > 0.0) metrics.mean("train/mfu", flops / peak, seconds);
    if (const auto memory = tensor::take_memory_peaks(placement.device())) {
      constexpr double gib = 1024.0 * 1024.0 * 1024.0;
      metrics.maximum("memory/max_allocated (GiB)", static_cast<double>(memory->allocated) / gib);
      metrics.maximum("memory/max_active (GiB)", static_cast<double>(memory->active) / gib);
      metrics.maximum("memory/device_reserved (GiB)", static_cast<double>(memory->reserved) / gib);
    }
  }

  template <class Rows, class S>
  void tell(const S& sampler, const std::vector<const typename Rows::Row*>& rows, double loss_tokens,
            core::Metrics& metrics) const {
    if constexpr (sampler::hooks_of<S>().asynchronous) {
      if (!sampler.asynchronous()) return;
      if (published > 0) metrics.mean("sync/seconds", published, 1.0);
      std::int64_t longest = 0;
      for (const auto* row : rows) longest = std::max(longest, Rows::tokens(*row));
      metrics.mean("async/forward_s", forward, 1.0);
      metrics.maximum("async/train_seq_len", static_cast<double>(longest));
      metrics.mean("async/training_tok/s", loss_tokens, step.seconds());
    }
  }
};

}  // namespace rlalgo::trainer::detail
