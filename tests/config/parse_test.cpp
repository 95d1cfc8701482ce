#include <support/scratch.hpp>

#include <algorithm>
#include <fstream>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/cpu/features.hpp>

using namespace rlalgo::config;
using rlalgo::support::exit_code_of;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {
const std::string minimal =
    "base_model: ./m\n"
    "rl: grpo\n"
    "datasets:\n"
    "  - path: rows.jsonl\n"
    "learning_rate: 1e-6\n"
    "micro_batch_size: 8\n"
    "trl:\n"
    "  reward_funcs: [rewards.correct]\n";  // 8 lines

RunConfig parse(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  Document document = parse_document(yaml, "c.yaml");
  apply_overrides(document, overrides);
  return parse_run_config(document);
}
std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return raised_by([&] { (void)parse(yaml, overrides); });
}
// The only warning, or what there is instead.
std::string warning_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  const RunConfig config = parse(yaml, overrides);
  return config.warnings.size() == 1 ? config.warnings[0] : std::to_string(config.warnings.size()) + " warnings";
}
std::string without(const std::string& line) {
  std::string out = minimal;
  const std::size_t at = out.find(line);
  return out.erase(at, out.find('\n', at) - at + 1);
}
}  // namespace

TEST_CASE("a minimal file") {
  const RunConfig config = parse(minimal);
  CHECK(config.warnings.empty());
  CHECK(config.base_model == "./m");
  CHECK(config.rl == "grpo");
  CHECK(config.learning_rate == 1e-6);
  REQUIRE(config.datasets.size() == 1);
  CHECK(config.datasets[0].source.path == "rows.jsonl");
  CHECK(config.datasets[0].type.is_null());
  CHECK(config.trl.reward_funcs == std::vector<std::string>{"rewards.correct"});
  CHECK(config.was_set("micro_batch_size"));
  CHECK(config.place("trl.reward_funcs") == "c.yaml:8");
}

TEST_CASE("every kind of key reaches its field") {
  const RunConfig config = parse(minimal + R"(  num_generations: 4
  num_generations_eval: 1
  steps_per_generation: 2
  num_iterations: 2
  max_completion_length: 64
  temperature: 0.7
  top_p: 0.9
  top_k: 20
  min_p: 0.05
  repetition_penalty: 1.1
  chat_template_kwargs: {enable_thinking: no}
  loss_type: dr_grpo
  beta: 0.04
  epsilon: 0.1
  epsilon_high: 0.28
  delta: 1.5
  mask_truncated_completions: true
  scale_rewards: batch
  reward_weights: [2]
  reward_timeout: 5
  reward_num_workers: 3
  reward_max_retries: 0
  reward_on_failure: nan
  reward_kwargs:
    rewards.correct: {weight: 2, words: [a, b]}
  log_completions: yes
  importance_sampling_level: sequence
  use_bias_correction_kl: true
test_datasets:
  - {path: t.jsonl, split: "train[:5]", data_files: a.jsonl, ds_type: json, name: main, field: data, revision: r, type: {field_prompt: q}}
gradient_accumulation_steps: 2
eval_batch_size: 3
num_epochs: 2.5
max_steps: 7
optimizer: adamw_torch_8bit
lr_scheduler: linear
warmup_steps: 3
weight_decay: 0.1
adam_beta1: 0.8
adam_beta2: 0.95
adam_epsilon: 1e-6
max_grad_norm: 0
output_dir: out
logging_steps: 2
eval_steps: 2
save_steps: 0.5
save_total_limit: 0
save_only_model: true
resume_from_checkpoint: out/checkpoint-3
auto_resume_from_checkpoints: true
seed: 7
shuffle_merged_datasets: false
dataset_exact_deduplication: true
chat_template_jinja: "{{ x }}"
tokenizer_config: tok
model_revision: abc
strict: true
)");
  const TrlConfig& trl = config.trl;
  CHECK(trl.num_generations == 4);
  CHECK(*trl.num_generations_eval == 1);
  CHECK(*trl.steps_per_generation == 2);
  CHECK(trl.num_iterations == 2);
  CHECK(trl.max_completion_length == 64);
  CHECK(trl.temperature == 0.7);
  CHECK(trl.top_p == 0.9);
  CHECK(trl.top_k == 20);
  CHECK(trl.min_p == 0.05);
  CHECK(trl.repetition_penalty == 1.1);
  CHECK(trl.chat_template_kwargs.dump() == R"({"enable_thinking":false})");
  CHECK(trl.loss_type == "dr_grpo");
  CHECK(config.beta == 0.04);
  CHECK(trl.epsilon == 0.1);
  CHECK(*trl.epsilon_high == 0.28);
  CHECK(*trl.delta == 1.5);
  CHECK(trl.mask_truncated_completions);
  CHECK(trl.scale_rewards == "batch");
  CHECK(trl.reward_weights == std::vector<double>{2});
  CHECK(trl.reward_timeout == 5);
  CHECK(trl.reward_num_workers == 3);
  CHECK(trl.reward_max_retries == 0);
  CHECK(trl.reward_on_failure == "nan");
  CHECK(trl.reward_kwargs.dump() == R"({"rewards.correct":{"weight":2,"words":["a","b"]}})");
  CHECK(trl.log_completions);
  CHECK(trl.importance_sampling_level == "sequence");
  CHECK(trl.use_bias_correction_kl);
  REQUIRE(config.test_datasets.size() == 1);
  const auto& source = config.test_datasets[0].source;
  CHECK(source.path == "t.jsonl");
  CHECK(source.split == "train[:5]");
  CHECK(source.data_files == std::vector<std::string>{"a.jsonl"});
  CHECK(source.ds_type == "json");
  CHECK(source.name == "main");
  CHECK(source.field == "data");
  CHECK(source.revision == "r");
  CHECK(config.test_datasets[0].type["field_prompt"] == "q");
  CHECK(config.gradient_accumulation_steps == 2);
  CHECK(*config.eval_batch_size == 3);
  CHECK(config.num_epochs == 2.5);
  CHECK(*config.max_steps == 7);
  CHECK(config.lr_scheduler == "linear");
  CHECK(*config.warmup_steps == 3);
  CHECK(config.weight_decay == 0.1);
  CHECK(config.adam_beta1 == 0.8);
  CHECK(config.adam_beta2 == 0.95);
  CHECK(config.adam_epsilon == 1e-6);
  CHECK(config.max_grad_norm == 0);
  CHECK(config.output_dir == "out");
  CHECK(*config.logging_steps == 2);
  CHECK(*config.eval_steps == 2);
  CHECK(*config.save_steps == 0.5);
  CHECK(config.save_total_limit == 4);  // 0 means the default
  CHECK(config.save_only_model);
  CHECK(*config.resume_from_checkpoint == "out/checkpoint-3");
  CHECK(config.auto_resume_from_checkpoints);
  CHECK(config.seed == 7);
  CHECK_FALSE(config.shuffle_merged_datasets);
  CHECK(config.dataset_exact_deduplication);
  CHECK(*config.chat_template == "jinja");
  CHECK(*config.tokenizer_config == "tok");
  CHECK(*config.model_revision == "abc");
  REQUIRE(config.warnings.size() == 1);
  CHECK(lacks(config.warnings[0], {"adamw_torch_8bit", "AdamW"}) == "");
}

TEST_CASE("scale_rewards is a boolean or a word") {
  CHECK(parse(minimal + "  scale_rewards: true\n").trl.scale_rewards == "group");
  CHECK(parse(minimal + "  scale_rewards: false\n").trl.scale_rewards == "none");
  CHECK(parse(minimal + "  scale_rewards: none\n").trl.scale_rewards == "none");
  CHECK(parse(minimal, {"--no-trl.scale-rewards"}).trl.scale_rewards == "none");
  CHECK(lacks(error_of(minimal + "  scale_rewards: bach\n"), {"config.6: ", "did you mean batch?"}) == "");
}

TEST_CASE("generation_kwargs override the sampling keys") {
  const RunConfig config = parse(minimal + "  temperature: 0.5\n  top_k: 5\n  generation_kwargs: {temperature: 0.9}\n");
  CHECK(config.trl.temperature == 0.9);
  CHECK(config.trl.top_k == 5);
  CHECK(lacks(error_of(minimal + "  generation_kwargs: {seed: 1}\n"), {"config.10: ", "trl.generation_kwargs.seed"}) ==
        "");
  const RunConfig greedy =
      parse(minimal + "  temperature: 0.5\n  top_k: 5\n  generation_kwargs: {top_k: 7, do_sample: false}\n");
  CHECK(greedy.trl.top_k == 1);  // the most likely token, scored at the temperature
  CHECK(greedy.trl.temperature == 0.5);
  CHECK(parse(minimal + "  generation_kwargs: {do_sample: true}\n").trl.top_k == 0);
}

TEST_CASE("beta: trl.beta, then rl_beta, then dpo_beta, then 0") {
  CHECK(parse(minimal).beta == 0.0);
  CHECK(parse(minimal + "rl_beta: 0.2\n").beta == 0.2);
  CHECK(parse(minimal + "  beta: 0.1\nrl_beta: 0.2\n").beta == 0.1);
  CHECK(parse(minimal + "  beta: 0.0\nrl_beta: 0.2\n").beta == 0.0);
  CHECK(parse(minimal + "dpo_beta: 0.3\n").beta == 0.3);
  CHECK(parse(minimal + "rl_beta: 0.2\ndpo_beta: 0.3\n").beta == 0.2);
  CHECK(lacks(error_of(minimal + "beta: 0.3\n"), {"config.8: ", "trl.beta", "c.yaml:9"}) == "");
  CHECK(parse(minimal + "  beta: 0.1\nbeta: 0.1\n").beta == 0.1);
}

TEST_CASE("schedule options") {
  CHECK(*parse(minimal + "lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr_rate: 0.1}\n")
             .cosine_min_lr_ratio == 0.1);
  CHECK(
      *parse(minimal + "lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_lr: 5e-7}\n").cosine_min_lr_ratio ==
      Approx(0.5));
  CHECK(lacks(error_of(minimal + "lr_scheduler: cosine_with_min_lr\n"), {"config.7: ", "min_lr_rate"}) == "");
  CHECK(lacks(error_of(minimal + "lr_scheduler: cosine_with_min_lr\nlr_scheduler_kwargs: {min_rate: 1}\n"),
              {"config.4: ", "expected num_cycles, min_lr, min_lr_rate"}) == "");
  CHECK(parse(minimal + "lr_quadratic_warmup: true\n").lr_quadratic_warmup);
  CHECK(lacks(warning_of(minimal + "lr_quadratic_warmup: true\nlr_scheduler: linear\n"),
              {"lr_quadratic_warmup", "linear"}) == "");
  CHECK(lacks(warning_of(minimal + "lr_quadratic_warmup: true\ncosine_min_lr_ratio: 0.1\n"),
              {"cosine_min_lr_ratio", "plain cosine"}) == "");
}

TEST_CASE("each schedule has its own options") {
  const auto with = [](const std::string& name, const std::string& options) {
    return minimal + "lr_scheduler: " + name + "\nlr_scheduler_kwargs: {" + options + "}\n";
  };
  using Shape = rlalgo::optim::StableDecayConfig::Shape;
  CHECK(parse(with("cosine_with_restarts", "num_cycles: 3")).schedule.cycles == 3.0);
  CHECK(parse(with("polynomial", "power: 2, lr_end: 2e-7")).schedule.min_ratio == Approx(0.2));
  CHECK(parse(minimal + "lr_scheduler: polynomial\n").schedule.min_ratio == Approx(0.1));  // 1e-7 of 1e-6
  CHECK(parse(with("warmup_stable_decay", "num_decay_steps: 5, decay_type: 1-sqrt")).schedule.stable_decay.decay ==
        Shape::one_minus_sqrt);
  const auto one = parse(with("one_cycle", "anneal_strategy: linear, cycle_momentum: false, pct_start: 0.3"));
  CHECK(one.schedule.one_cycle.straight);
  CHECK_FALSE(one.schedule.one_cycle.cycle_momentum);
  CHECK(one.settings["lr_scheduler_kwargs.pct_start"] == 0.3);
  CHECK(one.settings["lr_scheduler_kwargs.div_factor"] == 25.0);
  const auto rex = parse(minimal + "lr_scheduler: rex\ncosine_min_lr_ratio: 0.1\n");
  CHECK(rex.warnings.empty());
  const std::string plateau = with("reduce_lr_on_plateau", "mode: max, patience: 2") + "val_set_size: 0.1\n";
  const auto follows = parse(plateau + "metric_for_best_model: eval_reward\n");
  CHECK(follows.schedule.plateau.grows);
  CHECK(follows.schedule.plateau.patience == 2);
  CHECK(follows.metric_for_best_model == "eval_reward");

  CHECK(lacks(error_of(with("polynomial", "lr_end: 1e-6")), {"config.6: ", "learning_rate", "c.yaml:10"}) == "");
  CHECK(lacks(error_of(minimal + "lr_scheduler: warmup_stable_decay\n"), {"config.7: ", "num_decay_steps: 100"}) == "");
  CHECK(lacks(error_of(with("warmup_stable_decay", "num_decay_steps: 0")), {"config.6: ", "num_decay_steps"}) == "");
  CHECK(lacks(error_of(with("warmup_stable_decay", "num_decay_steps: 2, decay_type: exp")),
              {"config.6: ", "linear, cosine, 1-sqrt"}) == "");
  CHECK(lacks(error_of(with("cosine_warmup_with_min_lr", "min_lr: 1e-7, min_lr_rate: 0.1")), {"config.8: "}) == "");
  CHECK(lacks(error_of(with("one_cycle", "max_lr: 1")), {"config.4: ", "max_lr"}) == "");
  CHECK(lacks(error_of(with("one_cycle", "pct_start: 1.5")), {"config.6: ", "lr_scheduler_kwargs.pct_start"}) == "");
  CHECK(lacks(error_of(with("rex", "gamma: 1")), {"config.10: ", "lr_scheduler_kwargs"}) == "");
  CHECK(lacks(error_of(with("reduce_lr_on_plateau", "patience: 2")), {"config.14: ", "val_set_size"}) == "");
  CHECK(lacks(error_of(plateau + "eval_strategy: 'no'\n"), {"config.8: ", "eval_strategy"}) == "");
  CHECK(lacks(error_of(minimal + "metric_for_best_model: reward\n"), {"config.10: "}) == "");
  CHECK(lacks(warning_of(with("cosine", "num_cycles: 2") + "cosine_min_lr_ratio: 0.1\n"),
              {"lr_scheduler_kwargs", "plain cosine"}) == "");
  CHECK(lacks(warning_of(plateau + "warmup_steps: 3\n"), {"warmup_steps", "reduce_lr_on_plateau"}) == "");
}

TEST_CASE("batch_size stands for the accumulation") {
  CHECK(parse(minimal + "batch_size: 32\n").gradient_accumulation_steps == 4);
  CHECK(lacks(error_of(minimal + "batch_size: 30\n"), {"config.11: ", "30 and 8", "c.yaml:9"}) == "");
  CHECK(lacks(error_of(minimal + "batch_size: 32\ngradient_accumulation_steps: 4\n"),
              {"config.8: ", "remove batch_size"}) == "");
  CHECK(lacks(error_of(without("micro_batch_size") + "batch_size: 8\n"), {"config.8: ", "micro_batch_size"}) == "");
  CHECK(parse(without("micro_batch_size") + "gradient_accumulation_steps: 8\n").gradient_accumulation_steps == 8);
}

TEST_CASE("required keys") {
  CHECK(lacks(error_of(without("base_model")), {"config.7: ", "base_model", "c.yaml"}) == "");
  CHECK(lacks(error_of(without("rl:")), {"config.7: ", "rl is missing"}) == "");
  CHECK(lacks(error_of(without("learning_rate")), {"config.7: ", "learning_rate"}) == "");
  CHECK(lacks(error_of(without("  reward_funcs")), {"config.7: ", "trl.reward_funcs"}) == "");
  CHECK(lacks(error_of("rl: grpo\nbase_model: m\nlearning_rate: 1\nmicro_batch_size: 8\ntrl: {reward_funcs: [a.b]}\n"),
              {"config.7: ", "datasets"}) == "");
  CHECK(lacks(error_of(minimal, {"--datasets.0.path="}), {"config.7: ", "datasets[0]", "c.yaml:4"}) == "");
  CHECK(lacks(error_of(minimal, {"--datasets", "[]"}), {"config.7: ", "datasets is empty"}) == "");
  CHECK(lacks(error_of(minimal, {"--trl.reward_funcs", "[]"}), {"config.7: ", "trl.reward_funcs is empty"}) == "");
}

TEST_CASE("unknown keys name file, line and the nearest known key") {
  CHECK(lacks(error_of(minimal + "  max_completion_lenght: 5\n"),
              {"config.4: ", "trl.max_completion_lenght", "c.yaml:9", "did you mean trl.max_completion_length?"}) ==
        "");
  CHECK(lacks(error_of(minimal + "gradient_acumulation_steps: 5\n"),
              {"config.4: ", "did you mean gradient_accumulation_steps?"}) == "");
  CHECK(lacks(error_of(minimal + "num_generations: 5\n"), {"config.4: ", "written trl.num_generations"}) == "");
  CHECK(lacks(error_of(minimal + "  learning_rate: 5\n"), {"config.4: ", "written learning_rate"}) == "");
  CHECK(lacks(error_of(minimal + "zzzz: 5\n"), {"config.4: ", "zzzz", "c.yaml:9"}) == "");
  CHECK(lacks(error_of(minimal, {"--datasets.0.typ", "x"}),
              {"config.4: ", "datasets[0].typ", "command line --datasets.0.typ", "type"}) == "");
  CHECK(lacks(error_of(minimal + "special_tokens: {pad_tokn: x}\n"), {"config.4: ", "special_tokens.pad_token"}) == "");
  CHECK(exit_code_of([&] { (void)parse(minimal + "zzzz: 5\n"); }) == 2);
}

TEST_CASE("a recipe is judged before anything else") {
  CHECK(lacks(error_of("rl: gpro\n"), {"[rlalgo.config.6] the value of rl", "did you mean grpo?"}) == "");
  CHECK(lacks(error_of("rl: sftx\nlearning_rate: fast\n"), {"config.6: ", "the value of rl"}) == "");
}

namespace {
const std::string matching =
    "base_model: ./m\n"
    "rl: ebft\n"
    "datasets: [{path: rows.jsonl, type: ebft_pretrain.transform}]\n"
    "learning_rate: 1e-6\n"
    "micro_batch_size: 8\n"
    "ebft:\n";  // 6 lines
}  // namespace

TEST_CASE("feature matching: every key reaches its field") {
  const RunConfig c = parse(matching + R"(  mode: strided
  feature_layers: [0.5, 1]
  feature_model: ./f
  feature_normalization: per_layer
  embed_method: mean_pooling
  use_whitening: true
  whitening_space: sample
  alignment_coef: 2
  diversity_coef: 0.5
  rl_coef: 0.25
  ce_coef: 0.1
  advantage_estimator: group_norm
  stride: 2
  context_length: 4
  generate_max_len: 3
  n_samples_per_prompt: 5
  min_completion_prefix: 6
  temperature: 0
  top_p: 0.9
  mask_thinking_ce: true
  pack_documents: true
  document_masking: true
  save_rollouts: true
sequence_len: 64
)");
  const EbftConfig& e = c.ebft;
  CHECK(c.warnings.empty());
  CHECK(is_strided(c));
  CHECK(e.feature_layers == std::vector<double>{0.5, 1.0});
  CHECK(e.feature_model == "./f");
  CHECK(e.feature_normalization == "per_layer");
  CHECK(e.embed_method == "mean_pooling");
  CHECK(e.use_whitening);
  CHECK(e.whitening_space == "sample");
  CHECK(e.alignment_coef == 2.0);
  CHECK(e.diversity_coef == 0.5);
  CHECK(e.rl_coef == 0.25);
  CHECK(e.ce_coef == 0.1);
  CHECK(e.advantage_estimator == "group_norm");
  CHECK(e.stride == 2);
  CHECK(e.context_length == 4);
  CHECK(e.generate_max_len == 3);
  CHECK(e.n_samples_per_prompt == 5);
  CHECK(e.min_completion_prefix == 6);
  CHECK(e.temperature == 0.0);
  CHECK(e.top_p == 0.9);
  CHECK(e.mask_thinking_ce);
  CHECK(e.pack_documents);
  CHECK(e.document_masking);
  CHECK(e.save_rollouts);
  CHECK(e.sequence_len == 64);
  CHECK(c.settings.contains("ebft.stride"));  // what a resume compares
  CHECK(parse(matching + "  whitening: sample\n").ebft.whitening_space == "sample");
}

TEST_CASE("feature matching: contradictions") {
  CHECK(lacks(error_of("base_model: m\nrl: ebft\ndatasets: [{path: x}]\nlearning_rate: 1\n"),
              {"config.7: ", "section ebft"}) == "");
  CHECK(lacks(error_of(matching + "  mode: strided\n  strid: 4\n"), {"config.4: ", "ebft.strid", "ebft.stride"}) == "");
  for (const char* method : {"concat", "completion_mean"})
    CHECK(lacks(error_of(matching + "  mode: strided\n  embed_method: " + method + "\n"),
                {"config.8: ", method, "c.yaml:8"}) == "");
  CHECK(lacks(error_of(matching + "  mode: strided\n  n_samples_per_prompt: 1\n"), {"config.8: ", "reinforce"}) == "");
  const std::string quantized = "trl: {generation_quantization: int8}\n";
  CHECK(lacks(error_of(matching + "  mode: strided\n" + quantized), {"generation_quantization"}) == "");
  CHECK(parse(matching + "  mode: structured\n" + quantized).trl.quantizes());
  CHECK_NOTHROW(parse(matching + "  mode: strided\n  n_samples_per_prompt: 1\n  advantage_estimator: reinforce\n"));
  const std::string alone = "trl: {num_generations: 1}\n";
  CHECK(lacks(error_of(matching + "  mode: structured\n" + alone), {"config.8: ", "reinforce"}) == "");
  CHECK(geometry_of(parse(matching + "  advantage_estimator: reinforce\n" + alone)).num_generations == 1);
  CHECK(lacks(error_of(matching + "  advantage_estimator: reinforce\ntrl: {num_generations: 0}\n"), {"config.6: "}) ==
        "");
  for (const char* layers : {"[-0.1]", "[1.5]", "[]"})
    CHECK(lacks(error_of(matching + "  feature_layers: " + layers + "\n"), {"config.6: ", "ebft.feature_layers"}) ==
          "");
  CHECK(lacks(error_of(matching + "  mode: structured\ntrl: {reward_funcs: [x.y]}\n"),
              {"config.8: ", "trl.reward_funcs"}) == "");
  CHECK(lacks(error_of(matching + "  whitening: sample\n  whitening_space: feature\n"), {"config.8: "}) == "");
  CHECK(warning_of(matching + "  feature_layers: [0.5, 0.5]\n").find("more than once") != std::string::npos);
  CHECK(warning_of(matching + "  stride: 4\n").find("ebft.stride has no effect") != std::string::npos);
  CHECK(parse(matching + "  mode: structured\n").warnings.empty());
  CHECK(parse(matching + "  mode: structured\ntrl: {temperature: 0}\n").trl.temperature == 0.0);
}

TEST_CASE("feature matching: what axolotl refuses of strided runs, and what it warns of") {
  const std::string strided = matching + "  mode: strided\n", structured = matching + "  mode: structured\n";
  // What axolotl refuses together with checkpoints has no effect here.
  for (const char* lines : {"torch_compile: true\ngradient_checkpointing: true\n",
                            "flex_attention: true\nactivation_offloading: true\ngradient_checkpointing: true\n"}) {
    const RunConfig run = parse(strided + lines);
    CHECK_FALSE(run.warnings.empty());
    for (const std::string& text : run.warnings) CHECK(lacks(text, {"has no effect"}) == "");
  }
  CHECK(lacks(error_of(strided + "activation_offloading: true\n"), {"config.8: ", "gradient_checkpointing: true"}) ==
        "");
  CHECK(lacks(error_of(strided + "sample_packing: true\n"), {"config.8: ", "ebft.pack_documents"}) == "");
  CHECK(lacks(error_of(strided + "  document_masking: true\n"), {"config.8: ", "ebft.pack_documents"}) == "");
  CHECK(parse(strided + "sequence_len: 1024\n").warnings.empty());
  CHECK(warning_of(strided + "sequence_len: 4096\n").find("20448 tokens in one pass") != std::string::npos);
  CHECK(warning_of(strided + "trl: {num_generations: 4}\n").find("trl.num_generations") != std::string::npos);
  CHECK(parse(strided + "trl: {shuffle_dataset: false}\n").warnings.empty());
  for (const char* value : {"stride: 0", "stride: -1", "context_length: 0", "generate_max_len: 0",
                            "n_samples_per_prompt: 0", "min_completion_prefix: -1", "temperature: -0.1", "top_p: 1.1",
                            "top_p: -0.1", "alignment_coef: .inf", "ce_coef: -1"})
    CHECK(lacks(error_of(strided + "  " + value + "\n"),
                {"config.6: ", "ebft." + std::string(value).substr(0, std::string(value).find(':'))}) == "");
  CHECK(lacks(error_of(structured + "  gt_length_multiplier: 0.05\n"), {"config.6: ", "gt_length_multiplier"}) == "");
  CHECK(lacks(error_of(strided + "sequence_len: 0\n"), {"config.6: ", "sequence_len"}) == "");
  CHECK(lacks(error_of(strided + "lr_scheduler: polynomial\nlr_scheduler_kwargs: {power: -1}\n"),
              {"lr_scheduler_kwargs"}) == "");
}

TEST_CASE("what this build lacks is an error that says what works, never ignored") {
  CHECK(lacks(error_of(minimal + "adapter: llama-adapter\n"), {"config.10: ", "adapter: lora"}) == "");
  CHECK(lacks(error_of(minimal + "load_in_4bit: true\n"), {"config.10: ", "load_in_4bit", "adapter: lora"}) == "");
  CHECK(lacks(error_of(minimal + "load_in_8bit: true\n"), {"config.10: ", "load_in_8bit", "adapter: lora"}) == "");
  CHECK(lacks(error_of(minimal + "lr_scheduler: linear\nlr_scheduler_kwargs: {num_cycles: 2}\n"),
              {"config.10: ", "lr_scheduler_kwargs"}) == "");
  CHECK(lacks(error_of(minimal + "optimizer: dion\n"), {"config.10: ", "optimizer dion", "adamw_torch"}) == "");
  CHECK(lacks(error_of(minimal + "optimizer: adamm\n"), {"config.6: "}) == "");
  CHECK(lacks(error_of(minimal + "save_strategy: best\n"), {"config.10: ", "save_strategy best"}) == "");
  CHECK(lacks(error_of(minimal + "save_safetensors: false\n"), {"config.10: "}) == "");
  CHECK(lacks(error_of(minimal + "tensor_parallel_size: 2\n"), {"config.10: ", "context_parallel_size"}) == "");
  CHECK(
      parse(minimal + "context_parallel_size: 1\nload_in_4bit: false\nadapter:\nfsdp: []\n  # off\n").warnings.empty());
}

TEST_CASE("a base in 4 or 8 bits has axolotl's settings, and bnb_config_kwargs come last") {
  const std::string adapter = "lora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n";
  const auto quantisation = [&](const std::string& keys) {
    const RunConfig config = parse(minimal + adapter + keys);
    INFO(keys);
    CHECK(config.warnings.empty());
    return config.quantisation();
  };
  const std::string four = "adapter: qlora\nload_in_4bit: true\n";
  CHECK(quantisation(four) == rlalgo::model::Quantisation{});
  CHECK(quantisation("adapter: lora\nload_in_4bit: true\n") == rlalgo::model::Quantisation{});
  CHECK(quantisation("adapter: lora\nload_in_8bit: true\n")->code == rlalgo::model::WeightCode::int8);
  CHECK_FALSE(quantisation("adapter: lora\nload_in_8bit: false\nload_in_4bit: false\n").has_value());
  CHECK(quantisation(four + "bnb_config_kwargs:\n") == rlalgo::model::Quantisation{});
  CHECK(quantisation(
            four + "bnb_4bit_quant_type: fp4\nbnb_4bit_use_double_quant: false\nbnb_4bit_compute_dtype: bfloat16\n") ==
        rlalgo::model::Quantisation{
            .code = rlalgo::model::WeightCode::fp4, .nested = false, .products = rlalgo::model::ProductsIn::bfloat16});
  CHECK(quantisation(four + "bnb_4bit_quant_type: fp4\nbnb_config_kwargs: {bnb_4bit_quant_type: nf4, blocksize: 128, "
                            "bnb_4bit_compute_dtype: torch.float32, llm_int8_skip_modules: [o_proj]}\n") ==
        rlalgo::model::Quantisation{.block = 128, .products = rlalgo::model::ProductsIn::float32, .skip = {"o_proj"}});
  CHECK(quantisation(four + "quantize_moe_experts: true\n") == rlalgo::model::Quantisation{.experts = true});
  CHECK(lacks(warning_of(minimal + adapter + four + "bnb_4bit_compute_dtype: float16\n"), {"c.yaml:14", "float32"}) ==
        "");
  CHECK(lacks(warning_of(minimal + adapter + four + "bnb_config_kwargs: {llm_int8_threshold: 6.0}\n"), {"outliers"}) ==
        "");
  CHECK(lacks(warning_of(minimal + adapter + "adapter: lora\nbnb_4bit_quant_type: nf4\n"), {"the base is whole"}) ==
        "");
  for (const char* keys : {"adapter: qlora\n", "adapter: qlora\nload_in_8bit: true\n",
                           "adapter: lora\nload_in_8bit: true\nload_in_4bit: true\n"})
    CHECK(lacks(error_of(minimal + adapter + keys), {"config.8: ", "load_in_"}) == "");
  for (const char* kwargs : {"blocksize: 63", "bnb_4bit_quant_type: af4", "bnb_4bit_compute_dtype: float8"})
    CHECK(lacks(error_of(minimal + adapter + four + "bnb_config_kwargs: {" + kwargs + "}\n"),
                {"config.6: ", "bnb_config_kwargs."}) == "");
  CHECK(lacks(error_of(minimal + adapter + four + "bnb_config_kwargs: {llm_int8_has_fp16_weight: true}\n"),
              {"config.10: "}) == "");
}

TEST_CASE("everything that is refused is said at once, by line, and nothing that only follows from it") {
  const std::string five =
      "base_model: ./m\n"                    // 1
      "rl: grpo\n"                           // 2
      "learning_rate: fast\n"                // 3: no number
      "micro_batch_size: 8\n"                // 4
      "neftune_noise_alpha: 5\n"             // 5: not here
      "gradient_acumulation_steps: 4\n"      // 6: unknown
      "warmup_steps: 10\n"                   // 7
      "warmup_ratio: 0.1\n"                  // 8: both
      "trl:\n"                               // 9
      "  reward_funcs: [rewards.correct]\n"  // 10
      "  temperature: -1\n"                  // 11: out of range
      "datasets: [{path: rows.jsonl}]\n";    // 12
  const std::string all = error_of(five);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    lines.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  REQUIRE(lines.size() == 6);
  CHECK(lacks(lines[0], {"config.45: ", "5 problems"}) == "");
  CHECK(lacks(lines[1], {"  [rlalgo.config.5] ", "learning_rate", "c.yaml:3"}) == "");
  CHECK(lacks(lines[2], {"  [rlalgo.config.10] ", "neftune_noise_alpha", "c.yaml:5", "no noise"}) == "");
  CHECK(lacks(lines[3], {"  [rlalgo.config.4] ", "c.yaml:6; did you mean gradient_accumulation_steps?"}) == "");
  CHECK(lacks(lines[4], {"  [rlalgo.config.8] ", "c.yaml:7 and c.yaml:8; remove one"}) == "");
  CHECK(lacks(lines[5], {"  [rlalgo.config.6] ", "trl.temperature", "c.yaml:11"}) == "");
  CHECK(exit_code_of([&] { (void)parse(five); }) == 2);

  // What follows from a value that could not be read, or from a key that is written otherwise, is not said.
  for (const char* one : {"micro_batch_size: eight\n", "mirco_batch_size: 3\n"}) {
    INFO(one);
    CHECK(lacks(error_of(without("micro_batch_size") + "gradient_accumulation_steps: 3\n" + one), {"config."}) == "");
    CHECK(error_of(without("micro_batch_size") + "gradient_accumulation_steps: 3\n" + one).find("problems") ==
          std::string::npos);
  }
  for (const std::string& one :
       {minimal + "  num_generations: eight\n", without("learning_rate") + "learning_rte: 1e-5\n",
        without("learning_rate") + "learning_rate: [1]\n",
        minimal + "lr_scheduler: cosinee\nlr_scheduler_kwargs: {x: 1}\n",
        minimal + "adapter: loraa\nlora_r: 4\nlora_dropout: 0.1\n", minimal + "deepspeed: /nowhere/zero.json\n",
        minimal + "adapter: lora\nlora_rr: 4\nlora_alpha: 4\nlora_target_linear: true\n",
        without("  reward_funcs") + "  reward_fncs: [a.b]\n", minimal + "nemo_gym_enabled: perhaps\n",
        std::string("rl: grpo\nbase_model: m\nlearning_rate: 1\ndatasets: [{path: x}]\ntrl: [1]\n"),
        std::string("rl: grpo\nbase_model: m\nlearning_rate: 1\nmicro_batch_size: 8\ndatasets: 3\ntrl: {reward_funcs: "
                    "[a.b]}\n"),
        std::string("rl: gpro\nbase_model: m\nmicro_batch_size: 8\nlearning_rate: 1\ndatasets: [{path: x}]\ntrl: "
                    "{reward_funcs: [a.b]}\n"),
        std::string("rl: ebft\nbase_model: m\nlearning_rate: 1\ndatasets: [{path: x}]\nebft: 3\n")}) {
    INFO(one);
    CHECK(error_of(one) != "nothing");
    CHECK(error_of(one).find("problems") == std::string::npos);
  }
  // Numbers that others are divided by.
  for (const char* none :
       {"micro_batch_size: 0\n", "gradient_accumulation_steps: 0\n", "context_parallel_size: 0\n", "dp_shard_size: 0\n",
        "dp_replicate_size: 0\n", "batch_size: 0\n", "  num_generations: 0\n", "  steps_per_generation: 0\n",
        "  generation_batch_size: 0\n", "  num_iterations: 0\n", "num_epochs: 0\n"})
    for (const int ranks : {1, 2}) {
      INFO(none << ranks);
      const std::string text = without(std::string(none).starts_with("micro") ? "micro_batch_size" : "learning_rate") +
                               (std::string(none).starts_with(" ") ? none : "") +
                               "fsdp_config: {reshard_after_forward: true}\n" +
                               (std::string(none).starts_with(" ") ? "" : none);
      CHECK(raised_by([&] { (void)parse_run_config(parse_document(text, "c.yaml"), ranks); }) != "nothing");
    }
  // A recipe that is nearly one is taken for it, so that the rest is judged.
  CHECK(lacks(error_of("rl: gpro\nbase_model: m\nmicro_batch_size: 8\nlearning_rate: x\ndatasets: [{path: x}]\ntrl: "
                       "{reward_funcs: [a.b]}\n"),
              {"2 problems", "did you mean grpo?", "learning_rate"}) == "");
  CHECK(lacks(error_of("learning_rate: x\n"), {"config.7: ", "rl is missing"}) == "");
  CHECK(lacks(error_of(minimal + "zzzz: 1\nyyyy: 2\n  xxxx: 3\n"), {"config."}) == "");
}

TEST_CASE("no part of a file ends the judging of the rest") {
  const std::vector<std::string> lines = {"base_model: ./m",
                                          "rl: grpo",
                                          "micro_batch_size: 8",  // 1–3 are right, and each other line has one problem
                                          "learning_rate: fast",
                                          "special_tokens: {eos_token: ''}",
                                          "added_tokens_overrides: [1]",
                                          "seed: -1",
                                          "loss_watchdog_threshold: many",
                                          "bf16: perhaps",
                                          "gradient_checkpointing: 3",
                                          "lr_scheduler: cosinee",
                                          "deepspeed: {zero_optimization: {stage: 7}}",
                                          "plugins: [axolotl.integrations.grokfast.GrokfastPlugin]",
                                          "optimizer: schedule_free_adamw",
                                          "save_strategy: best",
                                          "zzzz: 1",
                                          "rpo_alpha: 1",
                                          "lora_model_dir: 3",
                                          "val_set_size: 2",
                                          "warmup_steps: -1",
                                          "save_total_limit: -5",
                                          "neftune_noise_alpha: 1",
                                          "dpo_loss_type: [sigmoid]",
                                          "dp_shard_size: 0",
                                          "datasets: [{path: x, splt: y}]",
                                          "test_datasets: [{path: x, roles: 3}]",
                                          "device: tpu",
                                          "sequence_parallel_degree: x",
                                          "trl:",
                                          "  reward_funcs: [a.b]",  // 29 and 30 are right
                                          "  reward_kwargs: []",
                                          "  chat_template_kwargs: 3",
                                          "  reward_clip_range: [1]",
                                          "  temperature: -1",
                                          "  importance_sampling_level: tokens",
                                          "  generation_kwargs: {max_tokens: 0}",
                                          "  vllm_mode: 3",
                                          "  top_p: 2"};
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const std::string all = error_of(text);
  INFO(all);
  for (std::size_t i = 3; i < lines.size(); ++i) {
    if (i == 28 || i == 29 || lines[i].starts_with("  vllm_mode")) continue;  // vllm_mode: a warning without use_vllm
    INFO(lines[i]);
    CHECK(all.find("c.yaml:" + std::to_string(i + 1)) != std::string::npos);
  }
  // By line, each with its number.
  int last = 0;
  for (std::size_t at = all.find("\n  [rlalgo."); at != std::string::npos; at = all.find("\n  [rlalgo.", at + 1)) {
    const std::size_t end = all.find('\n', at + 1), place = all.find("c.yaml:", at);
    if (place == std::string::npos || place > end) continue;
    const int line = std::stoi(all.substr(place + 7));
    CHECK(line >= last);
    last = line;
  }
}

TEST_CASE("--allow-unsupported turns what changes no number into warnings, and nothing else") {
  for (const char* line : {"tensor_parallel_size: 2\n", "push_dataset_to_hub: me/rows\n", "save_strategy: best\n",
                           "save_safetensors: false\n", "sample_packing: true\n", "auto_find_batch_size: true\n",
                           "fsdp_config: {auto_wrap_policy: SIZE_BASED_WRAP}\n",
                           "deepspeed: {zero_optimization: {stage: 3, offload_param: {device: nvme}}}\n"}) {
    INFO(line);
    const std::string key(line, std::string(line).find_first_of(":_"));
    CHECK(lacks(error_of(minimal + line), {"config."}) == "");
    const RunConfig run = parse(minimal + line, {"--allow-unsupported"});
    bool said = false;
    for (const std::string& text : run.warnings)
      said = said || (text.find("--allow-unsupported") != std::string::npos && text.find(key) != std::string::npos);
    CHECK(said);
    CHECK(parse(minimal + line + "allow_unsupported: true\n").warnings == run.warnings);
  }
  CHECK(lacks(error_of(minimal + "tensor_parallel_size: 2\n"), {"leave it out with --allow-unsupported"}) == "");
  for (const char* line : {"neftune_noise_alpha: 5\n", "load_in_4bit: true\n", "zzzz: 1\n", "relora: true\n",
                           "load_best_model_at_end: true\n", "fp16: true\n"})
    CHECK(error_of(minimal + line, {"--allow-unsupported"}) != "nothing");
}

TEST_CASE("plugins are judged with their keys, by the plugin's name") {
  const std::string list = minimal + "plugins: [axolotl.integrations.";
  CHECK(lacks(warning_of(list + "swanlab.SwanLabPlugin]\nuse_swanlab: true\nswanlab_project: p\nswanlab_mode:\n"),
              {"SwanLabPlugin (c.yaml:9) with use_swanlab, swanlab_project has no effect", "metrics.jsonl"}) == "");
  CHECK(lacks(warning_of(list + "kernels.KernelsPlugin]\nuse_scattermoe: false\nuse_sonicmoe: false\n"),
              {"KernelsPlugin (c.yaml:9) has no effect"}) == "");
  CHECK(
      lacks(warning_of(minimal + "use_swanlab: true\nswanlab_project: p\n"),
            {"use_swanlab, swanlab_project (c.yaml:9) of the plugin axolotl.integrations.swanlab.SwanLabPlugin have no "
             "effect"}) == "");
  CHECK(parse(minimal + "use_swanlab: false\nliger_rope: false\nkd_trainer: false\n").warnings.empty());
  CHECK(parse(list + "nemo_gym.NemoGymPlugin]\n").warnings.empty());
  CHECK(lacks(warning_of(list + "liger.plugin.LigerPlugin]\nliger_rope: true\n"), {"LigerPlugin", "liger_rope"}) == "");
  CHECK(lacks(error_of(list + "spectrum.SpectrumPlugin]\nspectrum_top_fraction: 0.5\n"),
              {"config.10: ", "SpectrumPlugin", "found spectrum_top_fraction", "c.yaml:10", "unfrozen_parameters"}) ==
        "");
  CHECK(lacks(error_of(list + "grokfast.GrokfastPlugin]\n"), {"config.10: ", "GrokfastPlugin", "c.yaml:9"}) == "");
  CHECK(lacks(error_of(list + "kd.KDPlugin]\nkd_trainer: true\n"), {"config.10: ", "KDPlugin", "c.yaml:10"}) == "");
  CHECK(lacks(warning_of(list + "kd.KDPlugin]\nkd_trainer: false\nkd_alpha: 0.5\n"), {"KDPlugin", "kd_alpha"}) == "");
  CHECK(lacks(warning_of(minimal + "plugins: [my.own.Plugin]\n"), {"my.own.Plugin", "not loaded"}) == "");
}

TEST_CASE("evaluation keys without rows to evaluate on have no effect, and 0 is nothing") {
  for (const char* line : {"eval_steps: 5\n", "evals_per_epoch: 4\n", "eval_strategy: epoch\n"}) {
    INFO(line);
    const std::string key(line, std::string(line).find(':'));
    CHECK(lacks(warning_of(minimal + line), {key + " (c.yaml:9) has no effect", "nothing to evaluate on"}) == "");
    CHECK(lacks(warning_of(minimal + line + "val_set_size: 0.0\n"), {key, "val_set_size"}) == "");
    CHECK(parse(minimal + line + "val_set_size: 0.1\n").warnings.empty());
    CHECK(parse(minimal + line + "test_datasets: [{path: x}]\n").warnings.empty());
  }
  CHECK(lacks(warning_of(minimal + "  num_generations_eval: 2\n"), {"trl.num_generations_eval"}) == "");
  CHECK(parse(minimal + "eval_strategy: 'no'\nevals_per_epoch:\n").warnings.empty());
  const RunConfig none = parse(minimal + "evals_per_epoch: 0\nsaves_per_epoch: 0\nval_set_size: 0.1\n");
  CHECK(none.eval_strategy == "no");
  CHECK_FALSE(none.evals_per_epoch.has_value());
  CHECK_FALSE(none.saves_per_epoch.has_value());
  CHECK(none.warnings.empty());
}

TEST_CASE("adapter keys become one description of an adapter") {
  const auto config =
      parse(minimal +
            "adapter: lora\nlora_r: 4\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\n"
            "lora_target_modules: [lm_head]\nlora_modules_to_save: [embed_tokens]\npeft_use_rslora: true\n"
            "peft_use_dora: true\npeft_init_lora_weights: orthogonal\nlora_rank_pattern: {q_proj: 2}\n"
            "lora_alpha_pattern: {q_proj: 3}\npeft_layers_to_transform: [0, 1]\n  # off\n");
  REQUIRE(config.lora.has_value());
  CHECK(config.lora->r == 4);
  CHECK(config.lora->alpha == 16);
  CHECK(config.lora->dropout == 0.05);
  CHECK(config.lora->target_modules == std::vector<std::string>{"lm_head"});
  CHECK(config.lora->every_linear);
  CHECK(config.lora->modules_to_save == std::vector<std::string>{"embed_tokens"});
  CHECK(config.lora->use_rslora);
  CHECK(config.lora->use_dora);
  CHECK((config.lora->init == rlalgo::model::LoraInit::orthogonal));
  CHECK(config.lora->rank_pattern.at(0).second == 2);
  CHECK(config.lora->alpha_pattern.at(0).second == 3);
  CHECK(config.lora->layers_to_transform == std::vector<std::int64_t>{0, 1});
  CHECK(config.warnings.empty());
  const std::string lora = minimal + "adapter: lora\nlora_r: 4\nlora_alpha: 16\n";
  CHECK(parse(lora + "lora_target_modules: '.*q_proj'\n").lora->target_pattern == ".*q_proj");
  CHECK(lacks(error_of(lora), {"config.7: ", "lora_target_linear: true"}) == "");
  CHECK(lacks(error_of(minimal + "adapter: lora\nlora_alpha: 16\nlora_target_linear: true\n"),
              {"config.7: ", "lora_r"}) == "");
  CHECK(lacks(error_of(minimal + "lora_model_dir: x\n"), {"config.14: ", "adapter: lora"}) == "");
  CHECK(parse(minimal + "adapter: lora\nlora_model_dir: x\n").lora_model_dir == "x");
  CHECK(lacks(error_of(lora + "lora_target_linear: true\nunfrozen_parameters: [model]\n"), {"config.8: "}) == "");
  CHECK(lacks(error_of(lora + "lora_target_linear: true\npeft_init_lora_weights: loftq\n"), {"config.10: ", "pissa"}) ==
        "");
  CHECK(parse(minimal + "unfrozen_parameters: [model.norm]\n").unfrozen_parameters.size() == 1);
}

TEST_CASE("keys without effect give one warning with the reason, unless they are off") {
  CHECK(lacks(warning_of(minimal + "flash_attention: true\n"),
              {"flash_attention (c.yaml:9) has no effect", "the program chooses how attention is computed"}) == "");
  CHECK(lacks(warning_of(minimal + "wandb_watch: all\n"), {"wandb_watch", "are not logged"}) == "");
  CHECK(lacks(warning_of(minimal + "eot_tokens: [x]\n"), {"eot_tokens (c.yaml:9)", "special_tokens.eos_token"}) == "");
  CHECK(lacks(warning_of(minimal + "sequence_len: 1024\n"), {"sequence_len", "has no effect"}) == "");
  CHECK(lacks(warning_of(minimal + "lora_r: 8\n"), {"lora_r", "no adapter"}) == "");
  CHECK(lacks(warning_of(minimal + "bf16: true\n"), {"bf16 (c.yaml:9)", "several times as long"}) == "");
  CHECK(lacks(warning_of(minimal + "  vllm_mode: colocate\n"), {"trl.vllm_mode", "in this process"}) == "");
  CHECK(lacks(warning_of(minimal + "vllm: {port: 9000}\n"), {"vllm (c.yaml:9)"}) == "");
  CHECK(lacks(warning_of(minimal + "plugins: [axolotl.integrations.liger.LigerPlugin]\n"),
              {"LigerPlugin (c.yaml:9) has no effect", "kernels"}) == "");
  CHECK(lacks(warning_of(minimal + "ddp: true\n"), {"ddp (c.yaml:9) has no effect", "ranks"}) == "");
  for (const char* family : {"falcon", "llama", "mistral", "qwen"})
    CHECK(lacks(warning_of(minimal + "is_" + family + "_derived_model: true\n"), {"config.json"}) == "");
  CHECK(parse(minimal + "ddp: false\nfp8_config:\nis_preprocess: false\n").warnings.empty());
  CHECK(lacks(warning_of(minimal + "cosine_constant_lr_ratio: 0.5\n"),
              {"cosine_constant_lr_ratio", "cosine_min_lr_ratio"}) == "");
  CHECK(lacks(warning_of(minimal + "cosine_min_lr_ratio: 0.5\nlr_scheduler: linear\n"),
              {"cosine_min_lr_ratio", "linear"}) == "");
  CHECK(lacks(warning_of(minimal + "val_set_size: 0.1\nevaluation_strategy: epoch\n"),
              {"evaluation_strategy is now eval_strategy"}) == "");
  CHECK(lacks(warning_of(minimal, {"--datasets.0.logprobs-field", "m"}), {"datasets[0].logprobs_field"}) == "");
  CHECK(
      parse(minimal +
            "bf16: false\nfp16:\ntf32: false\nflash_attention: false\nwandb_project:\ngradient_checkpointing: false\n")
          .warnings.empty());
}

TEST_CASE("an older word of gradient_checkpointing and activation_offloading say the same place") {
  const std::string disk = minimal + "gradient_checkpointing: offload_disk\n";
  CHECK(parse(disk).activation_offloading == "disk");
  CHECK(parse(disk + "activation_offloading: disk\n").activation_offloading == "disk");
  CHECK(parse(disk + "activation_offloading:\n").activation_offloading == "disk");
  for (const char* other : {"true", "false"})
    CHECK(lacks(error_of(disk + "activation_offloading: " + other + "\n"),
                {"config.8", "offload_disk", "activation_offloading"}) == "");
}

TEST_CASE("precision: float32 unless bfloat16 is asked for; float16 is refused") {
  CHECK_FALSE(parse(minimal).bfloat16);
  CHECK_FALSE(parse(minimal + "bf16: false\nbfloat16:\nfp16: auto\n").bfloat16);
  CHECK(parse(minimal + "bf16: true\n").bfloat16);
  CHECK(parse(minimal + "bfloat16: true\nbf16: auto\n").bfloat16);
  const bool fast = rlalgo::cpu::multiplies_bfloat16();
  for (const std::string key : {"bf16", "bfloat16"}) {
    CHECK(parse(minimal + key + ": auto\n").bfloat16 == fast);
    CHECK((lacks(warning_of(minimal + key + ": auto\n"), {key, "bfloat16"}) == "") == fast);
  }
  for (const std::string key : {"fp16", "float16"})
    CHECK(lacks(error_of(minimal + key + ": true\n"), {"[rlalgo.config.10]", key, "float32", "bf16"}) == "");
}

TEST_CASE("a generation server: its keys, their old names, what excludes what") {
  const TrlConfig off = parse(minimal).trl;
  CHECK_FALSE(off.generates_elsewhere());
  const TrlConfig t =
      parse(minimal +
            "  use_vllm: true\n  vllm_server_host: gpu-7\n  vllm_server_port: 9001\n"
            "  vllm_server_timeout: 30\n  request_timeout: 90\n  vllm_importance_sampling_mode: token_truncate\n"
            "  vllm_importance_sampling_cap: 2.0\n  vllm_importance_sampling_clip_min: 0.5\n"
            "  vllm_guided_decoding_regex: a+\n  generation_kwargs: {temperature: 0.7, seed: 3}\n")
          .trl;
  CHECK(t.generates_elsewhere());
  CHECK(t.vllm_server_host == "gpu-7");
  CHECK(t.vllm_server_port == 9001);
  CHECK(t.vllm_server_timeout == 30.0);
  CHECK(t.request_timeout == 90.0);
  CHECK(t.vllm_importance_sampling_correction);
  CHECK(t.vllm_importance_sampling_mode == "token_truncate");
  CHECK(t.vllm_importance_sampling_clip_min == 0.5);
  CHECK(t.vllm_importance_sampling_clip_max == 2.0);
  CHECK(t.vllm_structured_outputs_regex == "a+");
  CHECK(t.temperature == 0.7);
  CHECK(t.generation_kwargs["seed"] == 3);
  // Of constrained texts a correction that nobody asked for would take nearly all away.
  for (const char* constraint :
       {"vllm_structured_outputs_regex: a+", "generation_kwargs: {structured_outputs: {regex: a+}}"})
    CHECK(lacks(warning_of(minimal + "  use_vllm: true\n  " + constraint + "\n"),
                {"constrained", "vllm_importance_sampling_correction is false"}) == "");
  const std::string kept =
      "  use_vllm: true\n  vllm_structured_outputs_regex: a+\n  vllm_importance_sampling_correction: true\n";
  CHECK(parse(minimal + kept).trl.vllm_importance_sampling_correction);
  const TrlConfig open = parse(minimal + "  use_vllm: true\n  vllm_importance_sampling_clip_max:\n").trl;
  CHECK_FALSE(open.vllm_importance_sampling_clip_max);
  CHECK(lacks(warning_of(minimal + "  use_vllm: true\n  vllm_mode: colocate\n"),
              {"trl.vllm_mode", "in this process"}) == "");
  CHECK(lacks(error_of(minimal + "  use_vllm: true\n  vllm_mode: remote\n"), {"config.6: ", "colocate"}) == "");
  CHECK(lacks(error_of(minimal + "  use_vllm: true\n  vllm_server_port: 70000\n"), {"config.6: ", "65535"}) == "");
  CHECK(lacks(error_of(minimal + "  use_vllm: true\n  vllm_importance_sampling_clip_min: 4\n"),
              {"config.6: ", "clip_max = 3"}) == "");
  CHECK(lacks(error_of(minimal + "  use_vllm: true\n  vllm_importance_sampling_mode: token_truncate\n"
                                 "  vllm_importance_sampling_clip_max:\n"),
              {"config.8: ", "bounds"}) == "");
}

TEST_CASE("rloo has defaults of its own and none of the keys of other recipes") {
  std::string rloo = minimal;
  rloo.replace(rloo.find("rl: grpo"), 8, "rl: rloo");
  const RunConfig run = parse(rloo + "  normalize_advantages: true\n  reward_clip_range: [-1, 2.5]\n");
  CHECK(run.beta == 0.05);
  CHECK(run.trl.num_generations == 2);
  CHECK(run.trl.normalize_advantages);
  CHECK(run.trl.reward_clip_range == std::pair{-1.0, 2.5});
  CHECK(parse(rloo + "  beta: 0.0\n").beta == 0.0);
  CHECK(lacks(error_of(rloo + "  loss_type: dapo\n"), {"config.8: ", "trl.loss_type", "rl: rloo"}) == "");
  CHECK(lacks(error_of(rloo + "  reward_clip_range: [2, 1]\n"), {"config.5: ", "[lowest, highest]"}) == "");
  CHECK(lacks(error_of(minimal + "  normalize_advantages: true\n"), {"config.8: ", "rl: rloo"}) == "");
}

TEST_CASE("gdpo presets the aggregation and keeps it; surrogates go with the ratio levels they read") {
  std::string gdpo = minimal;
  gdpo.replace(gdpo.find("rl: grpo"), 8, "rl: gdpo");
  CHECK(parse(gdpo).trl.multi_objective_aggregation == "normalize_then_sum");
  CHECK(lacks(error_of(gdpo + "  multi_objective_aggregation: sum_then_normalize\n"), {"config.8: ", "rl: grpo"}) ==
        "");
  CHECK(parse(minimal + "  multi_objective_aggregation: normalize_then_sum\n").rl == "grpo");
  for (const char* bad : {"  loss_type: vespo\n  importance_sampling_level: sequence\n",
                          "  loss_type: cispo\n  importance_sampling_level: sequence_token\n"})
    CHECK(lacks(error_of(minimal + bad), {"config.8: ", "importance_sampling_level"}) == "");
  CHECK(parse(minimal + "  loss_type: luspo\n  importance_sampling_level: sequence\n").trl.loss_type == "luspo");
  CHECK(lacks(error_of(minimal + "  top_entropy_quantile: 1.2\n"), {"config.6: ", "from 0 to 1"}) == "");
  CHECK(lacks(error_of(minimal + "  sapo_temperature_neg: 0\n"), {"config.6: "}) == "");
}

TEST_CASE("removed keys") {
  CHECK(lacks(error_of(minimal + "rope_scaling: {type: linear}\n"), {"config.13: ", "rope_scaling", "c.yaml:9"}) == "");
  CHECK(lacks(error_of(minimal + "rpo_alpha: 1\n"), {"config.13: "}) == "");
}

TEST_CASE("wrong types") {
  CHECK(lacks(error_of(minimal, {"--micro-batch-size", "eight"}),
              {"config.5: ", "micro_batch_size", "command line --micro-batch-size", "an integer"}) == "");
  CHECK(lacks(error_of(minimal + "max_steps: [1]\n"), {"config.5: ", "max_steps", "c.yaml:9"}) == "");
  CHECK(lacks(error_of(minimal + "test_datasets: {path: x}\n"), {"config.5: ", "test_datasets", "dash"}) == "");
  CHECK(lacks(error_of(minimal, {"--datasets.0.type", "[a]"}), {"config.5: ", "datasets[0].type"}) == "");
  CHECK(lacks(error_of(minimal, {"--datasets", "x.jsonl"}), {"config.5: ", "datasets"}) == "");
  CHECK(lacks(error_of(minimal, {"--trl", "x"}), {"config.5: ", "trl"}) == "");
  CHECK(lacks(error_of(minimal + "  chat_template_kwargs: 3\n"), {"config.5: ", "chat_template_kwargs"}) == "");
  CHECK(lacks(error_of(minimal + "seed: -1\n"), {"config.6: ", "seed"}) == "");
}

TEST_CASE("packing and keys of other recipes do not go with grpo") {
  CHECK(lacks(error_of(minimal + "sample_packing: true\n"), {"config.8: ", "sample_packing", "c.yaml:9"}) == "");
  CHECK(parse(minimal + "sample_packing: false\n").warnings.empty());
  CHECK(lacks(error_of(minimal + "dpo_loss_type: [ipo]\n"), {"config.8: ", "dpo_loss_type"}) == "");
}

TEST_CASE("a file on disk with overrides") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("c.yaml", minimal);
  const std::vector<std::string> overrides = {"--trl.beta", "0.5"};
  CHECK(load_run_config(file, overrides).beta == 0.5);
  CHECK(lacks(raised_by([&] { (void)load_run_config(scratch.path() / "no.yaml"); }), {"config.1: "}) == "");
}

TEST_CASE("several turns: tools, environments and their limits") {
  const RunConfig none = parse(minimal);
  CHECK_FALSE(none.trl.has_turns());
  const RunConfig tools = parse(minimal + "  tools: [calculator, my.search]\n  max_tool_calling_iterations: 0\n");
  CHECK(tools.trl.tools == std::vector<std::string>{"calculator", "my.search"});
  CHECK(tools.trl.max_tool_calling_iterations == 0);
  const RunConfig game =
      parse(minimal + "  environment_factory: games.Guess\n  max_turns: 4\n  environment_timeout: 2.5\n");
  CHECK(game.trl.environment_factory == "games.Guess");
  CHECK(game.trl.max_turns == 4);
  CHECK(game.trl.environment_timeout == 2.5);
  // Keys that have nothing to limit: said, not unknown.
  const RunConfig idle = parse(minimal + "  max_turns: 4\n  environment_timeout: 2.5\n");
  REQUIRE(idle.warnings.size() == 2);
  CHECK(lacks(idle.warnings[0], {"trl.max_turns", "no effect", "trl.environment_factory", "trl.tools"}) == "");
  CHECK(lacks(error_of(minimal + "  tools: [calculator]\n  max_turns: -1\n"), {"config.6: ", "max_turns"}) == "");
  CHECK(lacks(error_of(minimal + "  tools: [calculator]\n  environment_timeout: 0\n"),
              {"config.6: ", "environment_timeout"}) == "");
  const RunConfig own = parse(minimal + "  rollout_func: my.rollout\n  environment_timeout: 2.5\n");
  CHECK(own.trl.rollout_func == "my.rollout");
  CHECK(own.trl.environment_timeout == 2.5);
  CHECK_FALSE(own.trl.has_turns());
  const RunConfig several =
      parse(minimal + "  environment_factory: {b: games.Guess, \"a 1\": \"ws://127.0.0.1:8001\", 7: games.Seven}\n");
  CHECK(several.trl.environment_factories.dump() ==
        R"({"b":"games.Guess","a 1":"ws://127.0.0.1:8001","7":"games.Seven"})");
  CHECK(several.trl.has_turns());
  CHECK(several.trl.has_environment());
  CHECK_FALSE(several.trl.prompts_itself());
  CHECK(several.trl.turn_timeout() == 180);
  const std::string factory = minimal + "  environment_factory: ";
  CHECK(lacks(error_of(factory + "{}\n"), {"config.5: ", "trl.environment_factory", "column environment"}) == "");
  CHECK(lacks(error_of(factory + "[games.Guess]\n"), {"config.5: ", "trl.environment_factory", "a list"}) == "");
  CHECK(lacks(error_of(factory + "{a: 1}\n"), {"config.5: ", "trl.environment_factory.a", "1"}) == "");
  CHECK(lacks(error_of(factory + "{a: null}\n"), {"config.5: ", "trl.environment_factory.a"}) == "");
  CHECK(lacks(error_of(factory + "{a: {b: games.Guess}}\n"), {"config.5: ", "trl.environment_factory.a"}) == "");
  CHECK(lacks(error_of(minimal + "  rollout_func: my.rollout\n  tools: [calculator]\n"),
              {"config.8: ", "trl.rollout_func does not go with trl.tools"}) == "");
}

TEST_CASE("rows of advantage 0 are skipped only where they change nothing, and a warning says so") {
  const auto warned = [](const std::string& text) {
    const RunConfig config = parse(text);
    for (const std::string& warning : config.warnings)
      if (warning.find("skip_zero_advantage_batches") != std::string::npos) return true;
    return false;
  };
  const std::string skip = minimal + "  skip_zero_advantage_batches: true\n";
  CHECK(parse(skip).trl.skip_zero_advantage_batches);
  CHECK_FALSE(warned(skip));
  CHECK_FALSE(warned(minimal + "  beta: 0.1\n"));
  for (const char* more :
       {"  beta: 0.1\n", "  loss_type: bnpo\n", "  entropy_coef: 0.1\n", "  top_entropy_quantile: 0.5\n"}) {
    INFO(more);
    CHECK(warned(skip + more));
  }
}

TEST_CASE("settings are the effective values of all keys that were read, however they were written") {
  const auto settings = [](const std::string& more, const std::vector<std::string>& overrides = {}) {
    return parse(minimal + more, overrides).settings;
  };
  const rlalgo::data::Json plain = settings("");
  CHECK(plain["rl"] == "grpo");
  CHECK(plain["learning_rate"] == 1e-6);
  CHECK(plain["adam_beta2"] == 0.999);
  CHECK(plain["seed"] == 42);
  CHECK(plain["beta"] == 0.0);
  CHECK(plain["trl.temperature"] == 1.0);
  CHECK(plain["trl.loss_type"] == "dapo");
  CHECK(plain["trl.reward_funcs"] == rlalgo::data::Json({"rewards.correct"}));
  CHECK(plain["datasets"][0]["path"] == "rows.jsonl");
  CHECK_FALSE(plain.contains("max_steps"));
  CHECK(plain.size() > 60);
  CHECK(settings("rl_beta: 0.1\n") == settings("  beta: 0.1\n"));
  CHECK(settings("  scale_rewards: true\n") == plain);
  CHECK(settings("  generation_kwargs: {temperature: 0.5}\n")["trl.temperature"] == 0.5);
  CHECK(settings("", {"--batch-size", "16"})["gradient_accumulation_steps"] == 2);
  CHECK(settings("adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_linear: true\n")["lora_r"] == 4);
  CHECK(settings("force_resume: true\n")["force_resume"] == true);
}

TEST_CASE("every field that a key sets is compared by a resume: changing the key changes the settings") {
  const rlalgo::data::Json plain = parse(minimal).settings;
  for (const auto& [key, value] : plain.items()) {
    if (!value.is_number() || key == "beta" || key == "rl" || key == "trl.environment_timeout") continue;
    const std::string other = value.is_number_float() ? "0.375" : "16";
    INFO(key << ": " << other);
    std::string name = "--" + key;
    rlalgo::data::Json changed;
    try {
      changed = parse(minimal, {name, other}).settings;
    } catch (const rlalgo::core::Error&) {
      continue;  // out of its range
    }
    CHECK(changed[key] != value);
  }
}

TEST_CASE("tokens of the tokenizer that a file changes") {
  const auto read = [](const std::string& more) {
    return parse(
        "base_model: m\nrl: grpo\nlearning_rate: 1e-6\nmicro_batch_size: 8\ntrl: {reward_funcs: [rewards.f]}\n"
        "datasets: [{path: a.jsonl}]\n" +
        more);
  };
  CHECK(read("").token_changes().empty());
  CHECK_FALSE(read("").settings.contains("tokens"));
  const rlalgo::text::TokenChanges changes =
      read(
          "special_tokens: {eos_token: <e>, pad_token: <p>, additional_special_tokens: [<x>]}\ntokens: [<t>]\n"
          "added_tokens_overrides: {12: <name>}\n")
          .token_changes();
  CHECK(changes.roles == std::map<std::string, std::string>{{"eos_token", "<e>"}, {"pad_token", "<p>"}});
  CHECK(changes.extra == std::vector<std::string>{"<x>"});
  CHECK(changes.tokens == std::vector<std::string>{"<t>"});
  CHECK(changes.renamed == std::map<std::int64_t, std::string>{{12, "<name>"}});
  CHECK(read("special_tokens: {eos_token: <e>}").settings["special_tokens.eos_token"] == "<e>");
  CHECK_THROWS_WITH(read("special_tokens: {eos_tokn: <e>}"),
                    Catch::Matchers::Contains("did you mean special_tokens.eos_token"));
  CHECK_THROWS_WITH(read("special_tokens: {eos_token: ''}"), Catch::Matchers::Contains("special_tokens.eos_token"));
  CHECK_THROWS_WITH(read("added_tokens_overrides: {x: <name>}"), Catch::Matchers::Contains("added_tokens_overrides.x"));
}

TEST_CASE("data_files: a text, a list, or either by split") {
  const auto entry = [](const std::string& files) {
    return parse(
               "base_model: m\nrl: grpo\nlearning_rate: 1e-6\nmicro_batch_size: 8\ntrl: {reward_funcs: [rewards.f]}\n"
               "datasets: [{path: json, data_files: " +
               files + "}]\n")
        .datasets[0]
        .source;
  };
  using Files = std::vector<std::string>;
  CHECK(entry("a.jsonl").data_files == Files{"a.jsonl"});
  CHECK(entry("[a.jsonl, 'b/*.jsonl']").data_files == Files{"a.jsonl", "b/*.jsonl"});
  CHECK_FALSE(entry("[]").has_data_files());
  const auto by_split = entry("{train: a.jsonl, test: [b.jsonl, c.jsonl]}");
  CHECK(by_split.data_files.empty());
  CHECK(by_split.split_files.at("train") == Files{"a.jsonl"});
  CHECK(by_split.split_files.at("test") == Files{"b.jsonl", "c.jsonl"});
  CHECK_THROWS_WITH(entry("{train: []}"),
                    Catch::Contains("datasets[0].data_files.train") && Catch::Contains("[rlalgo.config."));
}

TEST_CASE("~ is the home directory in every key that is a path") {
  const rlalgo::support::ScopedVariable home("HOME", "/home/somebody");
  const RunConfig config = parse(
      "base_model: ~/models/m\nrl: grpo\ndatasets:\n  - path: ~/rows\n    data_files: [~/rows/a.jsonl, b.jsonl]\n"
      "test_datasets:\n  - path: ~/test.jsonl\nlearning_rate: 1e-6\nmicro_batch_size: 8\n"
      "tokenizer_config: ~/t\nlora_model_dir: ~/a\nadapter: lora\nchat_template: jinja\n"
      "chat_template_jinja: ~/c.jinja\noutput_dir: ~\nresume_from_checkpoint: ~/out/checkpoint-1\n"
      "trl:\n  reward_funcs: [rewards.correct, ~/judge]\n  async_prefetch: true\n  async_schedule: record\n"
      "  async_schedule_file: ~/calls.jsonl\n",
      {"--output-dir=~/out"});
  const std::string at = "/home/somebody/";
  CHECK(config.base_model == at + "models/m");
  CHECK(config.datasets[0].source.path == at + "rows");
  CHECK(config.datasets[0].source.data_files == std::vector<std::string>{at + "rows/a.jsonl", "b.jsonl"});
  CHECK(config.test_datasets[0].source.path == at + "test.jsonl");
  CHECK(config.tokenizer_config == at + "t");
  CHECK(config.lora_model_dir == at + "a");
  CHECK(config.chat_template_jinja == at + "c.jinja");
  CHECK(config.output_dir == at + "out");
  CHECK(config.resume_from_checkpoint == at + "out/checkpoint-1");
  CHECK(config.trl.reward_funcs.back() == at + "judge");
  CHECK(config.trl.async_schedule_file == at + "calls.jsonl");
  CHECK(config.settings["output_dir"] == at + "out");
  CHECK(parse("rl: dpo\nbase_model: m\ndatasets:\n  - path: p.jsonl\nlearning_rate: 1e-6\n"
              "dataset_prepared_path: ~/prepared\n")
            .preference.dataset_prepared_path == at + "prepared");
  CHECK(parse("rl: ebft\nbase_model: m\ndatasets:\n  - path: p.jsonl\nlearning_rate: 1e-6\nmicro_batch_size: 8\n"
              "ebft:\n  feature_model: ~/features\n")
            .ebft.feature_model == at + "features");
  CHECK_THAT(error_of(minimal + "output_dir: ~no-such-user-here/x\n"),
             Catch::Contains("os.9") && Catch::Contains("c.yaml:"));
}

TEST_CASE("asynchronous generation: what is read, what follows from it, what is told") {
  const std::string asynchronous = minimal + "  async_prefetch: true\n";
  const RunConfig config = parse(asynchronous + "  prefetch_depth: 3\n  vllm_sync_interval: 2\n  max_staleness: 4\n");
  CHECK(config.warnings.empty());
  CHECK(config.trl.is_asynchronous());
  CHECK(config.trl.prefetch_depth == 3);
  CHECK(config.trl.vllm_sync_interval == 2);
  CHECK(config.trl.max_staleness == 4);
  CHECK(config.trl.vllm_importance_sampling_mode == "token_truncate");
  CHECK(config.trl.vllm_importance_sampling_clip_min == 1.0 / 3.0);
  CHECK(parse(asynchronous + "  vllm_sync_interval: 0\n").trl.vllm_sync_interval == 1);
  CHECK_FALSE(
      parse(asynchronous + "  vllm_importance_sampling_mode: sequence_mask\n").trl.vllm_importance_sampling_clip_min);
  CHECK(parse(asynchronous + "  vllm_importance_sampling_clip_min: 0.1\n").trl.vllm_importance_sampling_clip_min ==
        0.1);
  CHECK_FALSE(parse(asynchronous + "  prefetch_depth: 0\n").trl.is_asynchronous());
  CHECK(parse(minimal + "  use_data_producer: true\n").warnings.empty());
  const RunConfig again = parse(minimal +
                                "  use_data_producer: true\n  replay_buffer_size: 16\n  replay_max_age: 8\n"
                                "  reroll_start_fraction: 0.25\n  reroll_max_groups: 2\n");
  CHECK(again.warnings.empty());
  CHECK(again.trl.replay_buffer_size == 16);
  CHECK(again.trl.replay_max_age == 8);
  CHECK(again.trl.reroll_start_fraction == 0.25);
  CHECK(again.trl.reroll_max_groups == 2);
  // Where generation and training take turns, replayed rows have a correction if their old log-probs are computed anew.
  CHECK_FALSE(again.trl.may_correct());
  const std::string replays =
      minimal + "  use_data_producer: true\n  replay_buffer_size: 16\n  replay_recompute_logps: ";
  CHECK_FALSE(parse(replays + "false\n").trl.may_correct());
  const RunConfig corrected = parse(replays + "true\n  vllm_importance_sampling_cap: 2\n");
  CHECK(corrected.warnings.empty());
  CHECK(corrected.trl.may_correct());
  CHECK(corrected.trl.vllm_importance_sampling_mode == "token_truncate");
  CHECK(corrected.trl.vllm_importance_sampling_clip_min == 0.5);
  CHECK(warning_of(replays + "false\n  vllm_importance_sampling_cap: 2\n").find("sampling_cap") != std::string::npos);
  CHECK(warning_of(minimal + "  prefetch_depth: 2\n").find("async_prefetch") != std::string::npos);
  for (const char* key : {"trl.async_prefetch", "trl.prefetch_depth", "trl.use_data_producer"}) {
    CHECK_FALSE(parse(minimal).settings.contains(key));  // a run without it has the settings that it had
    CHECK((parse(asynchronous).settings.contains(key)) == (std::string(key) != "trl.use_data_producer"));
  }
}

TEST_CASE("quantized generation: its correction, where it has no effect, and with what it does not go") {
  const std::string quantized = minimal + "  generation_quantization: int8\n";
  const RunConfig config = parse(quantized);
  CHECK(config.warnings.empty());
  CHECK(config.trl.quantizes());
  CHECK(config.trl.may_correct());
  CHECK(config.trl.vllm_importance_sampling_mode == "token_truncate");
  CHECK(config.trl.vllm_importance_sampling_clip_min == 1.0 / 3.0);
  CHECK(config.settings.contains("trl.generation_quantization"));
  CHECK_FALSE(
      parse(minimal).settings.contains("trl.generation_quantization"));  // a run without it has the settings it had
  CHECK_FALSE(parse(minimal + "  generation_quantization: none\n").trl.may_correct());
  CHECK(parse(quantized + "  async_prefetch: true\n").trl.quantizes());
  const RunConfig elsewhere = parse(quantized + "  use_vllm: true\n");
  CHECK_FALSE(elsewhere.trl.quantizes());
  CHECK(elsewhere.trl.vllm_importance_sampling_mode == "sequence_mask");
  REQUIRE(elsewhere.warnings.size() == 1);
  CHECK(lacks(elsewhere.warnings[0], {"trl.generation_quantization", "no effect", "server"}) == "");
  CHECK(lacks(error_of(minimal + "  generation_quantization: fp4\n"),
              {"config.6", "generation_quantization", "int8", "fp8"}) == "");
  // What a GPU alone has.
  CHECK(lacks(error_of(minimal + "  generation_quantization: fp8\n"),
              {"config.44", "generation_quantization", "int8"}) == "");
  CHECK(lacks(error_of(minimal + "  generation_kv_cache_dtype: fp8\n"), {"config.44", "generation_kv_cache_dtype"}) ==
        "");
  CHECK(lacks(error_of(minimal + "  generation_kv_cache_dtype: fp8_e5m2\n"),
              {"config.6", "generation_kv_cache_dtype", "auto", "fp8_e4m3"}) == "");
  CHECK_FALSE(parse(minimal).settings.contains("trl.generation_kv_cache_dtype"));
  CHECK_FALSE(parse(minimal + "  generation_kv_cache_dtype: auto\n").trl.quantizes());
  const RunConfig kept_elsewhere = parse(minimal + "  generation_kv_cache_dtype: fp8\n  use_vllm: true\n");
  REQUIRE(kept_elsewhere.warnings.size() == 1);
  CHECK(lacks(kept_elsewhere.warnings[0], {"trl.generation_kv_cache_dtype", "no effect", "--kv-cache-dtype"}) == "");
  std::string rloo = quantized;
  rloo.replace(rloo.find("rl: grpo"), 8, "rl: rloo");
  CHECK(lacks(error_of(rloo), {"config.8", "trl.generation_quantization does not go with rl: rloo"}) == "");
  CHECK(lacks(error_of(minimal + "  generation_quantisation: int8\n"), {"generation_quantization"}) == "");
}

TEST_CASE("generation that depends on nothing else: a key of a GPU, said where it has no effect") {
  const std::string asked = minimal + "  generation_invariant: true\n";
  const RunConfig config = parse(asked + "device: cpu\n");
  CHECK(config.trl.generation_invariant);
  REQUIRE(config.warnings.size() == 1);
  CHECK(lacks(config.warnings[0], {"trl.generation_invariant", "no effect", "on the CPU"}) == "");
  CHECK(config.settings.contains("trl.generation_invariant"));
  CHECK_FALSE(parse(minimal).settings.contains("trl.generation_invariant"));
  CHECK_FALSE(parse(minimal).trl.generation_invariant);
  const RunConfig elsewhere = parse(asked + "  use_vllm: true\n");
  CHECK_FALSE(elsewhere.trl.generation_invariant);
  REQUIRE(elsewhere.warnings.size() == 1);
  CHECK(lacks(elsewhere.warnings[0], {"trl.generation_invariant", "no effect", "--generation-invariant"}) == "");
}

TEST_CASE("streaming: what is read, and which methods need their whole batch") {
  const std::string asynchronous = minimal + "  async_prefetch: true\n",
                    streams = asynchronous + "  streaming_partial_batch: true\n";
  const RunConfig config = parse(streams + "  streaming_min_groups: 3\n  prefetch_depth: 0\n");
  CHECK(config.trl.streaming_partial_batch);
  CHECK(config.trl.streaming_min_groups == 3);
  CHECK(config.trl.is_asynchronous());
  CHECK(config.warnings.empty());
  for (const char* least : {"0", "-3"}) {  // is 1, as in axolotl
    const RunConfig one = parse(streams + "  streaming_min_groups: " + least + "\n");
    CHECK(one.trl.groups_in_a_piece() == 1);
    CHECK(one.warnings.empty());
  }
  CHECK(config.trl.groups_in_a_piece() == 3);
  CHECK(parse(asynchronous).trl.groups_in_a_piece() == 0);
  CHECK_FALSE(parse(asynchronous).settings.contains("trl.streaming_partial_batch"));
  const auto refused = [](const std::string& text, const std::string& name) {
    return lacks(error_of(text), {"config.8", "trl.streaming_partial_batch does not go with", name});
  };
  CHECK(refused(streams + "  scale_rewards: batch\n", "trl.scale_rewards: batch") == "");
  CHECK(refused(streams + "  multi_objective_aggregation: normalize_then_sum\n", "normalize_then_sum") == "");
  CHECK(refused(streams + "  advantage_estimator: reinforce_pp\n", "reinforce_pp") == "");
  CHECK(refused(streams + "  advantage_estimator: leave_one_out\n  normalize_advantages: true\n",
                "normalize_advantages") == "");
  CHECK(refused(streams + "  entropy_coef: 0.01\n", "entropy bonus") == "");
  CHECK(lacks(warning_of(streams + "  replay_buffer_size: 8\n"),
              {"trl.streaming_partial_batch (c.yaml:1", "whole generations", "replay_buffer_size"}) == "");
  std::string gdpo = streams;
  gdpo.replace(gdpo.find("rl: grpo"), 8, "rl: gdpo");
  CHECK(refused(gdpo, "rl: gdpo") == "");
  for (const char* fits : {"  scale_rewards: group\n", "  scale_rewards: none\n", "  loss_type: bnpo\n",
                           "  advantage_estimator: leave_one_out\n", "  reroll_start_fraction: 0.5\n"})
    CHECK(error_of(streams + fits) == "nothing");
}

TEST_CASE("the schedule of asynchronous generation") {
  const std::string asynchronous = minimal + "  async_prefetch: true\n";
  CHECK(parse(asynchronous).trl.async_schedule == "live");
  const RunConfig config = parse(asynchronous + "  async_schedule: recorded\n  async_schedule_file: a/b.jsonl\n");
  CHECK(config.trl.async_schedule == "recorded");
  CHECK(config.trl.async_schedule_file == "a/b.jsonl");
  CHECK(lacks(error_of(asynchronous + "  async_schedule: later\n"), {"async_schedule", "recorded"}) == "");
  CHECK(warning_of(minimal + "  async_schedule: record\n").find("async_prefetch") != std::string::npos);
}

TEST_CASE("asynchronous generation: what cannot be") {
  const std::string asynchronous = minimal + "  async_prefetch: true\n";
  CHECK(lacks(error_of(asynchronous + "  prefetch_depth: -1\n"),
              {"config.6", "trl.prefetch_depth", "from 0 to 1024"}) == "");
  CHECK(lacks(error_of(asynchronous + "  vllm_sync_interval: -2\n"), {"config.6", "trl.vllm_sync_interval"}) == "");
  CHECK(lacks(error_of(asynchronous + "  max_staleness: -1\n"), {"config.6", "trl.max_staleness"}) == "");
  CHECK(lacks(error_of(asynchronous + "  prefetch_depth: 2\n  vllm_sync_interval: 3\n  max_staleness: 3\n"),
              {"config.8", "trl.max_staleness is smaller", "found 3", "4 or more"}) == "");
  CHECK(error_of(asynchronous + "  prefetch_depth: 2\n  vllm_sync_interval: 3\n  max_staleness: 4\n") == "nothing");
  // Two optimizer steps to a generation, so its rows are at least two updates behind.
  CHECK(lacks(error_of(asynchronous + "  max_staleness: 1\n  num_iterations: 2\n"), {"config.8", "2 or more"}) == "");
  CHECK(lacks(warning_of(asynchronous + "  vllm_sync_interval: 5\n", {"--max_steps=5"}),
              {"trl.vllm_sync_interval (c.yaml:10) is never reached", "5 steps"}) == "");
  CHECK(parse(asynchronous + "  vllm_sync_interval: 4\n", {"--max_steps=5"}).warnings.empty());
  CHECK(lacks(error_of(asynchronous + "  replay_buffer_size: -4\n"), {"config.6", "replay_buffer_size"}) == "");
  CHECK(lacks(error_of(asynchronous + "  replay_buffer_size: 4\n  replay_max_age: -1\n"), {"config.6", "max_age"}) ==
        "");
  CHECK(lacks(error_of(asynchronous + "  reroll_start_fraction: 1.5\n"), {"config.6", "reroll_start_fraction"}) == "");
  CHECK(lacks(error_of(asynchronous + "  reroll_start_fraction: 0.5\n  reroll_max_groups: 0\n"),
              {"config.6", "reroll_max_groups"}) == "");
  CHECK(parse(asynchronous + "  reroll_start_fraction: 1.0\n").warnings.empty());
  CHECK(lacks(error_of(asynchronous + "  vllm_importance_sampling_clip_max: null\n"), {"config.8", "truncates"}) == "");
  std::string preference = minimal;
  preference.replace(preference.find("rl: grpo"), 8, "rl: dpo ");
  CHECK(lacks(error_of(preference + "  async_prefetch: true\n"), {"config.10", "async_prefetch"}) == "");
}
