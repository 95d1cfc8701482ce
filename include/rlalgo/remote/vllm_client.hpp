// A generator that asks a server: TRL's vllm-serve, axolotl's, rlalgo's own, or stock vLLM. Which protocol it speaks is
// found out once, from its routes.
//
//   TRL's     POST /generate/ {"prompts": [[ids]…], "n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
//                              "max_tokens", "logprobs": 0, "generation_kwargs": {…}}
//             → {"completion_ids": [[ids]…] prompt-major, "logprobs": [[[x]…]…], "logprob_token_ids": [[[id]…]…]}
//   OpenAI's  POST /v1/completions {"model", "prompt": [[ids]…], "n", …, "logprobs": 0, "return_token_ids": true}
//             → {"choices": [{"index", "token_ids", "logprobs": {"token_logprobs"}, "finish_reason"}]}
//
// TRL's is spoken where both are; OpenAI's as open_ai_client.hpp does. The log-prob of a token is the entry of its own id (TRL's innermost lists are sorted by
// rank, not sampled-first). A completion is left without log-probs when the server sends none, a null (NaN) among them,
// or those of the model where the sampling draws from another distribution (vLLM without --logprobs-mode
// processed_logprobs). The first call waits for GET /health/, at most `start_seconds`.
//
// Draws are the server's: the key has no effect, and a resumed run samples anew. rlalgo's own server takes the key, so that
// it draws what LocalEngine would, and says the version of the weights of every completion: "v7" is the trainer's 7
// (sync/concept.hpp).
// Source: TRL 1.8, trl/scripts/vllm_serve.py; vLLM 0.32.
//
// Errors: [rlalgo.remote.10] an answer of the wrong shape; [rlalgo.remote.11] a token id outside the model's
// vocabulary; [rlalgo.remote.13] a server without a route that generates; those of open_ai_client.hpp and
// http/json_client.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/inference/generator.hpp>
#include <rlalgo/remote/detail/completion_reader.hpp>
#include <rlalgo/remote/open_ai_client.hpp>

namespace rlalgo::remote {

struct VllmConfig {
  http::ClientConfig server{};
  double start_seconds = 240.0;                        // how long the first call waits for the server
  std::function<void(const std::string&)> tell = {};   // hears that it does
  std::int64_t vocab_size = 0;                         // of the model that is trained; 0 = ids are not checked
  nlohmann::ordered_json generation_kwargs = nullptr;  // merged over the sampling parameters by the server
  std::string adapter = {};  // OpenAI's protocol: is asked where the server has it; else its first model
};

class VllmClient {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;

  explicit VllmClient(VllmConfig config)
      : config_(std::move(config)),
        client_(config_.server),
        reader_("POST " + client_.base_url() + "/generate/", config_.vocab_size) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key);

 private:
  enum class Protocol { unknown, trl, openai };
  using Completions = std::vector<std::vector<data::Completion>>;

  void find_out();
  [[nodiscard]] Json generation_kwargs(const inference::SamplingConfig& sampling) const;
  // Of prompts that want the same count and limit.
  void ask_trl(std::span<const inference::Request> requests, std::span<const std::size_t> chosen, std::size_t count,
               const inference::SamplingConfig& sampling, inference::DrawKey key, Completions& out);

  VllmConfig config_;
  http::JsonClient client_;
  detail::CompletionReader reader_;  // of TRL's protocol
  std::optional<OpenAiClient> openai_;
  Protocol protocol_ = Protocol::unknown;
  bool own_ = false;  // the server is rlalgo's
};

static_assert(inference::Generator<VllmClient>);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/vllm_client_impl.hpp>
#endif
