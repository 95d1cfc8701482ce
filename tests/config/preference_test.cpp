#include <support/scratch.hpp>

#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/preference.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

RunConfig parse(const std::string& rl, const std::string& more = "") {
  Document document = parse_document("base_model: ./m\nrl: " + rl +
                                         "\ndatasets: [{path: rows.jsonl, type: chatml.intel}]\nlearning_rate: 1e-6\n"
                                         "micro_batch_size: 2\n" +
                                         more,
                                     "c.yaml");
  return parse_run_config(document);
}
std::string error_of(const std::string& rl, const std::string& more) {
  return raised_by([&] { (void)parse(rl, more); });
}

// What a loss is and needs, told by its type.
struct Kind {
  rlalgo::loss::Needs needs;
  rlalgo::loss::RowKind rows;
};
Kind kind_of(const RunConfig& c) {
  return with_preference_loss(c, []<class L>(L) { return Kind{L::needs, L::rows}; });
}

}  // namespace

TEST_CASE("every recipe is the loss it names") {
  using rlalgo::loss::RowKind;
  CHECK(kind_of(parse("dpo")).needs.reference_log_prob);
  CHECK_FALSE(kind_of(parse("dpo")).needs.collision);
  CHECK(kind_of(parse("dpo", "dpo_use_weighting: true\n")).needs.collision);
  CHECK(kind_of(parse("kto")).rows == RowKind::unpaired);
  CHECK(kind_of(parse("kto")).needs.mismatched);
  CHECK_FALSE(kind_of(parse("kto", "trl: {loss_type: apo_zero_unpaired}\n")).needs.mismatched);
  CHECK(kind_of(parse("orpo")).needs.prompt_likelihood);
  CHECK_FALSE(kind_of(parse("simpo")).needs.reference_log_prob);
  CHECK(kind_of(parse("cpo", "trl: {loss_type: hinge}\n")).rows == RowKind::pairs);
  CHECK(needs_reference(parse("kto")));
  CHECK_FALSE(needs_reference(parse("orpo")));
}

TEST_CASE("beta: trl.beta, else rl_beta, else orpo_alpha, else 0.1") {
  CHECK(parse("dpo").beta == 0.1);
  CHECK(parse("orpo", "orpo_alpha: 0.3\n").beta == 0.3);
  CHECK(parse("orpo", "orpo_alpha: 0.3\nrl_beta: 0.2\n").beta == 0.2);
  CHECK(parse("dpo", "rl_beta: 0.2\ntrl: {beta: 0.4}\n").beta == 0.4);
  CHECK(parse("dpo", "dpo_beta: 0.6\n").beta == 0.6);
}

TEST_CASE("alphapo is simpo without the likelihood term; ipo is dpo with its loss") {
  const RunConfig alpha = parse("cpo", "trl: {loss_type: alphapo, alpha: 0.25}\n");
  CHECK(alpha.preference.loss_type == "alphapo");
  CHECK(alpha.preference.cpo_alpha == 0.0);
  CHECK(alpha.preference.alpha == 0.25);
  const RunConfig ipo = parse("ipo");
  CHECK(ipo.preference.dpo_loss_type == std::vector<std::string>{"ipo"});
  CHECK(ipo.warnings.size() == 1);
  CHECK(parse("simpo").preference.simpo_gamma == 0.5);
  CHECK(parse("kto", "kto_undesirable_weight: 0\n").preference.kto_undesirable_weight == 0.0);
}

TEST_CASE("label smoothing that no loss reads is a warning; the reference of an adapter can be the bare base") {
  const auto warnings = [](const std::string& rl, const std::string& more) { return parse(rl, more).warnings.size(); };
  CHECK(warnings("dpo", "dpo_label_smoothing: 0.1\n") == 1);
  CHECK(warnings("dpo", "dpo_label_smoothing: 0.1\ndpo_loss_type: [sigmoid, robust]\n") == 0);
  CHECK(warnings("cpo", "trl: {label_smoothing: 0.1}\n") == 0);
  CHECK(warnings("dpo", "") == 0);
  CHECK_FALSE(parse("dpo").preference.rl_adapter_ref_model.has_value());
  CHECK(parse("kto", "rl_adapter_ref_model: false\n").preference.rl_adapter_ref_model == false);
  CHECK(lacks(error_of("orpo", "rl_adapter_ref_model: true\n"), {"config.8: "}) == "");
}

TEST_CASE("invalid combinations have their numbers") {
  const auto check = [](const std::string& rl, const std::string& more, const std::string& number,
                        const std::string& names) {
    INFO(rl << " " << more);
    CHECK(lacks(error_of(rl, more), {number + ": ", names}) == "");
  };
  check("ipo", "dpo_loss_type: [sigmoid]\n", "config.8", "dpo_loss_type");
  check("kto", "dpo_loss_weights: [1.0]\n", "config.8", "dpo_loss_weights");
  check("dpo", "dpo_loss_weights: [1.0]\n", "config.8", "dpo_loss_weights");
  check("dpo", "dpo_loss_type: [sigmoid, sft]\ndpo_loss_weights: [1.0]\n", "config.8", "dpo_loss_weights");
  check("dpo", "dpo_loss_type: sigmoid\n", "config.5", "dpo_loss_type");
  check("dpo", "dpo_loss_type: [sigmod]\n", "config.6", "sigmoid");
  check("dpo", "dpo_loss_type: [exo_pair]\n", "config.6", "dpo_label_smoothing");
  check("dpo", "dpo_loss_type: [robust]\ndpo_label_smoothing: 0.5\n", "config.6", "dpo_label_smoothing");
  check("dpo", "dpo_loss_type: [aot]\ndpo_use_weighting: true\n", "config.8", "dpo_use_weighting");
  check("dpo", "dpo_loss_type: [apo_zero]\ntrl: {f_divergence_type: js_divergence}\n", "config.8", "apo_zero");
  check("orpo", "precompute_ref_log_probs: true\n", "config.8", "precompute_ref_log_probs");
  check("dpo", "precompute_ref_log_probs: true\ntrl: {sync_ref_model: true}\n", "config.8", "trl.sync_ref_model");
  check("dpo", "rl_beta: 0\n", "config.6", "rl_beta");
  check("simpo", "warmup_ratio: 0.1\n", "config.8", "warmup_ratio");
  check("dpo", "warmup_ratio: 0.1\nwarmup_steps: 3\n", "config.8", "warmup_steps");
  check("kto", "remove_unused_columns: true\n", "config.8", "remove_unused_columns");
  check("kto", "eval_sample_packing: true\n", "config.8", "eval_sample_packing");
  check("kto", "micro_batch_size: 1\n", "config.11", "micro_batch_size");
  check("dpo", "sample_packing: true\n", "config.8", "sample_packing");
  check("dpo", "dpo_norm_loss: false\n", "config.13", "dpo_norm_loss");
  check("dpo", "rpo_alpha: 1.0\n", "config.13", "rpo_alpha");
  check("dpo", "trl: {loss_type: ipo}\n", "config.8", "dpo_loss_type");
  check("dpo", "simpo_gamma: 1.0\n", "config.8", "simpo_gamma");
  check("dpo", "excess_length_strategy: cut\n", "config.6", "truncate");
  check("dpo", "beta: 0.2\n", "config.8", "trl.beta");
  check("dpo", "dataset_exact_deduplication: true\nskip_prepare_dataset: true\n", "config.8", "skip_prepare_dataset");
}

TEST_CASE("keys of generation are named in a warning") {
  const RunConfig config = parse("dpo", "trl: {num_generations: 4}\ndpo_padding_free: true\n");
  REQUIRE(config.warnings.size() == 2);
  CHECK(config.warnings[1].find("trl.num_generations") != std::string::npos);
}
