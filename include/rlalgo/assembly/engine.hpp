// This process's engine draws: on the trainer's own tensors, or where generation is asynchronous on copies of what is trained.
//
//   synchronous    LocalEngine, SharedWeights; what it has computed of a prompt serves the next calls under the same version of the weights
//   asynchronous   SnapshotEngine, SnapshotWeights, with half of the processors: the others train
//
// Of several ranks each has an engine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/inference/text_streams.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/os/processors.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/sync/snapshot_weights.hpp>

namespace rlalgo::assembly {

struct Engine {
  static constexpr bool serves = false;

  inference::Quantization quantization = inference::Quantization::none;  // of the weights that are generated with
  std::optional<inference::CacheElement> cache_element = {};             // of keys and values: EngineConfig's
  bool invariant = false;                                                // of a device: EngineConfig's
  bool routed_experts = false;                                           // completions say which experts tokens passed
  bool stop_strings = false;                                             // SamplingConfig::stop_strings may end them
  int threads = 0;              // at most; 0: all, and half of the processors where generation is asynchronous
  std::int64_t max_slots = 0;   // completions drawn at a time; 0: EngineConfig's
  std::size_t cache_bytes = 0;  // for keys and values; 0: what they need
  bool merge_adapter = false;   // of a device: EngineConfig's

  template <bool asynchronous, class Use>
  void open(const Opening& opening, Use&& use) const {
    const LanguageModel& model = opening.model;
    inference::EngineConfig config{.threads = threads,
                                   .cache_bytes = cache_bytes,
                                   .cache_element = cache_element,
                                   .quantization = quantization,
                                   .merge_adapter = merge_adapter,
                                   .invariant = invariant,
                                   .routed_experts = routed_experts,
                                   .texts = texts(model)};
    if (max_slots > 0) config.max_slots = max_slots;
    if constexpr (asynchronous) {
      if (threads == 0) config.threads = std::max(1, os::usable_processors() / 2);
      const auto snapshots =
          std::make_shared<inference::WeightSnapshots>(model.decoder->config(), model.decoder->weights());
      const auto engine = std::make_shared<inference::SnapshotEngine>(snapshots, config, opening.stop);
      use(Drawn<inference::SnapshotEngine, sync::SnapshotWeights>{.generator = engine,
                                                                  .sync = sync::SnapshotWeights(snapshots),
                                                                  .progress = [engine] { return engine->passes(); },
                                                                  .hold = [engine] { return engine->hold(); },
                                                                  .snapshots = snapshots});
    } else {
      config.keep_prefixes = true;
      const auto engine =
          std::make_shared<inference::LocalEngine>(model.decoder->config(), model.decoder->weights(), config);
      use(Drawn<inference::LocalEngine, sync::SharedWeights>{
          .generator = engine,
          .sync = sync::SharedWeights([engine] { engine->weights_changed(); }, [engine] { engine->release_memory(); }),
          .moved = [engine] { engine->weights_changed(); }});
    }
  }

 private:
  // Special tokens count as their text, so that a stop string can name one.
  [[nodiscard]] decltype(inference::EngineConfig::texts) texts(const LanguageModel& model) const {
    if (!stop_strings) return nullptr;
    return [tokenizer = model.tokenizer](std::span<const data::TokenId> prompt,
                                         const inference::SamplingConfig& sampling) {
      return inference::text_streams(tokenizer, prompt, sampling.stop_ids, false);
    };
  }
};

static_assert(Drawer<Engine>);

}  // namespace rlalgo::assembly
