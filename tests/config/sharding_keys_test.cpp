#include <rlalgo/config/sharding_keys.hpp>

#include <string>
#include <vector>

#include <rlalgo/config/parse.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using config::RunConfig;
using support::lacks;

namespace {

RunConfig parse(const std::string& more, int ranks = 4) {
  return config::parse_run_config(
      config::parse_document("base_model: ./m\nrl: dpo\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 1e-6\n"
                             "micro_batch_size: 2\ngradient_accumulation_steps: 3\n" +
                                 more,
                             "c.yaml"),
      ranks);
}
std::string error_of(const std::string& more, int ranks = 4) {
  return support::raised_by([&] { (void)parse(more, ranks); });
}
std::string warnings_of(const std::string& more, int ranks = 4) {
  std::string out;
  for (const std::string& one : parse(more, ranks).warnings) out += one + "\n";
  return out;
}

}  // namespace

TEST_CASE("fsdp and deepspeed are stages of one thing") {
  const auto stage = [](const std::string& more) {
    const auto s = parse(more).sharding;
    return std::to_string(s.stage) + (s.reshard_after_forward ? "" : " whole");
  };
  CHECK(stage("") == "0");
  CHECK(stage("fsdp: []\nfsdp_config: {}\ndeepspeed:\n") == "0");
  CHECK(stage("fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n") == "3");
  CHECK(stage("fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}\n") == "3 whole");
  CHECK(
      stage("fsdp: [full_shard, auto_wrap]\nfsdp_config: {fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer}\n") ==
      "3");
  CHECK(stage("fsdp: [shard_grad_op]\n") == "3 whole");
  CHECK(stage("fsdp: [no_shard]\n") == "0");
  CHECK(stage("fsdp_config: {sharding_strategy: SHARD_GRAD_OP}\n") == "3 whole");
  for (const char* number : {"0", "1", "2", "3"})
    CHECK(stage("deepspeed: {zero_optimization: {stage: " + std::string(number) + "}}\n") == number);
  CHECK(parse("fsdp_config: {activation_checkpointing: true}\n").gradient_checkpointing);
  CHECK(parse("fsdp_config: {state_dict_type: FULL_STATE_DICT}\n").warnings.empty());
}

TEST_CASE(
    "the type of the state dict says in how many files the model is saved; that of the final model has the last word") {
  const auto of_each = [](const std::string& keys) {
    const auto c = parse("fsdp_config: {reshard_after_forward: true" + keys);
    CHECK(c.warnings.empty());
    return c.sharding.file_of_each;
  };
  CHECK(!of_each("}\n"));
  CHECK(!of_each(", state_dict_type: FULL_STATE_DICT}\n"));
  CHECK(of_each(", state_dict_type: SHARDED_STATE_DICT}\n"));
  CHECK(of_each(", fsdp_state_dict_type: SHARDED_STATE_DICT}\n"));
  CHECK(of_each(", final_state_dict_type: SHARDED_STATE_DICT, state_dict_type: FULL_STATE_DICT}\n"));
  CHECK(!of_each(", state_dict_type: SHARDED_STATE_DICT, final_state_dict_type: FULL_STATE_DICT}\n"));
  CHECK(of_each("}\nfsdp_final_state_dict_type: SHARDED_STATE_DICT\n"));
}

TEST_CASE("sizes of the mesh make the number of ranks") {
  const std::string fsdp = "fsdp_config: {reshard_after_forward: true}\n";
  CHECK(parse(fsdp + "dp_shard_size: 2\n").sharding.shard_size == 2);
  CHECK_NOTHROW(parse(fsdp + "dp_shard_size: 2\ndp_replicate_size: 2\n"));
  CHECK_NOTHROW(parse("dp_replicate_size: 4\n"));
  CHECK(lacks(error_of(fsdp + "dp_shard_size: 3\n"), {"config.41", "3 × 1 for 4 ranks", "c.yaml:8"}) == "");
  CHECK(lacks(error_of(fsdp + "dp_replicate_size: 3\n"), {"config.41", "1 × 3"}) == "");
  CHECK(lacks(error_of("dp_shard_size: 2\n"), {"config.14", "fsdp_config"}) == "");
  // Of context groups: each holds shards, and counts once.
  const std::string shared = fsdp + "context_parallel_size: 2\n";
  CHECK_NOTHROW(parse(shared));
  CHECK_NOTHROW(parse(shared + "dp_shard_size: 2\n"));
  CHECK_NOTHROW(parse(shared + "dp_shard_size: 1\ndp_replicate_size: 2\n"));
  CHECK(lacks(error_of(shared + "dp_shard_size: 4\n"), {"config.41", "context_parallel_size", "4 × 1 × 2 for 4"}) ==
        "");
  CHECK(lacks(error_of(fsdp + "dp_shard_size: 0\n"), {"config.6", "dp_shard_size"}) == "");
}

TEST_CASE("experts divide among ranks that are a divisor of all, beside shards of a fitting number") {
  const std::string two = "expert_parallel_size: 2\n", fsdp = "fsdp_config: {reshard_after_forward: true}\n";
  CHECK(parse(two).expert_parallel_size == 2);
  CHECK(parse(two).divides_model());
  CHECK_FALSE(parse("expert_parallel_size: 1\n").divides_model());
  CHECK(parse(two).warnings.empty());
  for (const char* beside : {"", "dp_shard_size: 2\n", "dp_shard_size: 4\n", "context_parallel_size: 2\n"})
    CHECK_NOTHROW(parse(fsdp + two + beside));
  CHECK(lacks(error_of("expert_parallel_size: 3\n"), {"config.60", "a divisor of 4", "c.yaml:7"}) == "");
  CHECK(lacks(error_of("expert_parallel_size: 0\n"), {"config.6", "expert_parallel_size"}) == "");
  CHECK(lacks(error_of(fsdp + "dp_shard_size: 2\nexpert_parallel_size: 3\n", 6), {"config.60", "2", "dp_shard_size"}) ==
        "");
  for (const char* optimizer : {"muon", "adafactor", "adamw_8bit"})
    CHECK(lacks(error_of(two + "optimizer: " + optimizer + "\n"),
                {"config.37", "expert_parallel_size: 2", optimizer}) == "");
  CHECK(lacks(error_of(two + "adapter: qlora\nload_in_4bit: true\nlora_r: 2\nlora_alpha: 4\n"
                             "lora_target_modules: [q_proj]\n"),
              {"config.37", "remove expert_parallel_size"}) == "");
}

TEST_CASE("what has no effect is said in one line, what would be another run is refused") {
  CHECK(lacks(warnings_of("fsdp_config: {offload_params: true, cpu_ram_efficient_loading: true, use_orig_params: true, "
                          "limit_all_gathers: true}\n"),
              {"fsdp_config.offload_params has no effect",
               "cpu_ram_efficient_loading, use_orig_params, limit_all_gathers has no effect"}) == "");
  CHECK(lacks(warnings_of("fsdp_config: {offload_params: true}\n", 1), {"one rank holds everything"}) == "");
  CHECK(lacks(warnings_of(
                  "deepspeed: {zero_optimization: {stage: 2, overlap_comm: true, offload_optimizer: {device: cpu}}, "
                  "scheduler: {type: WarmupLR}, wall_clock_breakdown: false, gradient_clipping: auto}\n"),
              {"deepspeed.zero_optimization.offload_optimizer",
               "overlap_comm, scheduler, wall_clock_breakdown has no effect"}) == "");
  CHECK(lacks(warnings_of("fsdp_version: 2\n"), {"fsdp_version has no effect"}) == "");
  CHECK(lacks(error_of("fsdp_config: {auto_wrap_policy: SIZE_BASED_WRAP}\n"),
              {"config.10", "TRANSFORMER_BASED_WRAP"}) == "");
  CHECK(lacks(error_of("fsdp_config: {auto_wrap: x}\n"), {"config.4", "fsdp_config.auto_wrap", "c.yaml:7"}) == "");
  CHECK(lacks(error_of("fsdp_config: {state_dict_type: LOCAL_STATE_DICT}\n"), {"config.6", "FULL_STATE_DICT"}) == "");
  CHECK(lacks(error_of("fsdp_config: {mixed_precision_policy: bf16}\nbf16: false\n"), {"config.8", "bf16"}) == "");
  CHECK(lacks(error_of("fsdp: [full]\n"), {"config.6", "full_shard"}) == "");
  CHECK(lacks(error_of("fsdp: [full_shard]\ndeepspeed: {zero_optimization: {stage: 1}}\n"),
              {"config.8", "deepspeed"}) == "");
  CHECK(lacks(error_of("deepspeed: {zero_optimization: {stage: 4}}\n"), {"config.6", "stage"}) == "");
  CHECK(lacks(error_of("deepspeed: {zero_optimization: {stage: 3, offload_param: {device: nvme}}}\n"),
              {"config.10", "nvme"}) == "");
  for (const char* one :
       {"gradient_accumulation_steps: 2", "train_micro_batch_size_per_gpu: 1", "gradient_clipping: 0.5",
        "bf16: {enabled: true}", "fp16: {enabled: true}", "optimizer: {params: {lr: 1e-5}}"})
    CHECK(lacks(error_of("bf16: false\ndeepspeed: {" + std::string(one) + "}\n"), {"config.8", "disagrees"}) == "");
  CHECK(lacks(error_of("bf16: true\ndeepspeed: {bf16: {enabled: false}}\n"), {"config.8", "bf16: true"}) == "");
  CHECK_NOTHROW(parse("deepspeed: {gradient_accumulation_steps: 3, optimizer: {params: {lr: 1e-6, eps: auto}}}\n"));
  CHECK(lacks(error_of("deepspeed: no-such.json\n"), {"config.1", "no-such.json"}) == "");
}

TEST_CASE("the layout's precision counts where bf16 is not said, or auto") {
  for (const char* unsaid : {"", "bf16: auto\n", "bf16:\n"})
    for (const char* layout : {"deepspeed: {bf16: {enabled: true}, zero_optimization: {stage: 3}}\n",
                               "fsdp_config: {mixed_precision_policy: bf16}\n"}) {
      INFO(unsaid << layout);
      const RunConfig c = parse(std::string(unsaid) + layout);
      CHECK(c.bfloat16);
      CHECK(c.sharding.stage == 3);
    }
  CHECK(lacks(warnings_of("deepspeed: {bf16: {enabled: true}}\n"), {"deepspeed.bf16.enabled", "decides"}) == "");
  CHECK_FALSE(parse("bf16: auto\ndeepspeed: {bf16: {enabled: false}}\n").bfloat16);
  CHECK_FALSE(parse("deepspeed: {bf16: {enabled: auto}, fp16: {enabled: auto}}\n").bfloat16);
  CHECK_FALSE(parse("deepspeed: {zero_optimization: {stage: 3}}\n").bfloat16);  // no section at all
}

TEST_CASE("a layout is part of the settings, and a resume does not ask for the same") {
  const RunConfig c = parse("fsdp_config: {reshard_after_forward: false}\ndp_shard_size: 2\n");
  CHECK(c.settings["fsdp_config"] == "ZeRO 3, layers whole until their backward pass, of 2 ranks");
  CHECK_FALSE(parse("").settings.contains("fsdp_config"));
}
