// The `ebft:` section.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

inline void read_ebft_keys(Reader& reader, EbftConfig& e) {
  read_name(reader, "mode", e.mode, names_of(matching_modes()));
  reader.read("feature_layers", e.feature_layers);
  reader.read("feature_model", e.feature_model);
  reader.read_choice("feature_normalization", e.feature_normalization, {"joint", "per_layer"});
  read_name(reader, "embed_method", e.embed_method, names_of(poolings()));
  reader.read("use_whitening", e.use_whitening);
  const std::vector<std::string> spaces = {"feature", "sample"};
  reader.read_choice("whitening_space", e.whitening_space, spaces);
  if (std::string other = e.whitening_space; reader.read_choice("whitening", other, spaces)) {
    if (reader.given("whitening_space") && other != e.whitening_space)
      reader.refuse(8, {.what = "ebft.whitening and ebft.whitening_space say different things",
                        .found = other + " and " + e.whitening_space,
                        .where = reader.section().find("whitening")->place.text(),
                        .remedy = "remove ebft.whitening"});
    e.whitening_space = other;
  }
  reader.read("alignment_coef", e.alignment_coef);
  reader.read("diversity_coef", e.diversity_coef);
  reader.read("rl_coef", e.rl_coef);
  reader.read("ce_coef", e.ce_coef);
  read_name(reader, "advantage_estimator", e.advantage_estimator, names_of(matching_estimators()));
  reader.read("adaptive_max_tokens", e.adaptive_max_tokens);
  reader.read("gt_length_multiplier", e.gt_length_multiplier);
  reader.read("stride", e.stride);
  reader.read("context_length", e.context_length);
  reader.read("generate_max_len", e.generate_max_len);
  reader.read("n_samples_per_prompt", e.n_samples_per_prompt);
  reader.read("min_completion_prefix", e.min_completion_prefix);
  reader.read("temperature", e.temperature);
  reader.read("top_p", e.top_p);
  reader.read("mask_thinking_ce", e.mask_thinking_ce);
  reader.read("pack_documents", e.pack_documents);
  reader.read("document_masking", e.document_masking);
  reader.read("save_rollouts", e.save_rollouts);
}

// What does not go together in a strided run; `top` is the file, `e` is read. (Of torch_compile and attention kernels, which
// axolotl refuses beside checkpoints, nothing is here: they have no effect.)
inline void judge_strided(Reader& top, const EbftConfig& e) {
  if (e.document_masking && !e.pack_documents)
    top.refuse(8, {.what = "ebft.document_masking is about the texts of a chunk, and nothing is packed",
                   .where = top.section().find("ebft")->place.text(),
                   .remedy = "set ebft.pack_documents: true, or remove ebft.document_masking"});
  const double first = static_cast<double>(e.context_length + e.generate_max_len);
  const double blocks =
      std::max(0.0, std::floor((static_cast<double>(e.sequence_len) - first) / static_cast<double>(e.stride)) + 1.0);
  const double drawn = blocks * static_cast<double>(e.generate_max_len);
  const auto n = static_cast<double>(e.n_samples_per_prompt);
  if (e.stride > 0 && n * (static_cast<double>(e.sequence_len) + drawn) > 20000.0)
    top.findings().warnings.push_back(
        "a document of sequence_len tokens takes " +
        std::to_string(static_cast<std::int64_t>(std::min(static_cast<double>(e.sequence_len) + n * drawn, 1e18))) +
        " tokens in one pass: a larger ebft.stride, a shorter ebft.generate_max_len or fewer ebft.n_samples_per_prompt "
        "need less memory");
  if (const Node* trl = top.section().find("trl"); trl != nullptr)
    for (const Member& member : trl->members)
      if (member.key != "shuffle_dataset" && member.key != "chat_template_kwargs" && member.value.kind != Kind::null)
        top.findings().warnings.push_back("trl." + member.key + " (" + member.place.text() +
                                          ") has no effect with ebft.mode: strided");
}

// The section of a recipe that matches features; `top` is the file.
inline void read_ebft(Reader& top, EbftConfig& e, const std::string& file) {
  const Node* section = top.take("ebft");
  if (section == nullptr || section->kind != Kind::mapping) {
    top.refuse(7, {.what = "rl: ebft needs a section ebft",
                   .expected = "ebft: {mode: structured} or ebft: {mode: strided}",
                   .where = section == nullptr ? file : section->place.text()});
    return top.findings().refusals.distrust("ebft.");
  }
  Reader reader(*section, "ebft.", top.findings());
  read_ebft_keys(reader, e);
  const MatchingMode& mode = *find_row(matching_modes(), e.mode);
  if (mode.strided) top.read("sequence_len", e.sequence_len);
  if (mode.strided) judge_strided(top, e);
  auto& warnings = top.findings().warnings;
  for (const MatchingMode& other : matching_modes())
    for (const std::string_view key : other.keys) {
      const std::string name(key.substr(key.find('.') + 1));
      if (reads(mode, key) || !reader.given(name)) continue;
      warnings.push_back("ebft." + name + " has no effect with ebft.mode: " + e.mode);
    }
  if (std::set<double>(e.feature_layers.begin(), e.feature_layers.end()).size() < e.feature_layers.size())
    warnings.push_back("ebft.feature_layers names a layer more than once: it counts as often");
  reader.finish();
}

}  // namespace rlalgo::config::detail
