// A decoder with a linear head on the last token of a sequence: Hugging Face's …ForSequenceClassification.
//
//   logit = W_score · h_last      h_last: hidden state after the final norm at the last token that is not padding
//
// Used as a reward model (one label). Scored without gradient; sequences that begin alike share the beginning, and a
// pass holds at most `tokens_per_pass` tokens. Architectures: those of hf_config.hpp (their heads have no bias).
// Shapes: score [labels, H]; logits [rows, labels] f32.
// Source: transformers, GenericForSequenceClassification.
// Errors: [rlalgo.model.10] the checkpoint is no sequence classifier; [.19] a tensor is missing; [.20] a tensor
// that nobody reads; [.21] one of a wrong shape; those of hf_config.hpp and checkpoint_files.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

class SequenceClassifier {
 public:
  struct Config {
    std::int64_t tokens_per_pass = 8192;
  };

  SequenceClassifier(Decoder backbone, Tensor score) : SequenceClassifier(std::move(backbone), std::move(score), {}) {}
  SequenceClassifier(Decoder backbone, Tensor score, Config config)
      : backbone_(std::move(backbone)), score_(std::move(score)), config_(config) {}

  [[nodiscard]] std::int64_t labels() const { return score_.size(0); }
  [[nodiscard]] const Decoder& backbone() const { return backbone_; }

  // The first logit of every row. Rows must not be empty.
  [[nodiscard]] std::vector<float> first_logits(std::span<const std::vector<std::int32_t>> rows);

 private:
  Decoder backbone_;
  Tensor score_;  // [labels, H]
  Config config_;
};

// Whether a directory's config.json names a …ForSequenceClassification.
[[nodiscard]] bool is_sequence_classifier(const std::filesystem::path& directory);

[[nodiscard]] std::unique_ptr<SequenceClassifier> load_sequence_classifier(const std::filesystem::path& directory,
                                                                           at::ScalarType dtype = at::ScalarType::Float,
                                                                           at::Device device = at::Device(at::kCPU));

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/sequence_classifier_impl.hpp>
#endif
