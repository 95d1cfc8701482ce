// A decoder's first layer by itself: what a layer costs is a model of two less this.
#pragma once

#include <rlalgo/model/decoder.hpp>

namespace rlalgo::support {

// Shares the tensors of `decoder`, adapters among them.
inline model::Decoder first_layer_of(const model::Decoder& decoder) {
  auto hf = decoder.hf_config();
  auto weights = decoder.weights();
  hf.decoder.layers = 1;
  if (hf.decoder.specs.size() > 1) hf.decoder.specs.resize(1);
  weights.layers.resize(1);
  return model::Decoder(hf, weights);
}

}  // namespace rlalgo::support
