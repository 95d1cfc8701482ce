// Lesson 9: several ranks. The bandit of lesson 1, trained by one process and by two that share every batch: the same
// weights. A rank is a process that finds RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment, as torchrun
// sets them; without them this program starts two of itself. `rlalgo train --nproc-per-node 2` does the same for you.
#include <ATen/ATen.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/distributed/process_world.hpp>
#include <rlalgo/grpo.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/reward/functor.hpp>

namespace {

using namespace rlalgo;

struct Bandit : model::Policy {
  at::Tensor logits = at::zeros({5}).requires_grad_(true);

  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions&) override {
    const at::Tensor pulled = at::tensor(tree.target);  // [N]
    return {at::log_softmax(logits, 0).index_select(0, pulled), at::zeros({pulled.size(0)})};
  }
  std::vector<model::Parameter> parameters() override { return {{"logits", logits}}; }
};

// `request.first_index` counts over the batches of all ranks: a draw does not know how many they are.
struct Pulls {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  const Bandit& bandit;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey key) {
    const at::Tensor p = at::softmax(bandit.logits.detach(), 0).contiguous();
    std::vector<std::vector<data::Completion>> out(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i)
      for (std::int64_t j = 0; j < requests[i].count; ++j) {
        double u = core::uniform({key.seed, core::Stream::sampling}, key.step, requests[i].first_index + j);
        std::int32_t machine = 0;
        while (machine < 4 && (u -= p[machine].item<double>()) >= 0) ++machine;
        out[i].push_back({.ids = {machine}, .log_probs = {std::log(p[machine].item<float>())}});
      }
    return out;
  }
};

void train(const std::string& directory, std::shared_ptr<distributed::World> world) {
  const auto bandit = std::make_shared<Bandit>();
  GrpoConfig<> config;
  config.run.rollouts.geometry = {.micro_batch_size = 32, .gradient_accumulation_steps = 4, .num_generations = 32};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.1};
  config.run.trainer.loop = {.output_dir = directory, .max_steps = 20};
  Pulls pulls{*bandit};
  trainer::OnlineInputs<Pulls> inputs{
      .policy = bandit,
      .generator = pulls,
      .prompts = {{.row = 0, .ids = {0}, .prompt = "", .columns = {}}},
      .rewards = {{reward::from("payout", [](const reward::Sample& s) { return s.ids[0] / 4.0; })}},
      .world = std::move(world)};  // the groups of a step are shared out, and its sums are of all ranks
  make_grpo(config, std::move(inputs)).run();
}

}  // namespace

int main(int, char** argv) {
  if (const auto place = distributed::place_from_environment()) {
    train("ranks-two", distributed::join_world(*place, 30.0));  // rank 0 writes
    return 0;
  }
  const auto store = distributed::Store::listen("127.0.0.1", 0);
  const std::string port = std::to_string(store.port());
  for (const char* rank : {"0", "1"})
    if (::fork() == 0) {
      ::setenv("RANK", rank, 1);
      ::setenv("WORLD_SIZE", "2", 1);
      ::setenv("MASTER_ADDR", "127.0.0.1", 1);
      ::setenv("MASTER_PORT", port.c_str(), 1);
      ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);  // the store is this process's
      ::execv("/proc/self/exe", argv);
      ::_exit(127);
    }
  int failed = 0, status = 0;
  while (::wait(&status) > 0) failed += status == 0 ? 0 : 1;
  if (failed > 0) return 1;

  train("ranks-one", std::make_shared<distributed::World>());
  const at::Tensor one = model::CheckpointFiles("ranks-one").read("logits");
  const at::Tensor two = model::CheckpointFiles("ranks-two").read("logits");
  std::cout << "probability of the best machine: " << at::softmax(one, 0)[4].item<double>() << " with one rank, "
            << at::softmax(two, 0)[4].item<double>() << " with two\n";
  return at::allclose(one, two, 0.0, 1e-5) ? 0 : 1;
}
