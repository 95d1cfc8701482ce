#include <support/scratch.hpp>

#include <rlalgo/config/validate.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
RunConfig valid() {
  RunConfig config;
  config.base_model = "m";
  config.rl = "grpo";
  config.datasets.resize(1);
  config.learning_rate = 1e-6;
  config.micro_batch_size = 8;
  config.trl.reward_funcs = {"rewards.correct"};
  return config;
}
template <class Change>
std::string error_of(Change&& change, const std::vector<std::string>& given = {}) {
  RunConfig config = valid();
  change(config);
  for (const std::string& key : given) config.given[key] = {.file = "c.yaml", .line = 9, .column = 1};
  return raised_by([&] { validate(config); });
}
}  // namespace

TEST_CASE("a valid configuration passes") {
  CHECK(error_of([](RunConfig&) {}) == "nothing");
}

TEST_CASE("values out of range name key, value and place") {
  CHECK(lacks(error_of([](RunConfig& c) { c.trl.temperature = 0; }, {"trl.temperature"}),
              {"config.6: ", "trl.temperature", "found 0", "c.yaml:9"}) == "");
  const std::vector<std::pair<std::string, void (*)(RunConfig&)>> cases = {
      {"trl.top_p", [](RunConfig& c) { c.trl.top_p = 1.5; }},
      {"trl.top_p", [](RunConfig& c) { c.trl.top_p = 0; }},
      {"trl.top_k", [](RunConfig& c) { c.trl.top_k = -1; }},
      {"trl.min_p", [](RunConfig& c) { c.trl.min_p = -0.1; }},
      {"trl.repetition_penalty", [](RunConfig& c) { c.trl.repetition_penalty = 0; }},
      {"trl.max_completion_length", [](RunConfig& c) { c.trl.max_completion_length = 0; }},
      {"trl.epsilon", [](RunConfig& c) { c.trl.epsilon = 0; }},
      {"trl.epsilon", [](RunConfig& c) { c.trl.epsilon = 1.1; }},
      {"trl.epsilon_high", [](RunConfig& c) { c.trl.epsilon_high = -1; }},
      {"trl.delta", [](RunConfig& c) { c.trl.delta = 1; }},
      {"rl_beta", [](RunConfig& c) { c.beta = -0.1; }},
      {"trl.reward_timeout", [](RunConfig& c) { c.trl.reward_timeout = 0; }},
      {"trl.reward_num_workers", [](RunConfig& c) { c.trl.reward_num_workers = 0; }},
      {"trl.reward_num_workers", [](RunConfig& c) { c.trl.reward_num_workers = 257; }},
      {"trl.reward_max_retries", [](RunConfig& c) { c.trl.reward_max_retries = -1; }},
      {"trl.num_generations_eval", [](RunConfig& c) { c.trl.num_generations_eval = 0; }},
      {"trl.num_generations", [](RunConfig& c) { c.trl.num_generations = 1; }},
      {"trl.num_iterations", [](RunConfig& c) { c.trl.num_iterations = 0; }},
      {"trl.steps_per_generation", [](RunConfig& c) { c.trl.steps_per_generation = 0; }},
      {"trl.generation_batch_size", [](RunConfig& c) { c.trl.generation_batch_size = 0; }},
      {"micro_batch_size", [](RunConfig& c) { c.micro_batch_size = 0; }},
      {"micro_batch_size", [](RunConfig& c) { c.micro_batch_size = 9000000000000000000; }},
      {"num_epochs", [](RunConfig& c) { c.num_epochs = 1e300; }},
      {"save_steps", [](RunConfig& c) { c.save_steps = 1e300; }},
      {"gradient_accumulation_steps", [](RunConfig& c) { c.gradient_accumulation_steps = 0; }},
      {"eval_batch_size", [](RunConfig& c) { c.eval_batch_size = 0; }},
      {"num_epochs", [](RunConfig& c) { c.num_epochs = 0; }},
      {"max_steps", [](RunConfig& c) { c.max_steps = 0; }},
      {"learning_rate", [](RunConfig& c) { c.learning_rate = -1; }},
      {"weight_decay", [](RunConfig& c) { c.weight_decay = -1; }},
      {"adam_beta1", [](RunConfig& c) { c.adam_beta1 = 1; }},
      {"adam_beta2", [](RunConfig& c) { c.adam_beta2 = -0.1; }},
      {"adam_epsilon", [](RunConfig& c) { c.adam_epsilon = 0; }},
      {"max_grad_norm", [](RunConfig& c) { c.max_grad_norm = -1; }},
      {"warmup_steps", [](RunConfig& c) { c.warmup_steps = -1; }},
      {"warmup_ratio", [](RunConfig& c) { c.warmup_ratio = 1.5; }},
      {"cosine_min_lr_ratio", [](RunConfig& c) { c.cosine_min_lr_ratio = 2; }},
      {"cosine_constant_lr_ratio", [](RunConfig& c) { c.cosine_constant_lr_ratio = -1; }},
      {"logging_steps", [](RunConfig& c) { c.logging_steps = 0; }},
      {"save_total_limit", [](RunConfig& c) { c.save_total_limit = -1; }},
      {"save_steps", [](RunConfig& c) { c.save_steps = 0; }},
      {"save_steps", [](RunConfig& c) { c.save_steps = 2.5; }},
      {"saves_per_epoch", [](RunConfig& c) { c.saves_per_epoch = 0; }},
      {"val_set_size", [](RunConfig& c) { c.val_set_size = 100; }},
      {"val_set_size", [](RunConfig& c) { c.val_set_size = 1; }},
  };
  for (const auto& [key, change] : cases) {
    INFO(key);
    CHECK(lacks(error_of(change), {"config.6: ", key + " is out of range", "(default)"}) == "");
  }
}

TEST_CASE("keys that exclude each other") {
  const auto nothing = [](RunConfig&) {};
  CHECK(lacks(error_of(nothing, {"warmup_steps", "warmup_ratio"}), {"config.8: ", "warmup_steps and warmup_ratio"}) ==
        "");
  CHECK(lacks(error_of(nothing, {"save_steps", "saves_per_epoch"}), {"config.8: "}) == "");
  CHECK(lacks(error_of([](RunConfig& c) { c.val_set_size = 0.1; }, {"eval_steps", "evals_per_epoch"}),
              {"config.8: "}) == "");
  CHECK(lacks(error_of(nothing, {"trl.generation_batch_size", "trl.steps_per_generation"}),
              {"config.8: ", "remove one"}) == "");
  CHECK(lacks(error_of(
                  [](RunConfig& c) {
                    c.save_strategy = "epoch";
                    c.save_steps = 5;
                  },
                  {"save_steps"}),
              {"config.8: ", "save_strategy: epoch"}) == "");
  CHECK(lacks(error_of(
                  [](RunConfig& c) {
                    c.save_strategy = "no";
                    c.saves_per_epoch = 5;
                  },
                  {"saves_per_epoch"}),
              {"config.8: "}) == "");
  CHECK(lacks(error_of(
                  [](RunConfig& c) {
                    c.val_set_size = 0.1;
                    c.test_datasets.resize(1);
                  },
                  {"val_set_size", "test_datasets"}),
              {"config.8: "}) == "");
  CHECK(lacks(error_of([](RunConfig& c) {
                c.trl.reward_weights = {1, 2};
              }),
              {"config.8: ", "2 weights for 1 functions"}) == "");
}

TEST_CASE("only the generation batch has to divide into groups, and the error names the next that does") {
  const auto geometry = [](std::int64_t b, std::int64_t a, std::int64_t g, std::optional<std::int64_t> steps = {},
                           std::optional<std::int64_t> batch = {}) {
    return error_of([=](RunConfig& c) {
      c.micro_batch_size = b;
      c.gradient_accumulation_steps = a;
      c.trl.num_generations = g;
      c.trl.steps_per_generation = steps;
      c.trl.generation_batch_size = batch;
    });
  };
  CHECK(geometry(4, 3, 6) == "nothing");  // 12 = 2 groups of 6, though 4 is no multiple of 6
  CHECK(geometry(1, 8, 8) == "nothing");
  CHECK(lacks(geometry(4, 1, 8), {"config.11: ", "micro_batch_size 4 × gradient_accumulation_steps 1 = 4 completions",
                                  "set gradient_accumulation_steps: 2"}) == "");
  CHECK(lacks(geometry(1, 1, 8), {"config.11: ", "set gradient_accumulation_steps: 8"}) == "");
  CHECK(lacks(geometry(6, 5, 4), {"config.11: ", "set gradient_accumulation_steps: 6"}) == "");
  CHECK(lacks(geometry(4, 1, 8, 3), {"config.11: ", "trl.steps_per_generation 3", "set trl.steps_per_generation: 4"}) ==
        "");
  CHECK(geometry(4, 1, 8, 2) == "nothing");
  CHECK(lacks(geometry(4, 1, 6, {}, 6), {"config.11: ", "trl.generation_batch_size", "the next that works is 12"}) ==
        "");
  CHECK(geometry(4, 1, 6, {}, 24) == "nothing");
}

TEST_CASE("the geometry of a valid configuration") {
  RunConfig config = valid();
  config.micro_batch_size = 4;
  config.gradient_accumulation_steps = 3;
  config.trl.num_generations = 6;
  config.trl.num_iterations = 2;
  const auto geometry = geometry_of(config);
  CHECK(geometry.steps_per_generation == 3);
  CHECK(geometry.completions() == 12);
  CHECK(geometry.prompts() == 2);
  CHECK(geometry.num_iterations == 2);
  config.trl.generation_batch_size = 24;
  CHECK(geometry_of(config).steps_per_generation == 6);
}

TEST_CASE("enormous integers are out of range, as they were written") {
  CHECK(lacks(error_of([](RunConfig& c) { c.micro_batch_size = 9223372036854775807; }, {"micro_batch_size"}),
              {"config.6: ", "found 9223372036854775807", "at most 1000000000", "c.yaml:9"}) == "");
  const auto rank = [](std::int64_t r) {
    return error_of(
        [&](RunConfig& c) {
          c.lora.emplace();
          c.lora->r = r;
        },
        {"lora_r"});
  };
  CHECK(rank(16384) == "nothing");
  for (const std::int64_t r : {std::int64_t{1000000000}, std::int64_t{16385}, std::int64_t{0}, std::int64_t{-1}})
    CHECK(lacks(rank(r), {"config.6: ", "lora_r", std::to_string(r), "1 to 16384", "c.yaml:9"}) == "");
  CHECK(lacks(error_of([](RunConfig& c) {
                c.lora.emplace().rank_pattern = {{"q_proj", 1000000000}};
              }),
              {"config.6: ", "lora_rank_pattern", "1000000000"}) == "");
}
