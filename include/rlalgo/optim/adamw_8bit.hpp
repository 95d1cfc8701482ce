// AdamW whose moments take 8 bits each: they are dequantised for an update and quantised after it, block by block.
//
//   m ← β₁m̂8 + (1 − β₁)g;   v ← β₂v̂8 + (1 − β₂)g²        m̂8, v̂8: what the codes of the last update stand for
//   p ← p·(1 − lr·λ) − lr/(1 − β₁ᵗ) · m / (√v/√(1 − β₂ᵗ) + ε)
//   m8 ← quantised m, with sign;   v8 ← quantised v, without sign
//
// Source: Dettmers, Lewis, Shleifer & Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", arXiv 2110.02861;
// bitsandbytes 0.50 AdamW8bit on a CPU, which transformers runs as `adamw_bnb_8bit`. Everything between the codes is
// float32; the update uses m and v before they are rounded. blockwise_8bit.hpp says how; a block is 256 elements
// of a tensor in memory order. λ, masters and parameters without gradient: as adamw.hpp.
//
// A parameter of fewer than `min_elements`, one whose name ends in one of `whole`, and one that is neither float32 nor
// has a float32 master, keeps its moments as AdamW has them. transformers leaves embeddings alone so: rows of rare
// tokens share a block with frequent ones, and the paper wants 32 bits for them (section 2.3).
// State: 2 bytes an element and 8 a block, 2.03 in all, where AdamW has 8. It is of whole tensors: what lies in shards on
// ranks would have other blocks on another number of them (trainer/sharded_placement.hpp refuses it).
// Blocks are independent, so neither threads nor order can change a bit.
//
// On another device than the CPU the same numbers come of one kernel for all parameters of a dtype (cuda/kernels.hpp), where the program
// has it, or of ATen's operators over pieces of many parameters (detail/device_blocks.hpp); the host reads nothing. Where gradients are
// not clipped the bits are those of the CPU, but for a last bit of the corrections 1 − βᵗ that a device's powers may have otherwise.
// States are read by either.
//
// Errors: [rlalgo.optim.1] a checkpoint's state does not fit the parameters; [.4] a parameter that is not contiguous.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/optim/adamw.hpp>
#include <rlalgo/optim/concept.hpp>
#include <rlalgo/optim/device_clip.hpp>
#include <rlalgo/optim/master_weight.hpp>
#include <rlalgo/os/thread_pool.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::optim {

struct AdamW8bitConfig {
  AdamWConfig adam{};
  std::int64_t min_elements = 4096;                          // bitsandbytes: min_8bit_size
  std::vector<std::string> whole = {"embed_tokens.weight"};  // ends of names
};

namespace detail {
class DeviceBlocks;
}

class AdamW8bit {
 public:
  using Config = AdamW8bitConfig;
  static constexpr Hooks hooks{.set_momentum = true, .clips_on_device = true, .set_rates = true};

  // Parameters that do not require grad are not trained and have no state.
  explicit AdamW8bit(std::vector<model::Parameter> parameters, AdamW8bitConfig config = {});

  // One update with this learning rate, from the gradients in place.
  void step(double learning_rate);

  // Where all parameters lie on one device that is not the CPU.
  [[nodiscard]] bool clips_on_device() const;
  void step(double learning_rate, const DeviceClip& clip);

  // β₁ from the next update on.
  void set_momentum(double beta1);

  // Factors of the rate by the names of parameters, from the next update on.
  void set_rates(const Rates& rates);

  // Drops the gradients and their memory.
  void zero_grad();

  // <parameter>.exp_avg, .exp_avg_sq [as the parameter] uint8, .exp_avg_scale, .exp_avg_sq_scale [blocks] float32,
  // .step, and .master where it is separate; of the others what AdamW has. Sharing memory with the optimizer.
  [[nodiscard]] std::vector<std::pair<std::string, Tensor>> state() const;

  // All or nothing: on an error the state is as before. A parameter with a master becomes its rounding.
  void load_state(const std::map<std::string, Tensor>& state);

 private:
  struct Entry {
    model::Parameter parameter;
    MasterWeight weight;                     // float32
    Tensor exp_avg, exp_avg_sq;              // like the master, uint8
    Tensor exp_avg_scale, exp_avg_sq_scale;  // [blocks] float32
    Tensor updates;                          // [] float32: t
    double rate = 1.0;                       // times that of the schedule
  };

  void update_here(double learning_rate);  // of parameters in main memory

  AdamWConfig config_;
  AdamW others_;
  std::vector<Entry> entries_;
  std::vector<std::shared_ptr<detail::DeviceBlocks>> devices_;  // of the entries elsewhere: one for each device
  bool others_left_ = false;                                    // whether others_ has parameters
  std::unique_ptr<os::ThreadPool> pool_;
};

}  // namespace rlalgo::optim

#ifndef RLALGO_COMPILED
#include <rlalgo/optim/detail/adamw_8bit_impl.hpp>
#endif
