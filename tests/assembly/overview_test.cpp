#include <rlalgo/assembly/overview.hpp>

#include <support/catch.hpp>

using namespace rlalgo::assembly;

namespace {

Overview online() {
  Overview o;
  o.unit = "prompts";
  o.rows = 240, o.evaluation_rows = 24, o.tokens = 12345, o.longest = 83;
  o.rows_per_step = 4, o.completions_per_row = 8, o.completion_length = 256, o.micro_batch_size = 8;
  o.steps = 60, o.steps_per_epoch = 60, o.schedule = "checkpoints every 20 steps";
  o.parameters = 134'515'008, o.trained = 4'884'480, o.training = "lora, r 16", o.dtype = "float32 (bf16 is not set)";
  o.device = "cpu, 2 threads", o.memory = {{"weights", 538e6}, {"gradients", 0.0}, {"optimizer", 39.1e6}},
  o.memory_limit = 15.6e9;
  o.output_dir = "out";
  return o;
}

}  // namespace

TEST_CASE("numbers as people write them") {
  CHECK(bytes_text(999) == "1 kB");
  CHECK(bytes_text(538.06e6) == "538 MB");
  CHECK(bytes_text(1.25e9) == "1.2 GB");
  CHECK(count_text(12345) == "12,345");
  CHECK(count_text(134'515'008) == "134.5 million");
  CHECK(count_text(7'240'000'000) == "7.24 billion");
}

TEST_CASE("what a run is going to do, in six lines") {
  Overview o = online();
  CHECK(overview_lines(o) ==
        std::vector<std::string>{
            "data    240 prompts, 12,345 tokens, the longest 83; 24 more held out",
            "step    4 prompts × 8 completions of up to 256 tokens, micro-batches of 8",
            "run     60 steps, 60.0 an epoch; checkpoints every 20 steps",
            "model   134.5 million parameters, 4.9 million of them trained (lora, r 16), in float32 (bf16 is not set)",
            "device  cpu, 2 threads; at most about 577 MB of 15.6 GB: weights 538 MB, optimizer 39 MB", "output  out"});
  o.ranks = 2, o.completions_per_row = 0, o.unit = "pairs", o.evaluation_rows = 0, o.trained = o.parameters,
  o.training = "";
  const auto lines = overview_lines(o);
  CHECK(lines[0] == "data    240 pairs, 12,345 tokens, the longest 83");
  CHECK(lines[1] == "step    4 pairs, micro-batches of 8, dealt to 2 ranks");
  CHECK(lines[3] == "model   134.5 million parameters, all trained, in float32 (bf16 is not set)");
  CHECK(lines[4] == "device  cpu, 2 threads; at most about 577 MB a rank of 15.6 GB: weights 538 MB, optimizer 39 MB");
  o.ranks_here = 2, o.elsewhere = "inputs of layers 1.2 GB in a file", o.generation = "0.3 of 80.0 GB";
  const auto more = overview_lines(o);
  REQUIRE(more.size() == 7);
  CHECK(more[4] ==
        "device  cpu, 2 threads; at most about 577 MB a rank, 1.2 GB for 2 of 15.6 GB: weights 538 MB, optimizer 39 "
        "MB; inputs of "
        "layers 1.2 GB in a file");
  CHECK(more[5] == "pages   0.3 of 80.0 GB");
  CHECK(more[6] == "output  out");
  o.grows = true, o.unit = "prompts";
  CHECK(overview_lines(o)[0] == "data    prompts come from the environment");
}

TEST_CASE("what a dry run measured") {
  Overview o = online();
  CHECK(time_lines(o) == std::vector<std::string>{"time    not estimated: it depends on other processes"});
  o.training_seconds = 2.0;
  CHECK(time_lines(o) ==
        std::vector<std::string>{
            "time    a step takes about 2 s, the run about 2:00, rewards, evaluations and checkpoints aside"});
  o.generation_seconds = 4.0;
  CHECK(time_lines(o) ==
        std::vector<std::string>{
            "time    a step takes about 6 s at most (4 s of them generation, if every completion is as "
            "long as it may be), the run about 6:00, rewards, evaluations and checkpoints aside"});
}
