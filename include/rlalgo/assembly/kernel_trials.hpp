// Tries the program's own kernels on a device: a small model trains, scores and draws with them and by LibTorch's operators.
//
//   d(x) = ‖x − t‖₂ / ‖t‖₂,  t: the operators' numbers in float32
//
// Kernels agree where, of every tensor (log-probs, entropies, the gradient of each weight),
//   d(with them) ≤ 1.5·d(without) + ε,  ε = 2·10⁻⁴ in float32, 2·10⁻³ in bfloat16, where roundings fall otherwise,
// and a second time has the same bits. Of draws from the same logits, of weights made whole and of the update with moments in 8 bits the bits are the
// operators', without a distance.
//
// Shows mistakes of compilers, drivers and cards, and of kernels that had run nowhere; not the order of memory that fails once in a million
// times. Several together are tried as a run uses them: passes that are recorded, and attention over what one of them has written.
//
// What a launch that fails raises goes on to the caller: a device may compute nothing in this process after it, so each trial that is not
// trusted is to have a process of its own (remote/tried_kernels.hpp).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/detail/trial_works.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::assembly {

namespace detail {

inline double trial_distance(const tensor::Tensor& found, const tensor::Tensor& truth) {
  const tensor::Tensor t = truth.to(at::kDouble);
  const double size = t.norm().item<double>(), off = found.to(at::kDouble).sub(t).norm().item<double>();
  return off / std::max(size, 1e-12);
}

inline bool same_values(const TrialValues& a, const TrialValues& b, std::string& where) {
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i)
    if (i >= a.size() || i >= b.size() || !a[i].second.equal(b[i].second)) {
      where = i < a.size() ? a[i].first : b[i].first;
      return false;
    }
  return true;
}

}  // namespace detail

struct KernelTrial {
  bool agrees = false;
  std::string found{};  // the largest distance, or what does not agree
};

// Those that the program has for some device: without nvcc, LibTorch's attention alone.
[[nodiscard]] std::vector<cuda::Kernel> kernels_there();

class KernelTrials {
 public:
  // `directory` is there; the model's files go into it.
  KernelTrials(at::Device device, std::filesystem::path directory, KernelTrialSizes sizes = {});

  // One kernel, or several together. Others are off while it runs.
  [[nodiscard]] KernelTrial operator()(std::span<const cuda::Kernel> kernels);

 private:
  at::Device device_;
  std::filesystem::path directory_;
  KernelTrialSizes sizes_;
  std::map<std::string, detail::TrialValues> operators_;  // what was computed without the kernels
};

inline std::vector<cuda::Kernel> kernels_there() {
  std::vector<cuda::Kernel> out;
  for (std::size_t i = 0; i < cuda::kernel_names.size(); ++i) {
    const auto kernel = static_cast<cuda::Kernel>(i);
    const bool there = kernel == cuda::Kernel::flash_attention ? tensor::own_kernels().varlen != nullptr
                                                               : tensor::own_kernels().table != nullptr;
    if (there) out.push_back(kernel);
  }
  return out;
}

inline KernelTrials::KernelTrials(at::Device device, std::filesystem::path directory, KernelTrialSizes sizes)
    : device_(device), directory_(std::move(directory)), sizes_(sizes) {
  const model::Json config = {{"architectures", {"Qwen3ForCausalLM"}},
                              {"model_type", "qwen3"},
                              {"vocab_size", sizes_.vocabulary},
                              {"hidden_size", sizes_.hidden},
                              {"intermediate_size", sizes_.inner},
                              {"num_hidden_layers", 2},
                              {"num_attention_heads", sizes_.heads},
                              {"num_key_value_heads", sizes_.kv_heads},
                              {"head_dim", sizes_.head_dim},
                              {"attention_bias", true},
                              {"rms_norm_eps", 1e-6},
                              {"rope_theta", 1e4},
                              {"max_position_embeddings", 32768},
                              {"initializer_range", 1.2 / std::sqrt(static_cast<double>(sizes_.hidden))},
                              {"tie_word_embeddings", true},
                              {"eos_token_id", sizes_.vocabulary - 1}};
  const auto decoder = model::random_decoder(model::parse_hf_config(config, "the model of trials"), 11, at::kBFloat16);
  model::save_decoder(*decoder, directory_);
}

inline KernelTrial KernelTrials::operator()(std::span<const cuda::Kernel> kernels) {
  using cuda::Kernel;
  const detail::TrialPlace place{device_, directory_, sizes_};
  const auto has = [&](Kernel kernel) { return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end(); };
  // Its numbers without the kernel are those with the ones that it does nothing without.
  std::vector<Kernel> beside, all(kernels.begin(), kernels.end());
  if (kernels.size() == 1 && has(Kernel::unrolled_heads)) beside = {Kernel::flash_attention};
  all.insert(all.end(), beside.begin(), beside.end());

  const auto without = [&](const detail::TrialWork& work, at::ScalarType type,
                           std::span<const Kernel> on) -> const detail::TrialValues& {
    const std::string name =
        std::string(work.name) + (type == work.type ? "" : ", truth") + (on.empty() ? "" : ", beside");
    auto found = operators_.find(name);
    if (found == operators_.end()) {
      const detail::OnlyKernels only(on);
      found = operators_.emplace(name, work.run(place, type)).first;
    }
    return found->second;
  };
  double largest = 0.0;
  for (const detail::TrialWork& work : detail::trial_works()) {
    const bool together = kernels.size() > 1;
    if (std::none_of(work.of.begin(), work.of.end(), has) || (together && work.exact)) continue;
    detail::TrialValues values, again;
    {
      const detail::OnlyKernels only(all);
      values = work.run(place, work.type);
      again = work.run(place, work.type);
    }
    const auto refuse = [&](const std::string& what) {
      return KernelTrial{.agrees = false, .found = std::string(work.name) + ": " + what};
    };
    std::string where;
    if (!detail::same_values(values, again, where)) return refuse(where + ": other bits a second time");
    const detail::TrialValues& operators = without(work, work.type, beside);
    if (work.exact) {
      if (!detail::same_values(values, operators, where)) return refuse(where + ": not the operators' bits");
      continue;
    }
    const detail::TrialValues& truth = without(work, at::kFloat, {});
    if (values.size() != truth.size() || operators.size() != truth.size()) return refuse("other tensors");
    const double epsilon = work.type == at::kFloat ? 2e-4 : 2e-3;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double found = detail::trial_distance(values[i].second, truth[i].second),
                   most = 1.5 * detail::trial_distance(operators[i].second, truth[i].second) + epsilon;
      largest = std::max(largest, found);
      if (!(found <= most)) {  // nor what is no number
        std::array<char, 96> text;
        std::snprintf(text.data(), text.size(), ": a distance of %.2g, where %.2g is allowed", found, most);
        return refuse(values[i].first + text.data());
      }
    }
  }
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1e", largest);
  return {.agrees = true, .found = largest == 0.0 ? "the same bits" : std::string("distance ") + text.data()};
}

}  // namespace rlalgo::assembly
