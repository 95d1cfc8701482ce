#include <rlalgo/config/ranks.hpp>

#include <memory>
#include <string>

#include <rlalgo/config/parse.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using config::RunConfig;

namespace {

RunConfig read(const std::string& more, int ranks) {
  return config::parse_run_config(config::parse_document(R"(
base_model: m
rl: grpo
datasets: [{path: rows.jsonl}]
learning_rate: 1e-6
micro_batch_size: 4
)" + more,
                                                         "config.yaml"),
                                  ranks);
}

const std::string online = "trl: {reward_funcs: [builtin.gsm8k_accuracy], num_generations: 8";

}  // namespace

TEST_CASE("what a file says of one rank is N times as much for N, and settings say it") {
  const RunConfig c = read("gradient_accumulation_steps: 2\n" + online + ", steps_per_generation: 4}", 3);
  CHECK(c.gradient_accumulation_steps == 6);
  CHECK(c.trl.steps_per_generation == 12);
  CHECK(c.settings.at("gradient_accumulation_steps") == 6);
  CHECK(config::geometry_of(c).completions() == 48);
  const RunConfig same = read("gradient_accumulation_steps: 6\n" + online + ", steps_per_generation: 12}", 1);
  CHECK(c.settings == same.settings);
}

TEST_CASE("a generation batch is that of all ranks, and the groups need only fit into it") {
  const RunConfig c = read("gradient_accumulation_steps: 1\n" + online + "}", 2);
  CHECK(config::geometry_of(c).prompts() == 1);  // 8 completions, 4 of each rank
  CHECK(support::number_raised_by([] { (void)read("gradient_accumulation_steps: 1\n" + online + "}", 1); }) ==
        "config.11");
  const RunConfig given = read("gradient_accumulation_steps: 2\n" + online + ", generation_batch_size: 16}", 2);
  CHECK(config::geometry_of(given).completions() == 16);
}

TEST_CASE("several ranks generate asynchronously, streamed, and by a server; a deadline is a second or more") {
  const std::string beside = ", async_prefetch: true, use_data_producer: true";
  const std::string streamed = beside + ", streaming_partial_batch: true}";
  for (const std::string& more : {beside + "}", streamed, std::string(", use_vllm: true, vllm_mode: server}")})
    CHECK_NOTHROW(read("gradient_accumulation_steps: 2\n" + online + more, 2));
  CHECK(support::number_raised_by([] { (void)read("ddp_timeout: 0\n" + online + "}", 2); }) == "config.39");
}

TEST_CASE("sums are in the order of the ranks on the CPU and on up to eight GPUs, and as the key says") {
  using distributed::SumOrder;
  const auto order = [](const std::string& key, int ranks, const std::string& device) {
    RunConfig c = read("gradient_accumulation_steps: 8\n" + key + online + "}", ranks);
    c.device = device;
    return config::sum_order_of(c);
  };
  for (const std::string key : {"", "sum_order: auto\n"}) {
    CHECK(order(key, 8, "cuda:0") == SumOrder::ranks);
    CHECK(order(key, 9, "cuda:0") == SumOrder::library);
    CHECK(order(key, 64, "cpu") == SumOrder::ranks);
  }
  CHECK(order("sum_order: ranks\n", 64, "cuda:1") == SumOrder::ranks);
  CHECK(order("sum_order: nccl\n", 2, "cuda:1") == SumOrder::library);
  CHECK(order("sum_order: nccl\n", 1, "cuda:0") == SumOrder::ranks);
  const RunConfig c = read("gradient_accumulation_steps: 2\nsum_order: nccl\n" + online + "}", 2);
  CHECK(c.settings.at("sum_order") == "ranks");
  CHECK(support::lacks(c.warnings.back(), {"sum_order: nccl has no effect", "CPU"}) == "");
  CHECK(support::number_raised_by([] { (void)read("sum_order: gloo\n" + online + "}", 2); }) == "config.6");
}

TEST_CASE("of context groups the number of groups counts") {
  const std::string shared =
      "context_parallel_size: 2\ngradient_accumulation_steps: 2\n" + online + ", steps_per_generation: 4}";
  const RunConfig c = read(shared, 6);
  CHECK(c.gradient_accumulation_steps == 6);
  CHECK(c.trl.steps_per_generation == 12);
  CHECK(read("sequence_parallel_degree: 2\ngradient_accumulation_steps: 2\n" + online + "}", 2)
            .gradient_accumulation_steps == 2);
  for (const auto& [size, ranks] : {std::pair{"2", 3}, {"4", 2}, {"0", 1}})
    CHECK(support::number_raised_by([&, size = size, ranks = ranks] {
            (void)read(
                "context_parallel_size: " + std::string(size) + "\ngradient_accumulation_steps: 2\n" + online + "}",
                ranks);
          }) == "config.40");
  distributed::World alone;
  CHECK(read(shared, 1).gradient_accumulation_steps == 2);  // to look at, on one rank
  CHECK(support::lacks(support::raised_by([&] { config::form_groups(read(shared, 1), alone); }),
                       {"config.40: ", "--nproc-per-node 2"}) == "");
  support::on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    config::form_groups(c, *world);
    RANK_CHECK(world->context_size() == 2 && world->groups() == 1);
  });
}

TEST_CASE("ring_attn_func says how tokens are dealt") {
  const auto dealt = [](const std::string& line) { return config::dealing_of(read(line + online + "}", 2)); };
  CHECK(dealt("gradient_accumulation_steps: 2\n") == model::Dealing::balanced);
  CHECK(dealt("gradient_accumulation_steps: 2\nring_attn_func: batch_zigzag\n") == model::Dealing::balanced);
  CHECK(dealt("gradient_accumulation_steps: 2\nring_attn_func: varlen_llama3\n") == model::Dealing::balanced);
  CHECK(dealt("gradient_accumulation_steps: 2\nring_attn_func: batch_ring\n") == model::Dealing::neighbours);
  CHECK(dealt("gradient_accumulation_steps: 2\nring_attn_func: batch_stripe\n") == model::Dealing::stripes);
  CHECK(support::number_raised_by([&] { (void)dealt("gradient_accumulation_steps: 2\nring_attn_func: round\n"); }) !=
        "nothing");
}

TEST_CASE("ranks with other settings or another version are told which") {
  const auto agree = [](double other) {
    support::on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
      RunConfig c;
      c.settings = {{"learning_rate", world->rank() == 2 ? other : 0.5}};
      if (other < 0 && world->rank() == 1) c.settings["seed"] = 3;
      config::require_agreement(c, *world);
    });
  };
  CHECK_NOTHROW(agree(0.5));
  CHECK(support::number_raised_by([&] { agree(0.25); }) == "config.38");
  try {
    agree(-1);
    FAIL("nobody was refused");
  } catch (const core::Error& error) {
    CHECK(std::string(error.what()).find("the same seed: found 3 on rank 1, expected no value as on rank 0") !=
          std::string::npos);
  }
}

TEST_CASE("ranks that have read other rows or files are told which") {
  const auto agree = [](const std::string& theirs) {
    support::on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
      const std::string rows = world->rank() == 1 ? theirs : "0123456789abcdef";
      config::require_same_inputs(*world, {{"rows of datasets", rows}, {"code of rewards.f", "77"}});
    });
  };
  CHECK_NOTHROW(agree("0123456789abcdef"));
  CHECK(support::lacks(support::raised_by([&] { agree("fedcba9876543210"); }),
                       {"config.38", "the same rows of datasets", "fedcba9876543210\" on rank 1", "the same files"}) ==
        "");
}
