// Puts a low-rank adapter on a decoder: W stays as it is and is shared, A and B (and modules to save) are trained.
//
//   W' = W + s·B A,   s = α/r, or α/√r (rank-stabilised, Kalajdzievski, arXiv 2312.03732)
//
// Source: Hu et al., arXiv 2106.09685; initialisations as PEFT 0.19 has them: PiSSA, Meng et al., arXiv 2404.02948
// (A = √S Vᵀ, B = U √S of the r largest singular values of W, taken out of W); orthogonal: B A = 0 with both nonzero.
// Random numbers are Philox functions of (seed, module, element): the same adapter everywhere, but not PyTorch's.
// Adapter tensors are float32 (float64 over a float64 model), whatever the base is in. After attaching, the decoder's
// own tensors are frozen; Decoder::without_adapter() is the model before, over the same memory.
//
// Errors (usage): [rlalgo.model.27] the decoder has an adapter already; and those of lora_config.hpp.
#pragma once

#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

// Draws for one module: uniform in ±bound, or normal numbers.
class LoraDraw {
 public:
  LoraDraw(std::uint64_t seed, std::uint32_t module) : key_{seed, core::Stream::init}, module_(module) {}

  [[nodiscard]] Tensor uniform(std::int64_t rows, std::int64_t columns, double bound);
  [[nodiscard]] Tensor normal(std::int64_t rows, std::int64_t columns, double deviation);

 private:
  static double word(std::uint32_t w) { return static_cast<double>(w) * 0x1.0p-32; }

  template <class F>
  Tensor fill(std::int64_t rows, std::int64_t columns, F&& value) {
    Tensor out = tensor::empty({rows, columns}, at::TensorOptions().dtype(at::kFloat));
    float* data = out.mutable_data_ptr<float>();
    // Steps of the decoder's own initialiser count from 0; adapters draw from 2³² on.
    const std::uint64_t step = (std::uint64_t{1} << 32U) + (std::uint64_t{module_} << 4U) + calls_++;
    for (std::int64_t i = 0; i < out.numel(); ++i)
      data[i] = static_cast<float>(value(core::philox(key_, step, static_cast<std::uint64_t>(i))));
    return out;
  }

  core::PhiloxKey key_;
  std::uint32_t module_;
  std::uint64_t calls_ = 0;
};

// Fills A and B, and for PiSSA replaces `weight` by what they leave of it.
void initialise_lora(LoraInit init, LoraDraw draw, std::int64_t r, Lora& lora, Tensor& weight);

}  // namespace detail

// Paths of the linear maps that an adapter can be put on, of all modules with weights, and of the parameters of all experts.
struct DecoderModules {
  std::vector<std::string> linears, all, parameters;
};
[[nodiscard]] DecoderModules decoder_modules(const DecoderConfig& config, const DecoderWeights& weights);

namespace detail {

void attach_lora(Decoder& decoder, const LoraConfig& config, std::uint64_t seed, TargetCheck check, bool continued);

}  // namespace detail

// What attach_lora() says of the settings and of names that the model does not have; the weights are not looked at.
void check_lora_targets(const Decoder& decoder, const LoraConfig& config);

// Adds a fresh adapter. `seed` draws its first values and its dropout.
void attach_lora(Decoder& decoder, const LoraConfig& config, std::uint64_t seed);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/lora_impl.hpp>
#endif
