// Draws short continuations at many places of a document, from the trainer's own weights: one prefill, and every block
// decoded off its keys and values.
//
//   token t of sample j of block k ~ p(· | document[0, e_k), the t tokens before it)
//
// The prompt of a block is what stands before it in the document, so all blocks share one prefill; the predictor of a
// first token is the document's own row e_k − 1, shared by the samples. Work of a document of K blocks, n samples and G
// tokens: max e_k + K·n·(G − 1) rows of a pass, K + K·n·(G − 1) rows of the head (4,572 and 3,683 where encoding the
// document anew for every token takes 46,992 of each: S = 1024, stride 8, n = 4, G = 8).
//
// No token ends a block: it has G tokens. Blocks are decoded max_slots at a time, each with a copy of one page of the
// document's cache; of a model that carries a state from token to token, the states before so many blocks are kept at a time. Draws are those of LocalEngine for the prompt document[0, e_k): a logit depends on weights and tokens
// alone, a draw on (key, index, position), so neither order nor neighbours change a token.
//
// Errors: [rlalgo.inference.1] a block ends beyond max_position_embeddings; [.3] an id outside the vocabulary; [.4] a
// sampling setting out of range; [.5] logits that are not finite; [.7] an engine setting out of range; [.15] a block
// that starts outside the document.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/block_generator.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/engine_device.hpp>
#include <rlalgo/inference/engine_device_for.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/sampling.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/os/thread_pool.hpp>

namespace rlalgo::inference {

class BlockEngine {
 public:
  static constexpr WeightSource weights = WeightSource::shared;

  struct Counts {
    std::int64_t forward_rows = 0, head_rows = 0;  // so far
  };

  // `weights` must outlive the engine; they are read where they are at every call.
  BlockEngine(const model::DecoderConfig& decoder, const model::DecoderWeights& weights, EngineConfig engine = {});
  BlockEngine(const BlockEngine&) = delete;
  BlockEngine& operator=(const BlockEngine&) = delete;

  // Of `sampling`, temperature and truncation.
  [[nodiscard]] BlockSamples generate(const BlockRequest& request, const SamplingConfig& sampling, DrawKey key);

  [[nodiscard]] const Counts& counts() const noexcept { return counts_; }

  // Gives back the memory of keys and values.
  void release_memory() {
    cache_.trim();
    device_->release_memory();
  }

 private:
  // One sample of one block under way.
  struct Place {
    std::size_t block, sample;
  };

  void check(const BlockRequest& request, const SamplingConfig& sampling) const;

  void run(const Forward::Weights& weights, const std::vector<Row>& rows);

  // The document's keys and values up to the last of the blocks [first, end), and the first token of all their samples. Where the
  // model carries a state, `anchors` get it, as it is before each block.
  void prefill(const Forward::Weights& weights, const BlockRequest& request, const SamplingConfig& sampling,
               DrawKey key, std::size_t first, std::size_t end, KvCache::Sequence& document,
               std::span<KvCache::Sequence> anchors, BlockSamples& out);

  // The other tokens of these samples.
  void decode(const Forward::Weights& weights, const BlockRequest& request, const SamplingConfig& sampling, DrawKey key,
              const KvCache::Sequence& document, std::span<const KvCache::Sequence> anchors,
              std::span<const Place> places, BlockSamples& out);

  // Draws the next token of each place from the row of the last pass at the same place of `rows`.
  void draw(const Forward::Weights& weights, const BlockRequest& request, const SamplingConfig& sampling, DrawKey key,
            std::span<const std::int64_t> rows, std::span<const Place> places, BlockSamples& out);

  model::DecoderConfig decoder_;
  const model::DecoderWeights& weights_;
  EngineConfig engine_;
  os::ThreadPool pool_;
  std::unique_ptr<EngineDevice> device_;
  KvCache& cache_;
  Forward& forward_;
  std::vector<TokenDraw> draws_;  // per thread
  Counts counts_;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/block_engine_impl.hpp>
#endif
