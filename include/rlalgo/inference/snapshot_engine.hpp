// Generates with weights that were published: while an optimizer changes the trainer's own at the same time.
//
// Each call of generate() takes the weights published last and keeps them to its end, so every completion has one
// version, and says which. Prompts computed under them serve later calls until another version is published. The engine
// runs on the thread that calls it, with its own threads; the trainer publishes on its own.
//
// Errors: [rlalgo.os.8] it was asked to stop; those of decoder_engine.hpp and weight_snapshots.hpp.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/os/interruption.hpp>

namespace rlalgo::inference {

class SnapshotEngine {
 public:
  using Config = EngineConfig;
  static constexpr WeightSource weights = WeightSource::snapshot;
  static constexpr GeneratorHooks hooks{.quantizes = true};

  // `stop`: ends generate() within a token when it is asked to, with os::Interrupted.
  explicit SnapshotEngine(std::shared_ptr<WeightSnapshots> snapshots, EngineConfig engine = {},
                          std::stop_token stop = {})
      : engine_(snapshots->decoder_config(), engine.for_weights(snapshots->live())),
        snapshots_(std::move(snapshots)),
        stop_(std::move(stop)) {}

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return engine_.decoder_config(); }
  [[nodiscard]] bool quantizes() const noexcept { return engine_.config().quantizes(); }

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key, const GenerateHooks& hooks = {}) {
    const WeightSnapshots::Handle snapshot = held_ != nullptr ? std::exchange(held_, nullptr) : snapshots_->acquire();
    if (snapshot->number != number_) engine_.scheduler().forget(number_);
    number_ = snapshot->number;
    GenerateHooks watched = hooks;
    watched.cancelled = [&] {
      ++passes_;
      return stop_.stop_requested() || (hooks.cancelled && hooks.cancelled());
    };
    auto completions = engine_.generate(requests, sampling, key, watched,
                                        engine_.view(snapshot->weights, snapshot->version, snapshot, snapshot->number));
    if (stop_.stop_requested()) os::raise_interrupted("os", 8, {.what = "a generation was given up"});
    return completions;
  }

  // Takes the weights published last for the next generate(); their version.
  std::int64_t hold() {
    held_ = snapshots_->acquire();
    return held_->version;
  }

  // Token steps so far; may be asked while generate() runs.
  [[nodiscard]] std::uint64_t passes() const noexcept { return passes_; }

 private:
  DecoderEngine engine_;
  std::shared_ptr<WeightSnapshots> snapshots_;
  std::stop_token stop_;
  std::atomic<std::uint64_t> passes_{0};
  WeightSnapshots::Handle held_;
  std::uint64_t number_ = 0;  // of the snapshot generated with last
};

}  // namespace rlalgo::inference
