#include <support/catch.hpp>

#include <set>
#include <string>

#include <rlalgo/config/keys.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/resume_rules.hpp>

using namespace rlalgo::config;

namespace {
RunConfig parse(const std::string& rl, const std::string& more = "") {
  std::string text = "base_model: ./m\nrl: " + rl +
                     "\ndatasets: [{path: rows.jsonl, type: chatml.intel}]\nlearning_rate: 1e-6\nmicro_batch_size: 8\n";
  if (rl == "grpo")
    text += "trl: {reward_funcs: [rewards.correct], use_vllm: true, async_prefetch: true, tools: [calculator]}\n";
  return parse_run_config(parse_document(text + more, "c.yaml"));
}
}  // namespace

TEST_CASE("every key that a resumed run may change is a setting that a run has") {
  std::set<std::string> known;
  for (const char* rl : {"grpo", "dpo"}) {
    const RunConfig c = parse(
        rl,
        "model_revision: x\ntokenizer_config: m\nlora_model_dir: a\nadapter: lora\n"
        "val_set_size: 0.1\nevals_per_epoch: 2\neval_strategy: steps\nsaves_per_epoch: 2\n"
        "save_strategy: steps\neval_batch_size: 8\nlogging_steps: 2\nmax_steps: 4\n"
        "resume_from_checkpoint: c\ndataset_prepared_path: p\ntest_datasets: []\nddp_timeout: 30\n"
        "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\ndp_shard_size: 2\ndp_replicate_size: 1\n"
        "ring_attn_func: batch_ring\npeak_tflops: 100\ngradient_checkpointing: true\nactivation_offloading: disk\n");
    for (const auto& [key, value] : c.settings.items()) known.insert(key);
  }
  const RunConfig gym = parse_run_config(parse_document(
      "base_model: ./m\nrl: grpo\nlearning_rate: 1e-6\nmicro_batch_size: 8\nnemo_gym_enabled: true\n"
      "nemo_gym_auto_start: true\nnemo_gym_dir: g\nnemo_gym_head_port: 5\nnemo_gym_config_paths: [a.yaml]\n"
      "nemo_gym_server_timeout: 5\nnemo_gym_verify_timeout: 5\nnemo_gym_run_timeout: 5\n"
      "nemo_gym_datasets: [{path: rows.jsonl}]\nnemo_gym_multi_turn: true\ntrl: {use_vllm: true}\n",
      "c.yaml"));
  for (const auto& [key, value] : gym.settings.items()) known.insert(key);
  // Optional values that the files above leave out, being set beside what excludes them.
  for (const char* key :
       {"revision_of_model", "evaluation_strategy", "eval_steps", "save_steps", "trl.num_generations_eval",
        "trl.vllm_server_base_url", "trl.vllm_gpu_memory_utilization", "datasets", "test_datasets",
        "trl.precompute_ref_batch_size", "float32", "loss_watchdog_threshold", "loss_watchdog_patience",
        "eval_on_start", "outside"})  // set when a run starts, config/outside.hpp
    known.insert(key);
  for (const Key& row : every_key())
    if (!row.resume.why.empty()) CHECK(known.contains(std::string(row.name)));
}

TEST_CASE("rules come from the tables and from force_resume") {
  const rlalgo::run::ResumeRules rules = resume_rules(parse("dpo"));
  CHECK(rules.free.contains("output_dir"));
  CHECK_FALSE(rules.free.contains("learning_rate"));
  CHECK(rules.extended.contains("max_steps"));
  CHECK_FALSE(rules.force);
  CHECK(resume_rules(parse("dpo", "force_resume: true\n")).force);
}

TEST_CASE("a rate that follows evaluations depends on when they are") {
  const auto rules = [](const std::string& schedule) {
    return resume_rules(parse("dpo", "val_set_size: 0.1\nlr_scheduler: " + schedule + "\n"));
  };
  for (const char* key : {"eval_batch_size", "trl.num_generations_eval", "logging_steps", "eval_strategy",
                          "evaluation_strategy", "eval_steps", "evals_per_epoch"}) {
    INFO(key);
    CHECK(rules("cosine").free.contains(key));
    CHECK_FALSE(rules("reduce_lr_on_plateau").free.contains(key));
  }
}
