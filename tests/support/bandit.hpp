// The smallest thing the trainer can train: a table of logits, and a generator that draws from it.
#pragma once

#include <cmath>
#include <memory>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/model/policy.hpp>

namespace rlalgo::support {

class Bandit : public rlalgo::model::Policy {
 public:
  explicit Bandit(std::int64_t arms, at::ScalarType type = at::kFloat)
      : logits(at::zeros({arms}, at::TensorOptions().dtype(type)).requires_grad_(true)) {}

  rlalgo::model::Scores score(const rlalgo::model::TokenTree& tree,
                              const rlalgo::model::ScoreOptions& options) override {
    const at::Tensor log_probs = at::log_softmax(logits / options.temperature, 0);
    const at::Tensor arms = at::tensor(tree.target, at::TensorOptions().dtype(at::kLong));
    const at::Tensor entropy = -(log_probs.exp() * log_probs).sum().detach();
    return {log_probs.index_select(0, arms), entropy.expand({arms.size(0)})};
  }
  std::vector<rlalgo::model::Parameter> parameters() override { return {{"logits", logits}}; }

  at::Tensor logits;  // [arms]
};

// Completions of `length` tokens, each an arm. With `further`, completion number i has i mod (further + 1) further rows, with
// prompts of their own.
struct BanditPulls {
  static constexpr rlalgo::inference::WeightSource weights = rlalgo::inference::WeightSource::shared;
  const Bandit& bandit;
  std::int64_t length = 1;
  std::uint64_t further = 0;

  std::vector<std::vector<rlalgo::data::Completion>> generate(std::span<const rlalgo::inference::Request> requests,
                                                              const rlalgo::inference::SamplingConfig&,
                                                              rlalgo::inference::DrawKey key) {
    const at::Tensor p = at::log_softmax(bandit.logits.detach().to(at::kDouble), 0).exp().contiguous();
    const double* probability = p.const_data_ptr<double>();
    std::vector<std::vector<rlalgo::data::Completion>> out;
    for (const auto& request : requests) {
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        const auto index = request.first_index + static_cast<std::uint64_t>(j);
        const auto draw = [&](std::uint64_t row) {
          rlalgo::data::Completion completion;
          for (std::int64_t t = 0; t < 1 + static_cast<std::int64_t>(index + row) % length; ++t) {
            double u = rlalgo::core::uniform({key.seed, rlalgo::core::Stream::sampling}, key.step,
                                             index * 1000 + row * 100 + static_cast<std::uint64_t>(t));
            std::int32_t arm = 0;
            while (arm + 1 < p.numel() && (u -= probability[arm]) >= 0) ++arm;
            completion.ids.push_back(arm);
            completion.log_probs.push_back(static_cast<float>(std::log(probability[arm])));
          }
          return completion;
        };
        out.back().push_back(draw(0));
        for (std::uint64_t row = 1; further > 0 && row <= index % (further + 1); ++row) {
          out.back().back().further.push_back(draw(row));
          out.back().back().further.back().prompt_ids = {0, static_cast<std::int32_t>(row % 2)};
        }
      }
    }
    return out;
  }
};

}  // namespace rlalgo::support
