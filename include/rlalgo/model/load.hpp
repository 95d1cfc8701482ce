// Builds a decoder: from a Hugging Face directory, or with fresh random weights.
//
// Files in bf16, f16 or f32 are converted to the compute dtype, one tensor at a time. Weights lie in memory of their own
// (tensor/large_pages.hpp), layer after layer; or, where they are asked for mapped, those of the compute dtype stay in the
// file's memory, and pages of them are copied when they are trained. On another device each tensor is converted on the host and
// copied there, one at a time; resident ones so that q, k and v of a layer lie one behind the other, and so do gate and up. Fresh weights are those of
// transformers' initialiser: matrices N(0, initializer_range²), norms 1, biases 0; drawn by Philox from (seed, tensor
// name's position, element), so that the same seed gives the same model everywhere.
//
// Of a model that config.json calls tied, the files may have the output embedding as well: equal to the input's it is
// the same tensor, another one is used, and the model is not tied then. One that they have alone is both. So does
// transformers (tie_weights).
//
// With LoadOptions::quantisation the linear maps of the layers are kept in 4 or 8 bits (quantised_weight.hpp): each is converted to the
// compute dtype, quantised and let go before the next. As in transformers 5 routers and, unless Quantisation::experts, the experts that they choose among stay whole, and
// embeddings, norms and biases; so does the output embedding here, whatever the patterns say. A checkpoint that bitsandbytes quantised is read
// as it is (quantised_files.hpp).
//
// Errors: [rlalgo.model.19] a tensor is missing; [.20] a tensor nobody expects; [.21] a tensor of a wrong shape; [.47] (usage)
// Quantisation::skip names nothing; and those of hf_config.hpp and checkpoint_files.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/checkpoint_files.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/hf_config.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/model/weight_names.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

[[nodiscard]] inline std::string shape_text(const std::vector<std::int64_t>& shape) { return Json(shape).dump(); }

[[nodiscard]] std::string name_list(const std::vector<std::string>& names);

// Tensors that checkpoints carry and no decoder reads: frequencies, which config.json gives, the twin of a tied
// embedding (untie_by_files() has compared it), and parts of a family's files that are not the model (DecoderConfig::unread).
[[nodiscard]] bool is_ignored_tensor(const std::string& name, const DecoderConfig& config);

// How the name begins, where it is that of such a part; else empty.
[[nodiscard]] std::string unread_part(const std::string& name, const DecoderConfig& config);

// "name (file)" of tensors, the first few.
[[nodiscard]] std::string place_list(const CheckpointFiles& files, const std::vector<std::string>& names);

// The tensor that holds a weight: lm_head.weight stands for the embedding of a tied model that lacks it.
[[nodiscard]] std::string stored_name(const CheckpointFiles& files, const DecoderConfig& config,
                                      const std::string& name);

}  // namespace detail

enum class WeightMemory {
  resident,  // fastest to compute with
  mapped,    // nothing is read before it is used
};
// Of a model that is read in this process; `sharded`: it keeps a part of it.
[[nodiscard]] constexpr WeightMemory memory_of_weights(bool sharded) {
  return sharded ? WeightMemory::mapped : WeightMemory::resident;
}

// Sets tie_word_embeddings to false where the files have an output embedding that differs from the input's in `dtype`.
void untie_by_files(HfConfig& hf, const CheckpointFiles& files, at::ScalarType dtype);

// Tensors of a checkpoint that are not part of the model (DecoderConfig::unread), by how their names begin.
[[nodiscard]] std::map<std::string, std::int64_t> unread_tensors(const std::filesystem::path& directory,
                                                                 const DecoderConfig& config);

struct LoadOptions {
  at::ScalarType dtype = at::ScalarType::Float;
  WeightMemory memory = WeightMemory::resident;  // on the CPU
  // Where the weights lie and are computed with (tensor/device.hpp chooses one by name).
  at::Device device = at::Device(at::kCPU);
  std::optional<Quantisation> quantisation = {};  // of weights that the files have whole
};

// Whether a map of a layer with this spec, at this path, is quantised.
[[nodiscard]] bool quantises(const Quantisation& how, const std::string& path, const LayerSpec& spec, bool routed);

[[nodiscard]] std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& directory, const LoadOptions& options);

[[nodiscard]] inline std::unique_ptr<Decoder> load_decoder(const std::filesystem::path& directory,
                                                           at::ScalarType dtype = at::ScalarType::Float,
                                                           WeightMemory memory = WeightMemory::resident) {
  return load_decoder(directory, LoadOptions{.dtype = dtype, .memory = memory});
}

// The decoder's shape comes from `hf` (parse_hf_config of a config.json, in a file or in code).
[[nodiscard]] std::unique_ptr<Decoder> random_decoder(HfConfig hf, std::uint64_t seed,
                                                      at::ScalarType dtype = at::ScalarType::Float);

// The decoder of a config.json whose weights have no elements: for questions about their names.
[[nodiscard]] std::unique_ptr<Decoder> outline_decoder(HfConfig hf);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/load_impl.hpp>
#endif
