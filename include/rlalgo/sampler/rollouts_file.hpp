// ebft_rollouts.jsonl: what every step of energy-based fine-tuning drew and how it was rewarded, so that anyone can
// compute a run again.
//
//   {"step", "mode": "strided", "document_ids", "prompt_length": int|null, "anchor", "stride", "loss_mask",
//    "blocks": [{"start", "samples": [[G ids] × n], "alignment": [n], "diversity": [n], "reward": [n], "advantage": [n]}]}
//   {"step", "mode": "structured", "prompt_ids", "ground_truth_ids",
//    "samples": [{"ids", "alignment", "diversity", "reward", "advantage"}]}
//   of a chunk whose texts do not see each other also "texts", where each begins
//   of a conversation each sample also has "feature_ids", the tokens that were embedded
//
// One line per document, or prompt, and step; steps count from 1. loss_mask: 1 = the document's token has a likelihood
// term; index 0 has no predictor. On the first write of a run, lines of that step and later ones are removed: a resumed
// run writes the file of one that was never interrupted.
// Errors: [rlalgo.os.1] the file cannot be read or written.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/sampler/strided_rows.hpp>

namespace rlalgo::sampler {

class RolloutsFile {
 public:
  static constexpr const char* name = "ebft_rollouts.jsonl";

  explicit RolloutsFile(const std::filesystem::path& output_dir) : path_(output_dir / name) {}

  void write(std::int64_t step, const std::vector<data::Json>& lines) {
    if (!begun_) keep_before(step);
    begun_ = true;
    std::string text;
    for (const data::Json& line : lines) text += line.dump() + "\n";
    std::ofstream file(path_, std::ios::app | std::ios::binary);
    file << text << std::flush;
    if (!file) os::raise_file_error("cannot write the file", path_, errno);
  }

 private:
  void keep_before(std::int64_t step) {
    std::filesystem::create_directories(path_.parent_path());
    std::string kept;
    std::ifstream file;
    if (os::is_regular_file(path_)) file.open(path_, std::ios::binary);
    for (std::string line; std::getline(file, line);) {
      const data::Json record = core::read_json<data::Json>(line).value;
      const bool whole = record.is_object() && record.contains("step") && record["step"].is_number_integer();
      if (whole && record["step"].get<std::int64_t>() < step) kept += line + "\n";
    }
    os::write_file(path_, kept);
  }

  std::filesystem::path path_;
  bool begun_ = false;
};

[[nodiscard]] inline data::Json rollout_record(std::int64_t step, const sampler::StridedDocument& row,
                                               std::int64_t stride) {
  data::Json mask = data::Json::array(), blocks = data::Json::array();
  for (const std::uint8_t m : row.document->loss_mask) mask.push_back(static_cast<int>(m != 0));
  for (const sampler::Block& block : row.blocks)
    blocks.push_back({{"start", block.start},
                      {"samples", block.samples},
                      {"alignment", block.alignment},
                      {"diversity", block.diversity},
                      {"reward", block.reward},
                      {"advantage", block.advantage}});
  data::Json out = {
      {"step", step},
      {"mode", "strided"},
      {"document_ids", row.document->ids},
      {"prompt_length", row.document->prompt_length ? data::Json(*row.document->prompt_length) : data::Json()},
      {"anchor", row.anchor},
      {"stride", stride},
      {"blocks", std::move(blocks)},
      {"loss_mask", std::move(mask)}};
  if (!row.document->texts.empty()) out["texts"] = row.document->texts;
  return out;
}

// Writes the documents of every step into `output_dir`, as trainer::StridedInputs::on_documents shows them.
[[nodiscard]] inline std::function<void(std::int64_t, const std::vector<StridedDocument>&)> document_records(
    const std::filesystem::path& output_dir, std::int64_t stride) {
  return [file = std::make_shared<RolloutsFile>(output_dir), stride](std::int64_t step,
                                                                     const std::vector<StridedDocument>& shown) {
    std::vector<data::Json> lines;
    for (const StridedDocument& row : shown) lines.push_back(rollout_record(step, row, stride));
    file->write(step, lines);
  };
}

// The rows of one prompt in turn are its samples; rewards are alignment and diversity with these weights.
// `truth_ids`: the ground truth of an episode as tokens.
[[nodiscard]] inline std::vector<data::Json> rollout_records(
    std::int64_t step, std::span<const data::EpisodeRow* const> rows, double alignment_coef, double diversity_coef,
    const std::function<std::vector<data::TokenId>(const data::Episode&)>& truth_ids) {
  std::vector<data::Json> out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const data::EpisodeRow& row = *rows[i];
    const data::Episode& r = row.episode();
    if (i == 0 || &*r.prompt != &*rows[i - 1]->episode().prompt)
      out.push_back({{"step", step},
                     {"mode", "structured"},
                     {"prompt_ids", row->prompt_ids},
                     {"ground_truth_ids", truth_ids(r)},
                     {"samples", data::Json::array()}});
    out.back()["samples"].push_back({{"ids", row->completion_ids},
                                     {"alignment", r.rewards.at(0)},
                                     {"diversity", r.rewards.at(1)},
                                     {"reward", alignment_coef * r.rewards[0] - diversity_coef * r.rewards[1]},
                                     {"advantage", r.advantage}});
    if (r.logged.is_object() && r.logged.contains("feature_ids") && !r.logged["feature_ids"].is_null())
      out.back()["samples"].back()["feature_ids"] = r.logged["feature_ids"];
  }
  return out;
}

}  // namespace rlalgo::sampler
