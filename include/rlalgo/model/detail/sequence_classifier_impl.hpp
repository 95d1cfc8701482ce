// Definitions of sequence_classifier.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/sequence_classifier.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

RLALGO_INLINE bool is_sequence_classifier(const std::filesystem::path& directory) {
  if (!os::is_regular_file(directory / "config.json")) return false;
  const Json json = detail::read_json_file(directory / "config.json");
  const auto list = json.find("architectures");
  return list != json.end() && list->is_array() && !list->empty() && list->front().is_string() &&
         list->front().get<std::string>().ends_with("ForSequenceClassification");
}

RLALGO_INLINE std::unique_ptr<SequenceClassifier> load_sequence_classifier(const std::filesystem::path& directory,
                                                                           at::ScalarType dtype, at::Device device) {
  const std::string where = (directory / "config.json").string();
  Json json = detail::read_json_file(directory / "config.json");
  if (!is_sequence_classifier(directory))
    core::raise("model", 10,
                {.what = "the model is no sequence classifier",
                 .found = "architectures " + json.value("architectures", Json::array()).dump(),
                 .expected = "LlamaForSequenceClassification or another …ForSequenceClassification",
                 .where = where});
  std::string architecture = json.at("architectures").at(0).get<std::string>();
  architecture.replace(architecture.size() - std::string("ForSequenceClassification").size(), std::string::npos,
                       "ForCausalLM");
  json["architectures"] = Json::array({architecture});
  json["tie_word_embeddings"] = true;  // no head over the vocabulary is in the files
  HfConfig hf = parse_hf_config(std::move(json), where);
  if (hf.quantised_compute)
    core::raise("model", 11,
                {.what = "a classifier with quantised weights is not read here",
                 .found = "quant_method bitsandbytes",
                 .where = (directory / "config.json").string() + ", quantization_config",
                 .remedy = "take its unquantised checkpoint"});
  const CheckpointFiles files(directory);
  DecoderWeights weights;
  weights.layers.resize(static_cast<std::size_t>(hf.decoder.layers));
  const auto convert = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const auto place = files.places().find(name);
    if (place == files.places().end())
      core::raise(
          "model", 19,
          {.what = "a tensor is missing from the checkpoint", .found = "no " + name, .where = directory.string()});
    const std::vector<std::int64_t>& found = place->second.entry->shape;
    const bool fits = found == shape || (name == "score.weight" && found.size() == 2 && found[1] == shape[1]);
    if (!fits)
      core::raise("model", 21,
                  {.what = "a tensor has a wrong shape",
                   .found = detail::shape_text(found),
                   .expected = detail::shape_text(shape) + " by config.json",
                   .where = place->second.file->path().string() + ", tensor " + name});
    return files.convert(name, dtype).to(device);
  };
  visit_weights(hf.decoder, weights,
                [&](const std::string& name, Tensor& value, const std::vector<std::int64_t>& shape, WeightRole) {
                  value = convert(name, shape).requires_grad_(false);
                });
  Tensor score = convert("score.weight", {1, hf.decoder.hidden_size});
  std::set<std::string> read{"score.weight"};
  visit_weights(hf.decoder, weights,
                [&](const std::string& name, const auto&, const auto&, WeightRole) { read.insert(name); });
  std::vector<std::string> unread;
  for (const auto& [name, place] : files.places())
    if (!read.contains(name) && !name.ends_with("rotary_emb.inv_freq")) unread.push_back(name);
  if (!unread.empty())
    core::raise("model", 20,
                {.what = std::to_string(unread.size()) + " tensors of the checkpoint have no place in the model",
                 .found = detail::place_list(files, unread),
                 .where = directory.string(),
                 .remedy = "a classifier has a backbone and score.weight; remove what it does not use"});
  return std::make_unique<SequenceClassifier>(Decoder(std::move(hf), std::move(weights)), std::move(score));
}

RLALGO_INLINE std::vector<float> SequenceClassifier::first_logits(std::span<const std::vector<std::int32_t>> rows) {
  const c10::NoGradGuard no_grad;
  std::vector<float> out;
  for (std::size_t begin = 0, end = 0; begin < rows.size(); begin = end) {
    std::int64_t tokens = 0;
    std::vector<Sequence> pass;
    static constexpr std::int32_t after_the_end[] = {0};  // what would be predicted; only its place is used
    for (end = begin; end < rows.size(); ++end) {
      tokens += static_cast<std::int64_t>(rows[end].size());
      if (end > begin && tokens > config_.tokens_per_pass) break;
      pass.push_back({.prompt = rows[end], .completion = after_the_end});
    }
    const TokenTree tree = build_tree(pass, {});
    const Tensor places =
        tensor::from_values(tree.source, at::TensorOptions().dtype(at::kLong).device(backbone_.device()));
    const Tensor last = backbone_.hidden_states(tree).index_select(0, places);  // [rows, H]
    const Tensor logits =
        tensor::mm(last, score_.t()).to(at::Device(at::kCPU), at::kFloat).contiguous();  // [rows, labels]
    const float* values = logits.const_data_ptr<float>();
    for (std::size_t r = 0; r < pass.size(); ++r) out.push_back(values[static_cast<std::int64_t>(r) * labels()]);
  }
  return out;
}

}  // namespace rlalgo::model
