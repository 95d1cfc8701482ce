// Lesson 9: several ranks. GRPO by one process, and by two that share every batch: the same weights. A rank finds
// its place in its environment (two_ranks.hpp starts two, as `rlalgo train --nproc-per-node 2` and torchrun do).
//
//   example_09_ranks MODEL_DIR
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include <rlalgo/assembly/completions.hpp>
#include <rlalgo/assembly/prompts.hpp>
#include <rlalgo/grpo.hpp>

#include "../two_ranks.hpp"

namespace {

using namespace rlalgo;

void train_rank(const char* path, const std::string& directory, const std::shared_ptr<distributed::World>& world) {
  const auto model = assembly::LanguageModel::load(path);
  // The groups of a step are shared out; statistics, denominators and sums are of all ranks.
  assembly::Completions completions(model, assembly::Engine{.threads = 1}, assembly::Plain(), assembly::Synchronous(),
                                    assembly::Whole(), {.world = world});
  const data::Json texts = {"Ada has 3 pears.", "Ben finds 5 coins.", "Chen had 9 books.", "Dana keeps 2 shells."};
  const auto longer = [](const reward::Sample& s) { return 0.1 * s.ids.size(); };

  TrainConfig<Grpo> config;
  config.run.rollouts.geometry = {.micro_batch_size = 8, .gradient_accumulation_steps = 2, .num_generations = 4};
  config.run.rollouts.sampling = {.max_new_tokens = 16, .stop_ids = model.stop_ids};
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 1e-4};
  config.run.trainer.loop.max_steps = 4;
  config.run.trainer.loop.output_dir = directory;
  train<Grpo>(config,
              assembly::online_inputs(model, completions, assembly::prompts(model, texts), {{"longer", longer}}));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw std::invalid_argument("usage: example_09_ranks MODEL_DIR");
  const auto apart = one_and_two_ranks(
      argv, "ranks", [&](const std::string& directory, const auto& world) { train_rank(argv[1], directory, world); });
  if (!apart) return 0;  // this process was one of the two
  std::cout << "weights of one rank and of two differ by " << *apart << " at most\n";
  return *apart < 1e-6 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
