// Lesson 3: GRPO without YAML, and a loss of your own in its place: 30 lines of REINFORCE with a clipped weight. A loss
// is any struct with `needs`, `rows` and a call operator; a method names it with an estimator and an aggregation.
//
//   example_03_grpo_from_code MODEL_DIR   (asks the model to answer in few tokens)
#include <ATen/ops/index_select.h>

#include <iostream>
#include <stdexcept>

#include <rlalgo/advantage/leave_one_out.hpp>
#include <rlalgo/aggregation/sum_then_normalize.hpp>
#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/tensor/device.hpp>
#include <rlalgo/trainer/online.hpp>

namespace {

using namespace rlalgo;

// −Σ sg(min(c, cap))·A·x / tokens of the step: importance weight c = exp(x − o), never a gradient through c.
struct CappedReinforce {
  struct Config {
    double cap = 2.0;
  };
  static constexpr loss::Needs needs{.old_log_prob = true};
  static constexpr loss::RowKind rows = loss::RowKind::samples;
  Config config{};

  loss::Result operator()(const loss::Scored& s, const loss::Counts& counts) const {
    const at::Tensor& old = s.old_log_prob;  // of rows that are new, the detached log-probs of now
    const at::Tensor weight = s.log_prob.detach().sub(old).exp().clamp_max(config.cap);  // [N]
    const at::Tensor advantage = at::index_select(s.advantage, 0, s.row);                // [N]
    loss::Result result;
    result.value = s.log_prob.mul(weight).mul(advantage).mul(s.mask).sum().div(-counts.tokens);
    result.metrics.mean("weight", weight.sum().item<double>(), static_cast<double>(weight.numel()));
    return result;
  }
};

struct CappedRloo {
  using Loss = CappedReinforce;
  using Estimator = advantage::LeaveOneOut;
  using Aggregation = aggregation::SumThenNormalize;
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("usage: example_03_grpo_from_code MODEL_DIR");
  const auto device = tensor::choose_device("auto").device;  // a GPU where there is one that LibTorch can use
  const auto model = assembly::LanguageModel::load({.model = {argv[1]}, .device = device});
  assembly::Completions completions(model, assembly::Engine());
  TrainConfig<CappedRloo> config;  // config.method is CappedReinforce::Config
  config.run.rollouts.geometry = {.micro_batch_size = 32, .num_iterations = 2, .num_generations = 8};
  config.run.rollouts.sampling = {.max_new_tokens = 24, .stop_ids = model.stop_ids};
  config.run.trainer.schedule.learning_rate = 3e-4;
  config.run.trainer.loop.max_steps = 30;
  config.run.trainer.loop.output_dir = "from-code-out";
  const auto brevity = [](const reward::Sample& s) { return -static_cast<double>(s.ids.size()); };
  const data::Json texts = {"Ada has 3 pears.", "Ben finds 5 coins.", "Chen had 9 books.", "Dana keeps 2 shells."};
  auto inputs = assembly::online_inputs(model, completions, assembly::prompts(model, texts), {{"brevity", brevity}});
  return train<CappedRloo>(config, std::move(inputs)).exit_code();
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
