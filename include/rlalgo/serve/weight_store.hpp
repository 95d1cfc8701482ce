// The weights that requests are answered with: the base model's, and adapters by name. Each can be replaced while
// requests run; a request keeps what it began with to its end, so no completion mixes versions.
//
//   store.load_adapter("policy", directory, true);   reads files, checks them, and puts the new version in the old one's place
//   store.update(tensors);                           all of them or, where one does not fit, none
//   store.replace(weights);                          tensors of this process, which nobody writes to from here on
//   spec.weights = store.find("policy");
//
// Nothing is copied but what is replaced, and of that only what does not lie where the model does, or lies in host memory. Adapters stay over the base's new tensors; what an adapter brought itself
// (A, B, modules to save) stays as it is.
//
// find() from any thread; changes one at a time, from any thread but the engine's.
//
// Errors: [rlalgo.serve.16] an adapter of that name is loaded already (400); [.18] the adapter's files cannot be used
// (400, or 404 where there are none); [.5] no adapter of that name (404); [.19] a tensor without a place in the model, or
// of another shape or type (400).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rlalgo/inference/forward.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/serve/engine.hpp>

namespace rlalgo::serve {

class WeightStore {
 public:
  struct Adapter {
    std::string name;
    std::filesystem::path path;
    std::int64_t since = 0;  // seconds since 1970
  };

  // `engine` outlives the store, and runs on no weights but those of the store.
  // `weights`: to begin with, of that model; null: its own.
  WeightStore(std::shared_ptr<const model::Decoder> decoder, Engine& engine,
              std::shared_ptr<const model::DecoderWeights> weights = {});

  [[nodiscard]] inference::Forward::WeightsHandle base() const;
  // Null where there is no adapter of that name.
  [[nodiscard]] inference::Forward::WeightsHandle find(const std::string& adapter) const;
  [[nodiscard]] std::vector<Adapter> adapters() const;

  // `in_place`: in the place of one of that name.
  void load_adapter(const std::string& name, const std::filesystem::path& directory, bool in_place);
  void unload_adapter(const std::string& name);

  // Base tensors under the names of the checkpoint, of the model's type or another floating one. Those in the memory of a GPU that are
  // as the model's are become the model's: nobody writes to them from here on. `name`: of the version that they make; empty: its number.
  void update(const std::vector<model::NamedTensor>& tensors, const std::string& name = {});
  // All of the base's weights, adapter included, which stay as they are from here on; nothing is copied.
  void replace(std::shared_ptr<const model::DecoderWeights> weights, const std::string& name = {});
  // Where the model lies.
  [[nodiscard]] at::Device device() const;
  // Raises what update() would say of a tensor of that name and shape.
  void check(const std::string& name, const std::vector<std::int64_t>& shape) const;

  // Counts the updates, from 0; completions carry the one that they began with.
  [[nodiscard]] std::int64_t version() const;
  // What the trainer calls the weights; an update without a name calls them by their count. Names of the last
  // `most_names` versions are known, older ones are their numbers again.
  [[nodiscard]] std::string version_name() const;
  [[nodiscard]] std::string name_of(std::int64_t version) const;
  void name_version(std::string name);
  static constexpr std::size_t most_names = 4096;

  // Of a weight in 4 or 8 bits the tensor is without numbers (model::stand_in); numbers_of() has them.
  [[nodiscard]] std::vector<std::pair<std::string, tensor::Tensor>> named_tensors() const;
  [[nodiscard]] tensor::Tensor numbers_of(const std::string& name, const tensor::Tensor& value) const;

 private:
  using Weights = std::shared_ptr<const model::DecoderWeights>;
  struct Held {
    Adapter adapter;
    Weights weights;
    inference::Forward::WeightsHandle handle;
  };

  [[nodiscard]] Weights read(const std::filesystem::path& directory) const;
  // Views of new weights; `before` is forgotten by the prefix cache.
  [[nodiscard]] inference::Forward::WeightsHandle view(const Weights& weights, std::int64_t version) const;
  void forget(const inference::Forward::WeightsHandle& before) const;
  void remember_name(std::string name);  // of the version in force; with `mutex_` held
  // In the place of `from`, the base's, with adapters over it. While `changing_` is held.
  void put_in_force(const Weights& from, const Weights& next, const std::string& name);
  [[nodiscard]] Weights rebased(const model::DecoderWeights& adapted, const model::DecoderWeights& from,
                                const model::DecoderWeights& to) const;

  std::shared_ptr<const model::Decoder> decoder_;
  model::DecoderConfig untied_;  // lm_head as a tensor of its own
  Engine& engine_;
  std::mutex changing_;
  mutable std::mutex mutex_;  // of what follows
  Weights base_weights_;
  inference::Forward::WeightsHandle base_;
  std::map<std::string, Held> adapters_;
  std::int64_t version_ = 0;
  std::map<std::int64_t, std::string> names_;  // of versions that have one
};

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/weight_store_impl.hpp>
#endif
