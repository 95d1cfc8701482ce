// The frozen network whose hidden states are features: a model of its own, else the policy as it was read: a copy, or with an adapter the
// same tensors with the adapter off.
//
// Errors: [rlalgo.config.35] a model with another vocabulary; those of assembly/model_places.hpp and feature/network.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/assembly/sharding.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/feature/network.hpp>
#include <rlalgo/model/load.hpp>

namespace rlalgo::assembly {

struct FeatureNetworkConfig {
  std::optional<NamedModel> model = {};            // unset: the policy's base
  std::vector<double> layers = {0.25, 0.5, 0.75};  // relative depths
  feature::Normalization normalization = feature::Normalization::joint;
};

// `sharding` (or null) holds the policy, and then the network in the same way. `apart`: it shares no memory with the policy,
// which may be held otherwise.
[[nodiscard]] inline feature::FeatureNetwork feature_network(const FeatureNetworkConfig& c, const LanguageModel& model,
                                                             Sharding* sharding = nullptr, bool apart = false) {
  std::shared_ptr<model::Decoder> network;
  if (c.model) {
    const std::filesystem::path directory = c.model->directory();
    network = model::load_decoder(directory, {.dtype = model.decoder->dtype(),
                                              .memory = model::memory_of_weights(sharding != nullptr),
                                              .device = model.decoder->device()});
    network->set_trained(false);
    const std::int64_t found = network->config().vocab_size, expected = model.decoder->config().vocab_size;
    if (found != expected)
      core::raise("config", 35,
                  {.what = "the feature model has another vocabulary than the policy",
                   .found = std::to_string(found) + " ids",
                   .expected = std::to_string(expected),
                   .where = c.model->where,
                   .remedy = "name a model that shares the policy's tokenizer"});
    if (sharding != nullptr) sharding->hold_frozen(*network);
  } else {
    network = apart                                 ? model.decoder->without_adapter()->frozen_copy()
              : model.decoder->adapter() != nullptr ? model.decoder->without_adapter()
              : sharding != nullptr                 ? sharding->frozen_copy(*model.decoder)
                                                    : model.decoder->frozen_copy();
  }
  auto depths = feature::tap_depths(c.layers, network->config().layers);
  return {std::move(network), std::move(depths), c.normalization};
}

}  // namespace rlalgo::assembly
