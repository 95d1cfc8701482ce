// Lesson 1: a policy of your own. Five slot machines, no language model: "prompt" = one token that says nothing,
// "completion" = one token, the machine that was pulled. The trainer, the advantage and the loss are those of GRPO,
// untouched.
#include <ATen/ATen.h>

#include <cmath>
#include <iostream>
#include <memory>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/grpo.hpp>

namespace {

using namespace rlalgo;

// The policy: a table of five logits.
struct Bandit : model::Policy {
  at::Tensor logits = at::zeros({5}).requires_grad_(true);

  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions& options) override {
    const at::Tensor log_probs = at::log_softmax(logits / options.temperature, 0);  // [5]
    const at::Tensor pulled = at::tensor(tree.target);                              // [N]
    const at::Tensor entropy = -(log_probs.exp() * log_probs).sum().detach();
    return {log_probs.index_select(0, pulled), entropy.expand({pulled.size(0)})};
  }
  std::vector<model::Parameter> parameters() override { return {{"logits", logits}}; }
};

// The generator: draws machines from the policy's own logits.
struct Pulls {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  const Bandit& bandit;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey key) {
    const at::Tensor probabilities = at::softmax(bandit.logits.detach(), 0).contiguous();
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests) {
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        const auto index = request.first_index + static_cast<std::uint64_t>(j);
        double u = core::uniform({key.seed, core::Stream::sampling}, key.step, index);
        std::int32_t machine = 0;
        while (machine < 4 && (u -= probabilities[machine].item<double>()) >= 0) ++machine;
        out.back().push_back({{.ids = {machine}, .log_probs = {std::log(probabilities[machine].item<float>())}}});
      }
    }
    return out;
  }
};

}  // namespace

int main() {
  const auto bandit = std::make_shared<Bandit>();
  Pulls pulls{*bandit};
  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 64, .num_generations = 64};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.run.trainer.loop.max_steps = 60;
  config.run.trainer.loop.output_dir = "bandit-out";
  train<Grpo>(config,
              trainer::OnlineInputs<Pulls>{.policy = bandit,
                                           .generator = pulls,
                                           .prompts = {{.row = 0, .ids = {0}, .prompt = "", .columns = {}}},
                                           // Machine i pays i/4.
                                           .rewards = {[](const reward::Sample& s) { return s.ids[0] / 4.0; }}});

  const double best = at::softmax(bandit->logits.detach(), 0)[4].item<double>();
  std::cout << "probability of the best machine: " << best << "\n";
  return best > 0.9 ? 0 : 1;
}
