// The model that a server serves, and what it is called.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/serve/sampling_defaults.hpp>
#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::serve {

struct ServedModel {
  std::string name;         // in /v1/models and in requests
  std::string root;         // where it came from
  std::string parent = {};  // of an adapter that is served as the model: its base; empty: it is none
  std::shared_ptr<const model::Decoder> decoder;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat_template = {};
  std::vector<data::TokenId> stop_ids = {};  // end ids of the model
  std::int64_t max_model_len = 0;            // tokens of prompt and completion; 0 = max_position_embeddings
  SamplingDefaults sampling = {};            // of requests of OpenAI's and vLLM's routes
  std::shared_ptr<const model::DecoderWeights> weights = {};  // to begin with; null: those of `decoder`
  bool any_name = false;  // a name that nothing has is the model's: requests come from programs that call it their way

  [[nodiscard]] std::int64_t length_limit() const {
    const std::int64_t most = decoder->config().context_length();
    return max_model_len > 0 && max_model_len < most ? max_model_len : most;
  }
};

}  // namespace rlalgo::serve
