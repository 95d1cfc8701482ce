// One step of a preference method on a table of logits, for the tests of doors.
#pragma once

#include <memory>
#include <vector>

#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>
#include <support/bandit.hpp>

#include <rlalgo/data/answer_set.hpp>
#include <rlalgo/trainer/offline.hpp>

namespace rlalgo::support {

// Log-probs of the table's four arms.
inline std::vector<double> arm_log_probs() {
  const std::vector<double> logits = {0.3, -0.2, 0.5, 0.1};
  double sum = 0;
  for (const double l : logits) sum += std::exp(l);
  std::vector<double> out;
  for (const double l : logits) out.push_back(l - std::log(sum));
  return out;
}

// One example: prompt {0}, chosen {1, 2}, rejected {3}; or, unpaired, the same two as rows of their own.
inline rlalgo::trainer::OfflineInputs preference_inputs(bool pairs) {
  auto policy = std::make_shared<Bandit>(4, at::kDouble);
  {
    const c10::AutoGradMode no_gradient(false);
    policy->logits.copy_(at::tensor({0.3, -0.2, 0.5, 0.1}, at::kDouble));
  }
  auto set = std::make_shared<rlalgo::data::AnswerSet>(pairs ? 2 : 1);
  const std::vector<rlalgo::data::TokenId> prompt = {0}, chosen = {1, 2}, rejected = {3};
  set->append(0, true, prompt, chosen);
  set->append(1, false, prompt, rejected);
  return {.policy = policy, .answers = set, .reference = std::make_shared<Bandit>(4, at::kDouble)};
}

// The loss of the first step.
template <class M>
double first_loss(rlalgo::TrainConfig<M> config = {}, bool pairs = true) {
  config.run.sampling.micro_batch_size = 2;
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.01};
  return rlalgo::make_trainer<M>(std::move(config), preference_inputs(pairs)).step(0).loss;
}

}  // namespace rlalgo::support
