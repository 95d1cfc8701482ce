// Blocks of documents, as strided energy-based fine-tuning draws them in this process (inference/block_engine.hpp), and the sync policy
// that reaches their engine.
//
//   Blocks blocks(model, sharding);
//   auto inputs = strided_inputs(model, blocks, documents, network, sharding);       // for trainer::make_trainer<StridedEbft>
#pragma once

#include <memory>
#include <span>
#include <utility>

#include <rlalgo/assembly/drawer.hpp>
#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/layout.hpp>
#include <rlalgo/assembly/load_documents.hpp>
#include <rlalgo/assembly/model_inputs.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/sync/any_sync.hpp>
#include <rlalgo/sync/shared_weights.hpp>
#include <rlalgo/trainer/strided.hpp>

namespace rlalgo::assembly {

class Blocks {
 public:
  // `model` must outlive it. `sharding` (or null) holds its weights.
  explicit Blocks(const LanguageModel& model, const std::shared_ptr<Sharding>& sharding = nullptr)
      : engine_(model.decoder->config(), model.decoder->weights()), sync_(policy(sharding)) {}
  Blocks(const Blocks&) = delete;  // sync() has its address
  Blocks& operator=(const Blocks&) = delete;

  [[nodiscard]] inference::BlockEngine& engine() { return engine_; }
  [[nodiscard]] const sync::AnySync& sync() const { return sync_; }

 private:
  // Where training begins, the engine's memory is given back.
  sync::AnySync policy(const std::shared_ptr<Sharding>& sharding) {
    Drawn<inference::BlockEngine, sync::SharedWeights> drawn{
        .sync = sync::SharedWeights({}, [this] { engine_.release_memory(); })};
    return sync::AnySync(Sharded{sharding}.policy<false>(drawn));
  }

  inference::BlockEngine engine_;
  sync::AnySync sync_;
};

// What is given must outlive the trainer.
[[nodiscard]] inline trainer::StridedInputs<inference::BlockEngine, sync::AnySync> strided_inputs(
    const LanguageModel& model, Blocks& blocks, Documents documents, feature::FeatureNetwork network,
    const std::shared_ptr<Sharding>& sharding = nullptr,
    const std::shared_ptr<distributed::World>& world = std::make_shared<distributed::World>()) {
  trainer::StridedInputs<inference::BlockEngine, sync::AnySync> out{
      .policy = model.decoder,
      .generator = blocks.engine(),
      .documents = std::move(documents.train),
      .network = std::move(network),
      .evaluation = std::move(documents.evaluation),
      .sync = blocks.sync(),
      .decode = [&model](std::span<const data::TokenId> ids) { return model.tokenizer.decode(ids, false); }};
  set_model(out, model, world, sharding);
  return out;
}

}  // namespace rlalgo::assembly
