// The `ebft:` section.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/config/detail/read_rows.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/run_config.hpp>

namespace rlalgo::config::detail {

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
  const Keys rows = ebft_keys(e);
  read_rows(reader, rows);
  const Node *one = section->find("whitening"), *other = section->find("whitening_space");
  if (reader.given("whitening") && reader.given("whitening_space") && one->text != other->text)
    reader.refuse(8, {.what = "ebft.whitening and ebft.whitening_space say different things",
                      .found = one->text + " and " + other->text,
                      .where = one->place.text(),
                      .remedy = "remove ebft.whitening"});
  const MatchingMode& mode = *find_row(matching_modes(), e.mode);
  if (mode.strided) read_row(top, document_length_key(e));
  if (mode.strided) judge_strided(top, e);
  auto& warnings = top.findings().warnings;
  for (const Key& row : rows)
    if (!row.modes.empty() && !among(e.mode, row.modes) && reader.given(own_name(reader, row.name)))
      warnings.push_back(std::string(row.name) + " has no effect with ebft.mode: " + e.mode);
  if (std::set<double>(e.feature_layers.begin(), e.feature_layers.end()).size() < e.feature_layers.size())
    warnings.push_back("ebft.feature_layers names a layer more than once: it counts as often");
  reader.finish();
}

}  // namespace rlalgo::config::detail
