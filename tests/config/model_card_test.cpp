#include <rlalgo/config/model_card.hpp>

#include <string>

#include <rlalgo/config/parse.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;

TEST_CASE("a run's card has its method, its hub data sets and its settings, and no path of its output") {
  const RunConfig config = parse_run_config(parse_document(
      "base_model: Qwen/Qwen3-0.6B\nrl: dpo\nlearning_rate: 1e-5\nmicro_batch_size: 2\noutput_dir: "
      "secret-place\nrl_beta: 0.2\n"
      "datasets:\n  - {path: org/pairs, type: chatml.intel}\n  - {path: org/pairs, type: chatml.intel, split: more}\n"
      "  - {path: ./rows.jsonl, type: chatml.intel}\n",
      "c.yaml"));
  rlalgo::run::ModelCard card = model_card(config, 12);
  CHECK(card.method == "dpo");
  CHECK(card.datasets == std::vector<std::string>{"org/pairs"});
  card.base_model = config.base_model;
  const std::string text = rlalgo::run::to_text(card);
  CHECK(lacks(text, {"learning_rate: 1e-05", "optimizer: adamw_torch_fused", "training_steps: 12", "beta: 0.2",
                     "- org/pairs\n"}) == "");
  CHECK(text.find("secret-place") == std::string::npos);
}
