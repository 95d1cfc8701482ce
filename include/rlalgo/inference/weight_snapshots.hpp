// A second copy of the weights: one thread trains and publishes, another generates with what was published last.
//
//   trainer:    optimizer step · publish(v)            copies what is trained, then makes it the current one
//   generator:  acquire() → weights of version v       stay as they are while the handle lives
//
// Two buffers. publish() writes the one that is not current; if that is still being read and the current one is not, it
// writes the current one, and acquire() waits for the copy. Only when both are being read does publish() wait, and at
// most `seconds`. Tensors that are trained (requires_grad) are copied; frozen ones are shared, so a run of an adapter
// copies the adapter only.
//
// Weights that are whole only at times (sharded over several ranks, distributed/sharded_weights.hpp) are fetched in parts
// (fetch_by), and frozen ones are then copied once, for both buffers.
//
// publish() on one thread; acquire() and the end of handles on any. Handles may outlive the snapshots.
//
// Errors: [rlalgo.inference.13] both buffers stay in use; [.14] nothing has been published; [.17] a weight is not
// among those that can be fetched.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/large_pages.hpp>

namespace rlalgo::inference {

class WeightSnapshots {
 public:
  struct Snapshot {
    model::DecoderWeights weights;
    std::int64_t version = -1;
    std::uint64_t number = 0;  // of its publication: no two have the same
  };
  using Handle = std::shared_ptr<const Snapshot>;

  // `live` are the trainer's weights, which must outlive this one.
  WeightSnapshots(model::DecoderConfig config, const model::DecoderWeights& live, double seconds = 600.0)
      : config_(std::move(config)), live_(live), seconds_(seconds), state_(std::make_shared<State>()) {}

  // each(see) calls see(weight) with every weight in its turn, whole meanwhile. Before the first publish().
  using See = std::function<void(const tensor::Tensor& weight)>;
  void fetch_by(std::function<void(const See&)> each) { each_ = std::move(each); }

  // Copies the weights as they are now.
  void publish(std::int64_t version);

  // The weights published last.
  [[nodiscard]] Handle acquire();

  [[nodiscard]] const model::DecoderConfig& decoder_config() const noexcept { return config_; }
  // The trainer's, which change.
  [[nodiscard]] const model::DecoderWeights& live() const noexcept { return live_; }
  // Bytes that the last publish() copied.
  [[nodiscard]] std::size_t copied_bytes() const noexcept { return copied_bytes_; }

 private:
  struct Buffer {
    Snapshot snapshot;
    std::vector<tensor::Tensor> own;  // the copies, in the order of visit()
    int readers = 0;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    Buffer buffers[2];
    int current = -1, writing = -1;
  };

  int begin_writing(std::int64_t version);

  void end_writing(int target, bool good);

  void copy(Buffer& buffer, std::int64_t version);
  // For copies of all that is trained; nothing where that is not in this machine's memory.
  std::optional<tensor::LargePages> room_for_copies();
  void fetch(Buffer& buffer);

  // That a tensor has, whatever lies in it at the time.
  [[nodiscard]] static const void* memory_of(const tensor::Tensor& value) {
    return value.storage().unsafeGetStorageImpl();
  }

  // visit(tensor) for every tensor; a tied lm_head follows the embedding.
  template <class Visit>
  void visit(model::DecoderWeights& weights, Visit&& visit) const {
    model::DecoderConfig config = config_;
    config.tied_embeddings = !weights.lm_head.defined() || memory_of(weights.lm_head) == memory_of(weights.embedding);
    const bool tied = weights.lm_head.defined() && config.tied_embeddings;
    model::visit_weights(config, weights,
                         [&](const std::string&, tensor::Tensor& value, const auto&, auto) { visit(value); });
    if (tied) weights.lm_head = weights.embedding;
    model::visit_loras(config, weights, [&](const std::string&, model::Lora& lora, const tensor::Tensor&) {
      for (tensor::Tensor* value : {&lora.a, &lora.b, &lora.magnitude}) visit(*value);
    });
  }

  model::DecoderConfig config_;
  const model::DecoderWeights& live_;
  double seconds_;
  std::function<void(const See&)> each_;  // empty: they are always there
  std::vector<tensor::Tensor> frozen_;    // with each_: the copies of both buffers, in the order of visit()
  std::shared_ptr<State> state_;
  std::uint64_t publications_ = 0;
  std::size_t copied_bytes_ = 0;
};

}  // namespace rlalgo::inference

#ifndef RLALGO_COMPILED
#include <rlalgo/inference/detail/weight_snapshots_impl.hpp>
#endif
