// Generates with weights that were published: beside an optimizer that changes the trainer's own at the same time.
//
// Each call of generate() takes the weights published last and keeps them to its end, so every completion has one
// version, and says which. Prompts computed under them serve later calls until another version is published. The engine
// runs on the thread that calls it, with its own threads; the trainer publishes on its own.
//
// Errors: those of decoder_engine.hpp and weight_snapshots.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>

namespace rlalgo::inference {

class SnapshotEngine {
 public:
  using Config = EngineConfig;
  static constexpr WeightSource weights = WeightSource::snapshot;

  explicit SnapshotEngine(std::shared_ptr<WeightSnapshots> snapshots, EngineConfig engine = {})
      : engine_(snapshots->decoder_config(), engine), snapshots_(std::move(snapshots)) {}

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return engine_.decoder_config(); }

  std::vector<std::vector<data::Completion>> generate(std::span<const Request> requests, const SamplingConfig& sampling,
                                                      DrawKey key, const GenerateHooks& hooks = {}) {
    const WeightSnapshots::Handle snapshot = snapshots_->acquire();
    if (snapshot->number != number_) engine_.scheduler().forget(number_);
    number_ = snapshot->number;
    return engine_.generate(requests, sampling, key, hooks,
                            engine_.view(snapshot->weights, snapshot->version, snapshot, snapshot->number));
  }

 private:
  DecoderEngine engine_;
  std::shared_ptr<WeightSnapshots> snapshots_;
  std::uint64_t number_ = 0;  // of the snapshot generated with last
};

}  // namespace rlalgo::inference
