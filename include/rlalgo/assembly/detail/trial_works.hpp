// What kernel_trials.hpp computes with kernels and without: small pieces of training, generation and updates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/policy.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/optim/adamw_8bit.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::assembly {

// Of the model, and of what it reads.
struct KernelTrialSizes {
  std::int64_t hidden = 512, inner = 1408, heads = 8, kv_heads = 2, head_dim = 64, vocabulary = 8209;
  std::int64_t prompt = 230, completion = 90;  // tokens, of the longest
  std::int64_t requests = 9;                   // that decode together
};
// For a device that computes on the host, as those of tests do.
inline constexpr KernelTrialSizes smallest_kernel_trial{.hidden = 32,
                                                        .inner = 48,
                                                        .heads = 2,
                                                        .kv_heads = 1,
                                                        .head_dim = 16,
                                                        .vocabulary = 67,
                                                        .prompt = 8,
                                                        .completion = 22,
                                                        .requests = 2};

namespace detail {

using TrialValues = std::vector<std::pair<std::string, tensor::Tensor>>;  // by what they are, in host memory

using cuda::Kernel;

// What is computed with kernels and without, on a model.
struct TrialPlace {
  at::Device device;
  const std::filesystem::path& directory;
  const KernelTrialSizes& sizes;

  [[nodiscard]] std::unique_ptr<model::Decoder> load(at::ScalarType type) const {
    return model::load_decoder(directory, model::LoadOptions{.dtype = type, .device = device});
  }
  [[nodiscard]] std::vector<std::int32_t> tokens(std::int64_t count, std::int64_t seed) const {
    std::vector<std::int32_t> out;
    for (std::int64_t i = 0; i < count; ++i)
      out.push_back(static_cast<std::int32_t>((i * 37 + i * i + seed * 101) % (sizes.vocabulary - 4)));
    return out;
  }
};

inline tensor::Tensor on_host(const tensor::Tensor& x) { return x.detach().to(at::kCPU); }

// Two micro-batches: completions of one prompt, and a row by itself.
inline TrialValues train(const TrialPlace& at, at::ScalarType type, bool adapter) {
  const auto decoder = at.load(type);
  if (adapter) {
    model::LoraConfig lora{.r = 8, .alpha = 16, .dropout = 0.25};
    lora.every_linear = true;
    model::attach_lora(*decoder, lora, 5);
    const c10::NoGradGuard no_grad;
    for (const model::Parameter& p : decoder->parameters())  // B is zero, so the gradient of A would be
      if (p.name.find("lora_B") != std::string::npos) p.value.fill_(0.01);
  }
  const std::vector<std::int32_t> prompt = at.tokens(at.sizes.prompt, 1), other = at.tokens(at.sizes.prompt / 3 + 1, 2);
  std::vector<std::vector<std::int32_t>> completions;
  for (std::int64_t i = 0; i < 4; ++i) completions.push_back(at.tokens(at.sizes.completion - 7 * i, 3 + i));
  std::vector<model::Sequence> rows;
  for (std::size_t i = 0; i < 3; ++i) rows.push_back({.prompt = prompt, .completion = completions[i]});
  rows.push_back({.prompt = other, .completion = completions[3]});
  const model::TokenTree tree = model::build_tree(rows);
  TrialValues out;
  for (std::uint64_t draw = 0; draw < 2; ++draw) {
    const model::Scores scores = decoder->score(tree, {.entropy = true, .draw = draw});
    scores.log_prob.sum().backward();
    out.emplace_back("log-probs", on_host(scores.log_prob));
    out.emplace_back("entropies", on_host(scores.entropy));
  }
  for (const model::Parameter& p : decoder->parameters())
    if (p.value.grad().defined()) out.emplace_back("the gradient of " + p.name, on_host(p.value.grad()));
  return out;
}

inline inference::EngineConfig trial_engine(const TrialPlace& at, inference::Quantization quantization) {
  return {.max_slots = at.sizes.requests, .cache_bytes = std::size_t{64} << 20U, .quantization = quantization};
}

// Prompts of other lengths, up to three times the longest.
inline std::vector<inference::Request> trial_requests(const TrialPlace& at, bool given) {
  std::vector<inference::Request> out;
  for (std::int64_t i = 0; i < at.sizes.requests; ++i) {
    const std::int64_t length =
        1 + (3 * at.sizes.prompt - 1) * i * i / ((at.sizes.requests - 1) * (at.sizes.requests - 1));
    out.push_back({.prompt = at.tokens(length, 20 + i), .first_index = static_cast<std::uint64_t>(i)});
    if (given) out.back().given = at.tokens(12 + i % 3, 40 + i);
  }
  return out;
}

inline TrialValues generate(const TrialPlace& at, at::ScalarType type, inference::Quantization quantization,
                            const inference::SamplingConfig& sampling, bool given) {
  const auto decoder = at.load(type);
  inference::LocalEngine engine(decoder->config(), decoder->weights(), trial_engine(at, quantization));
  TrialValues out;
  for (const auto& group : engine.generate(trial_requests(at, given), sampling, {.seed = 5}))
    for (const data::Completion& one : group) {
      out.emplace_back("log-probs of tokens", tensor::from_values(std::span<const float>(one.log_probs),
                                                                  at::TensorOptions().dtype(at::kFloat)));
      if (given) continue;
      out.emplace_back(
          "tokens", tensor::from_values(std::span<const data::TokenId>(one.ids), at::TensorOptions().dtype(at::kInt)));
    }
  return out;
}

inline TrialValues draw(const TrialPlace& at) {
  TrialValues out;
  for (const inference::SamplingConfig& sampling :
       {inference::SamplingConfig{.temperature = 0.9, .top_p = 0.95, .max_new_tokens = 6},
        inference::SamplingConfig{.temperature = 0.0, .max_new_tokens = 6},
        inference::SamplingConfig{.top_k = 20, .min_p = 0.02, .repetition_penalty = 1.2, .max_new_tokens = 6}})
    for (auto& [name, value] : generate(at, at::kBFloat16, inference::Quantization::none, sampling, false))
      if (name == "tokens") out.emplace_back(name, std::move(value));
  return out;
}

inline TrialValues update(const TrialPlace& at) {
  const auto decoder = at.load(at::kBFloat16);
  optim::AdamW8bit optimizer(decoder->parameters(), {.min_elements = 256});
  const auto tree_prompt = at.tokens(at.sizes.prompt, 7), completion = at.tokens(at.sizes.completion, 8);
  const std::vector<model::Sequence> rows = {{.prompt = tree_prompt, .completion = completion}};
  const model::TokenTree tree = model::build_tree(rows);
  for (int step = 0; step < 2; ++step) {
    decoder->score(tree, {}).log_prob.sum().backward();
    optimizer.step(1e-3);
    optimizer.zero_grad();
  }
  TrialValues out;
  for (const auto& [name, value] : optimizer.state()) out.emplace_back("the state " + name, on_host(value));
  for (const model::Parameter& p : decoder->parameters()) out.emplace_back("the weight " + p.name, on_host(p.value));
  return out;
}

inline TrialValues make_whole(const TrialPlace& at) {
  TrialValues out;
  const std::int64_t rows = at.sizes.inner + 3, columns = at.sizes.hidden + 8;
  const tensor::Tensor w = tensor::zeros({rows, columns}, at::TensorOptions().dtype(at::kFloat));
  float* const data = w.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < w.numel(); ++i)
    data[i] = static_cast<float>((i * 7919 + i / columns * 104729) % 2003 - 1001) / 20000.0F;
  for (const auto code : {model::WeightCode::nf4, model::WeightCode::fp4, model::WeightCode::int8})
    for (const bool nested : {false, true}) {
      if (nested && code == model::WeightCode::int8) continue;
      const auto there = model::quantise(w, {.code = code, .nested = nested}, "w").to(at.device);
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        out.emplace_back("a matrix", on_host(there.part(0, rows, 0, columns, type)));
        out.emplace_back("a part of a matrix", on_host(there.part(2, rows - 5, 1, columns / 2, type)));
      }
    }
  return out;
}

struct TrialWork {
  std::string_view name;
  at::ScalarType type;
  bool exact;  // the bits are the operators'
  TrialValues (*run)(const TrialPlace&, at::ScalarType);
  std::initializer_list<Kernel> of;  // whom it tries by itself
};

inline std::span<const TrialWork> trial_works() {
  static const inference::SamplingConfig scoring{.temperature = 0.9, .max_new_tokens = 16};
  static const std::array<TrialWork, 9> works = {
      {{"training in float32",
        at::kFloat,
        false,
        [](const TrialPlace& at, at::ScalarType t) { return train(at, t, false); },
        {Kernel::rms_norm, Kernel::rotate, Kernel::gated, Kernel::segment_sum, Kernel::log_prob}},
       {"training in bfloat16",
        at::kBFloat16,
        false,
        [](const TrialPlace& at, at::ScalarType t) { return train(at, t, false); },
        {Kernel::rms_norm, Kernel::rotate, Kernel::gated, Kernel::segment_sum, Kernel::log_prob,
         Kernel::flash_attention, Kernel::unrolled_heads}},
       {"training an adapter",
        at::kBFloat16,
        false,
        [](const TrialPlace& at, at::ScalarType t) { return train(at, t, true); },
        {Kernel::dropout}},
       {"generation in bfloat16",
        at::kBFloat16,
        false,
        [](const TrialPlace& at, at::ScalarType t) {
          return generate(at, t, inference::Quantization::none, scoring, true);
        },
        {Kernel::rms_norm, Kernel::rotate, Kernel::gated, Kernel::decode_attention, Kernel::flash_attention}},
       {"generation with weights in int8",
        at::kBFloat16,
        false,
        [](const TrialPlace& at, at::ScalarType t) {
          return generate(at, t, inference::Quantization::int8, scoring, true);
        },
        {Kernel::product_8bit}},
       {"draws", at::kBFloat16, true, [](const TrialPlace& at, at::ScalarType) { return draw(at); }, {Kernel::draw}},
       {"an update with moments in 8 bits",
        at::kBFloat16,
        true,
        [](const TrialPlace& at, at::ScalarType) { return update(at); },
        {Kernel::adamw_8bit}},
       {"weights in 4 and 8 bits made whole",
        at::kFloat,
        true,
        [](const TrialPlace& at, at::ScalarType) { return make_whole(at); },
        {Kernel::dequantise}},
       {"generation in float32",
        at::kFloat,
        false,
        [](const TrialPlace& at, at::ScalarType t) {
          return generate(at, t, inference::Quantization::none, scoring, true);
        },
        {Kernel::rms_norm, Kernel::rotate, Kernel::gated}}}};
  return works;
}

// Those alone are on while it lives.
class OnlyKernels {
 public:
  explicit OnlyKernels(std::span<const Kernel> kernels) {
    (void)tensor::
        own_kernels();  // reads RLALGO_CUDA_KERNELS at the first call, which would switch others on while this lives
    for (std::size_t i = 0; i < before_.size(); ++i) {
      const auto kernel = static_cast<Kernel>(i);
      before_[i] = cuda::in_use(kernel);
      cuda::use(kernel, std::find(kernels.begin(), kernels.end(), kernel) != kernels.end());
    }
  }
  OnlyKernels(const OnlyKernels&) = delete;
  OnlyKernels& operator=(const OnlyKernels&) = delete;
  ~OnlyKernels() {
    for (std::size_t i = 0; i < before_.size(); ++i) cuda::use(static_cast<Kernel>(i), before_[i]);
  }

 private:
  std::array<bool, cuda::kernel_names.size()> before_{};
};

}  // namespace detail

}  // namespace rlalgo::assembly
