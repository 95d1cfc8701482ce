// Settings of preference methods: axolotl's top-level keys, and TRL's argument names in the `trl:` section.
//
// A field has the name of its key. Unset numbers have TRL's defaults; beta is RunConfig::beta. Which keys go with which method is in
// their rows; a key of other methods is refused.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/config/methods.hpp>

namespace rlalgo::config {

struct PreferenceConfig {
  // Loss
  std::vector<std::string> dpo_loss_type;  // names of pair_objectives() in config/methods.hpp; empty = sigmoid
  std::vector<double> dpo_loss_weights;    // empty = all 1
  double dpo_label_smoothing = 0.0;
  bool dpo_use_weighting = false;
  std::string f_divergence_type = "reverse_kl";
  double f_alpha_divergence_coef = 0.5;
  std::optional<double> ld_alpha;
  double discopop_tau = 0.05;
  std::string loss_type;  // trl.loss_type of kto, cpo and simpo; empty = the first of its recipe (config/methods.hpp)
  double kto_desirable_weight = 1.0;
  double kto_undesirable_weight = 1.0;
  double cpo_alpha = 1.0;
  double simpo_gamma = 0.5;
  double alpha = 0.0;

  // Reference
  bool precompute_ref_log_probs = false;
  std::optional<bool> rl_adapter_ref_model;
  std::optional<std::int64_t> precompute_ref_batch_size;  // micro_batch_size unless set
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.6;
  std::int64_t ref_model_sync_steps = 512;

  // Data
  std::int64_t sequence_len = 512;
  std::string excess_length_strategy = "drop";
  std::string truncation_mode = "keep_start";
  bool skip_prepare_dataset = false;  // no length filter, no deduplication
  std::optional<std::string> dataset_prepared_path;
  bool keeps_prepared = true;  // derived: false where nothing is to be written (a dry run)
};

namespace detail {

// A list of words, none of which is taken where one is not known. On the command line one word is a list.
inline void read_objectives(const Node& node, std::vector<std::string>& out) {
  if (node.kind == Kind::string && !node.place.command_line())
    raise_type("dpo_loss_type", node, "a list, one item per line after a dash");
  std::vector<std::string> names;
  convert(node, "dpo_loss_type", names);
  const std::vector<std::string> known = names_of(pair_objectives()).known;
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      raise_word("dpo_loss_type", name, name, node.place, known);
  out = std::move(names);
}

}  // namespace detail

// clang-format off
// `losses`: the words of trl.loss_type that the recipe has.
[[nodiscard]] inline Keys preference_keys(PreferenceConfig& p, const Names& losses) {
  constexpr std::string_view referred = "dpo ipo kto", pairs = "dpo ipo", contrastive = "simpo cpo";
  const Gate synced = where([&p] { return p.sync_ref_model; }, "trl.sync_ref_model is not on");
  const Gate likely = where([&p] { return p.loss_type != "alphapo"; }, "trl.loss_type: alphapo has no likelihood term");
  Keys out = {
    key("dpo_loss_type", p.dpo_loss_type, "objectives of a pair, added up: sigmoid, hinge, ipo, exo_pair, nca_pair, robust, bco_pair, "
        "sppo_hard, aot, aot_unpaired, discopop, apo_zero, apo_down, sft, sigmoid_norm").by("list of words",
        [&p](const Node& node) { detail::read_objectives(node, p.dpo_loss_type); }).shows("[sigmoid]").of_recipe("dpo"),
    key("dpo_loss_weights", p.dpo_loss_weights, "one weight per objective").within(any_number).shows("all 1").of_recipe("dpo"),
    key("dpo_label_smoothing", p.dpo_label_smoothing, "of exo_pair, robust, aot, aot_unpaired; cpo and simpo").within(at_least(0).below(1)),
    key("trl.label_smoothing", p.dpo_label_smoothing, "").same_as("dpo_label_smoothing"),
    key("dpo_use_weighting", p.dpo_use_weighting, "pairs weighted by the policy (WPO)").of_recipe(pairs),
    key("kto_desirable_weight", p.kto_desirable_weight, "weight of answers marked good").within(at_least(0)).of_recipe("kto"),
    key("kto_undesirable_weight", p.kto_undesirable_weight, "weight of answers marked bad").within(at_least(0)).of_recipe("kto"),
    key("trl.desirable_weight", p.kto_desirable_weight, "").same_as("kto_desirable_weight").of_recipe("kto"),
    key("trl.undesirable_weight", p.kto_undesirable_weight, "").same_as("kto_undesirable_weight").of_recipe("kto"),
    key("cpo_alpha", p.cpo_alpha, "weight of the likelihood term").within(at_least(0)).used(likely).of_recipe(contrastive),
    key("trl.cpo_alpha", p.cpo_alpha, "").same_as("cpo_alpha").used(likely).of_recipe(contrastive),
    key("simpo_gamma", p.simpo_gamma, "margin that chosen should have over rejected").within(at_least(0)).of_recipe(contrastive),
    key("trl.simpo_gamma", p.simpo_gamma, "").same_as("simpo_gamma").of_recipe(contrastive),
    key("trl.f_divergence_type", p.f_divergence_type, "how far from the reference").one_of({"reverse_kl", "forward_kl", "js_divergence",
        "alpha_divergence"}).of_recipe(pairs),
    key("trl.f_alpha_divergence_coef", p.f_alpha_divergence_coef, "α of alpha_divergence").within(any_number)
        .used(where([&p] { return p.f_divergence_type == "alpha_divergence"; }, "trl.f_divergence_type is another")).of_recipe(pairs),
    key("trl.ld_alpha", p.ld_alpha, "weight of the tokens beyond the shorter answer").within(fraction).of_recipe(pairs),
    key("trl.discopop_tau", p.discopop_tau, "temperature of discopop").within(positive)
        .used(where([&p] { return std::count(p.dpo_loss_type.begin(), p.dpo_loss_type.end(), "discopop") > 0; },
        "dpo_loss_type has no discopop")).of_recipe(pairs),
    key("trl.alpha", p.alpha, "shape of AlphaPO").within(any_number).used(where([&p] { return p.loss_type == "alphapo"; },
        "trl.loss_type is not alphapo")).of_recipe(contrastive),
  };
  if (!losses.known.empty())
    out.push_back(key("trl.loss_type", p.loss_type, "kto: kto, apo_zero_unpaired; cpo: sigmoid, hinge, ipo, simpo, alphapo; simpo: simpo, "
        "alphapo").one_of(losses.known).of_recipe("kto simpo cpo"));
  for (Key& row : Keys{
    key("sequence_len", p.sequence_len, "tokens of prompt and answer").within(count(2)),
    key("trl.max_length", p.sequence_len, "").same_as("sequence_len"),
    key("excess_length_strategy", p.excess_length_strategy, "what becomes of longer rows").by("drop, truncate, raise",
        [&p](const Node& node) {
      static const std::vector<std::string> known = {"drop", "truncate", "raise"};
      std::string word;
      detail::convert(node, "excess_length_strategy", word);
      std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return std::tolower(c); });
      if (std::find(known.begin(), known.end(), word) == known.end())
        detail::raise_word("excess_length_strategy", word, word, node.place, known);
      p.excess_length_strategy = word;
    }),
    key("trl.truncation_mode", p.truncation_mode, "which end stays where `skip_prepare_dataset` leaves long rows").one_of({"keep_start",
        "keep_end"}),
    key("skip_prepare_dataset", p.skip_prepare_dataset, "no length filter"),
    key("dataset_prepared_path", p.dataset_prepared_path, "tokenized rows and reference log-probs are kept there and read again; `rlalgo "
        "preprocess` fills it").a_path().free(resume::place),
    key("precompute_ref_log_probs", p.precompute_ref_log_probs, "the reference's log-probs are computed before training")
        .of_recipe(referred),
    key("rl_adapter_ref_model", p.rl_adapter_ref_model, "false: the bare base is the reference of a continued adapter (`lora_model_dir`), "
        "too; else it is the adapter as it starts").shows("true").of_recipe(referred),
    key("trl.precompute_ref_batch_size", p.precompute_ref_batch_size, "rows at once").within(count(1))
        .used(where([&p] { return p.precompute_ref_log_probs; }, "precompute_ref_log_probs is not on")).shows("`micro_batch_size`").free({
        "the same log-probs, so many at once"}),
    key("trl.sync_ref_model", p.sync_ref_model, "the reference follows the policy, by the next two").of_recipe(referred),
    key("trl.ref_model_mixup_alpha", p.ref_model_mixup_alpha, "share of the policy in the new reference").within(fraction).used(synced),
    key("trl.ref_model_sync_steps", p.ref_model_sync_steps, "optimizer steps between two of them").within(count(1)).used(synced),
       })
    out.push_back(std::move(row));
  constexpr std::string_view plain = "sequences have no padding, logits are never materialised";
  out.push_back(key("dpo_use_liger_kernel", "").without_effect(plain).of_recipe("dpo"));
  for (const char* name : {"dpo_padding_free", "pad_to_multiple_of", "trl.padding_free", "trl.use_logits_to_keep"})
    out.push_back(key(name, "").without_effect(plain));
  return out;
}
// clang-format on

}  // namespace rlalgo::config
