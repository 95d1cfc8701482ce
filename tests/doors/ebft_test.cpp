#include <rlalgo/ebft.hpp>

#include <memory>

#include <support/bandit.hpp>
#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>

using namespace rlalgo;

namespace {

// Completions of a bandit read as words of one letter; features are those of a small decoder.
feature::TextMatching matching(feature::TextMatchingConfig config = {}) {
  std::shared_ptr<model::Decoder> network =
      model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 3);
  return {feature::FeatureNetwork(network, {1, 2}),
          {.render = [](const reward::Json& prompt, const reward::Json&) { return prompt.get<std::string>(); },
           .encode =
               [](std::string_view text) {
                 feature::TokenIds out;
                 for (const char c : text) out.push_back(c % 23);
                 return out;
               }},
          config};
}

struct Outcome {
  std::vector<run::StepResult> steps;
  double pulled = 0;  // probability of the ground truth's arm at the end
};

Outcome train(double cross_entropy, std::int64_t steps, std::int64_t parts = 1) {
  const auto bandit = std::make_shared<support::Bandit>(4, at::kDouble);
  support::BanditPulls pulls{*bandit, 1};
  std::vector<data::TokenizedPrompt> prompts(2);
  for (auto& p : prompts)
    p = {.row = 0, .ids = {0}, .prompt = "p", .columns = {{"ground_truth", "c"}}, .answer_ids = {2, 2}};
  TrainConfig<Ebft> config;
  config.method.loss.cross_entropy = cross_entropy;
  config.run.rollouts.geometry = {.micro_batch_size = 12 / parts,
                                  .gradient_accumulation_steps = parts,
                                  .steps_per_generation = parts,
                                  .num_generations = 6};
  config.run.rollouts.sampling.max_new_tokens = 1;
  config.run.trainer.max_grad_norm = 0;
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.run.trainer.loop.max_steps = steps;
  auto trainer = make_trainer<Ebft>(
      config, trainer::OnlineInputs<support::BanditPulls>{.policy = bandit,
                                                          .generator = pulls,
                                                          .prompts = prompts,
                                                          .rewards = ebft_rewards(matching()),
                                                          .decode = [](std::span<const data::TokenId> ids) {
                                                            std::string out;
                                                            for (const data::TokenId id : ids)
                                                              out += static_cast<char>('a' + id);
                                                            return out;
                                                          }});
  Outcome out;
  for (std::int64_t k = 0; k < steps; ++k) out.steps.push_back(trainer.step(k));
  out.pulled = at::softmax(bandit->parameters().front().value.detach(), 0)[2].item<double>();
  return out;
}

}  // namespace

TEST_CASE("ebft: completions come to match the ground truth") {
  const Outcome out = train(0.0, 60);
  CHECK(out.pulled > 0.6);
  CHECK(out.steps.back().metrics.value("ebft/alignment") > out.steps.front().metrics.value("ebft/alignment"));
  CHECK(out.steps.front().metrics.value("rewards/alignment/mean") ==
        Approx(out.steps.front().metrics.value("ebft/alignment")));
  CHECK(out.steps.front().metrics.value("reward") == Approx(out.steps.front().metrics.value("ebft/reward")));
}

TEST_CASE("ebft: the likelihood of the ground truth is trained in the same pass") {
  const Outcome out = train(1.0, 1);
  CHECK(out.steps[0].metrics.value("ebft/ce_loss") == Approx(std::log(4.0)));
  CHECK(out.steps[0].loss ==
        Approx(out.steps[0].metrics.value("ebft/rl_loss") + out.steps[0].metrics.value("ebft/ce_loss")));
  CHECK(train(1.0, 40).pulled > train(0.0, 40).pulled);
  for (const std::int64_t parts : {2, 4})
    CHECK(train(1.0, 1, parts).steps[0].grad_norm == Approx(out.steps[0].grad_norm).epsilon(1e-9));
}
