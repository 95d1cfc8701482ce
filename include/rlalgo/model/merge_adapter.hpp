// Writes the model that a base and an adapter make, shard by shard: one tensor in memory at a time.
//
//   W' = W + s·B A,   DoRA: (m / ‖W + s·B A‖)⊙(W + s·B A),   in float32, cast to the dtype of the base's file, or the one asked for
//
// W is what the adapter was trained on: of a base that bitsandbytes quantised what its codes stand for (bfloat16 is written then, where nothing
// else is asked for, and config.json no longer says that it is quantised); of a base that a training quantises (MergeOptions) the same of
// the maps that it quantises, with an adapter or without. Departure: axolotl quantises the embeddings, too, which its training does not, and
// always in nf4.
//
// The shards keep their names. Modules to save replace the base's, and so do embeddings beside the adapter, with their
// vocabulary. A tied output embedding that the adapter unties gets
// a tensor of its own, and config.json says so. Other files (config, generation_config …) come from the base directory;
// tokenizer and chat template from the adapter's where it has them, because training may have chosen them. The model card is of
// the merged model, not the base's. A merge that fails leaves nothing (run/final_files.hpp).
//
// Errors: [rlalgo.model.30] the adapter has a tensor without a place in the base; [.31] the target is the base or the
// adapter directory; and those of adapter_files.hpp and checkpoint_files.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/detail/expert_maps.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/lora_config.hpp>
#include <rlalgo/model/quantisation.hpp>
#include <rlalgo/model/quantised_files.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

struct MergeOptions {
  std::optional<Quantisation> quantisation = {};  // of the base when the adapter was trained
  at::ScalarType computed = at::kFloat;           // what its weights were converted to before
  std::optional<at::ScalarType> dtype = {};       // of the merged model; none: of the base's files
};

// What was lost when float32 numbers were written in a narrower dtype, over all tensors that were computed.
struct MergeReport {
  std::int64_t quantised = 0;  // maps of the base in 4 or 8 bits
  std::int64_t rounded = 0;    // numbers
  double largest = 0.0, sum = 0.0;
  std::string dtype = {};  // of the last one

  [[nodiscard]] double mean() const { return rounded == 0 ? 0.0 : sum / static_cast<double>(rounded); }
};

namespace detail {

class AdapterMerger {
 public:
  AdapterMerger(const std::filesystem::path& base, const std::filesystem::path& adapter, MergeOptions options);

  [[nodiscard]] const MergeReport& report() const { return report_; }

  void write(const std::filesystem::path& target);

 private:
  [[nodiscard]] std::string key(const std::string& path, const std::string& part) const;
  [[nodiscard]] bool holds(const std::string& name) const { return adapter_.contains(name); }

  // What an adapter of all experts adds to a map of one.
  struct ExpertDelta {
    std::string path;  // of the adapter
    std::int64_t expert, count;
    ExpertRows rows;
    double scale;
  };
  void find_expert_parts();
  [[nodiscard]] Tensor merged_expert(const Tensor& weight, const ExpertDelta& delta) const;

  // The base ties its embeddings and the adapter makes them differ.
  [[nodiscard]] bool untied() const;

  // The merged tensor `name`, made from the base's tensor `source`.
  [[nodiscard]] PendingTensor pending(const std::string& name, const std::string& source);

  void expect(const std::string& name, const std::vector<std::int64_t>& shape);

  // In float32.
  [[nodiscard]] Tensor merged(const Tensor& weight, const std::string& path, const LoraShape& shape) const;
  // What was computed, in the dtype that is written.
  [[nodiscard]] Tensor written(const Tensor& exact, at::ScalarType dtype);
  [[nodiscard]] bool is_in_bits(const std::string& source) const {
    return quantised_.contains(source) || to_quantise_.contains(source);
  }

  // The base's tensor, or the embedding that the adapter's file has instead.
  [[nodiscard]] Tensor base_tensor(const std::string& source) const;

  // Of the files, where the adapter's file has embeddings of the base.
  [[nodiscard]] AdapterEmbeddings embeddings_of_base() const;

  std::filesystem::path base_;
  HfConfig hf_;
  LoraConfig config_;
  CheckpointFiles files_;
  std::map<std::string, ExpertDelta> expert_parts_;  // by the name of what is changed
  QuantisedFiles quantised_;
  MergeOptions options_;
  MergeReport report_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;  // of quantised weights
  std::set<std::string> to_quantise_;
  AdapterTensors adapter_;
  AdapterEmbeddings own_;  // undefined: the base's
  std::set<std::string> used_;
};

// Files of a model directory that are neither weights nor of an adapter.
[[nodiscard]] std::vector<std::filesystem::path> side_files(const std::filesystem::path& directory);

[[nodiscard]] bool is_tokenizer_file(const std::string& name);

}  // namespace detail

MergeReport merge_adapter(const std::filesystem::path& base, const std::filesystem::path& adapter,
                          const std::filesystem::path& target, const MergeOptions& options = {});

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/merge_adapter_impl.hpp>
#endif
