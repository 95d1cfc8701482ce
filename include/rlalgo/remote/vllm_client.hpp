// A generator that asks a server: TRL's vllm-serve, axolotl's, rlalgo's own, or stock vLLM. Which protocol it speaks is
// found out once, from its routes.
//
//   TRL's     POST /generate/ {"prompts": [[ids]…], "n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
//                              "max_tokens", "logprobs": 0, "generation_kwargs": {…}}
//             → {"completion_ids": [[ids]…] prompt-major, "logprobs": [[[x]…]…], "logprob_token_ids": [[[id]…]…]}
//   OpenAI's  POST /v1/completions {"model", "prompt": [[ids]…], "n", …, "logprobs": 0, "return_token_ids": true}
//             → {"choices": [{"index", "token_ids", "logprobs": {"token_logprobs"}, "finish_reason"}]}
//
// TRL's is spoken where both are. The log-prob of a token is the entry of its own id (TRL's innermost lists are sorted by
// rank, not sampled-first). A completion is left without log-probs when the server sends none, a null (NaN) among them,
// or those of the model where the sampling draws from another distribution (vLLM without --logprobs-mode
// processed_logprobs). The first call waits for GET /health/, at most `start_seconds`.
//
// Draws are the server's: the key has no effect, and a resumed run samples anew. rlalgo's own server takes the key, so that
// it draws what LocalEngine would, and says the version of the weights of every completion: "v7" is the trainer's 7
// (sync/concept.hpp).
// Source: TRL 1.8, scripts/vllm_serve.py; vLLM 0.32.
//
// Errors: [rlalgo.remote.10] an answer of the wrong shape; [rlalgo.remote.11] a token id outside the model's
// vocabulary; [rlalgo.remote.13] a server without a route that generates; those of http/json_client.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/http/json_client.hpp>
#include <rlalgo/inference/generator.hpp>

namespace rlalgo::remote {

struct VllmConfig {
  http::ClientConfig server;
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

  explicit VllmClient(VllmConfig config) : config_(std::move(config)), client_(config_.server) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key);

 private:
  enum class Protocol { unknown, trl, openai };

  // Of requests that go in one call: those that want the same count and limit.
  struct Batch {
    std::span<const inference::Request> requests;
    std::vector<std::size_t> chosen;  // of the requests
    std::size_t count = 1;
    inference::SamplingConfig sampling;
    inference::DrawKey key;
  };
  using Completions = std::vector<std::vector<data::Completion>>;

  void find_out();
  [[nodiscard]] std::string model_name();
  [[nodiscard]] bool reports_drawn();

  [[nodiscard]] static Json prompts(const Batch& batch);
  [[nodiscard]] Json generation_kwargs(const Batch& batch) const;
  void ask_trl(const Batch& batch, Completions& out);
  void ask_openai(const Batch& batch, Completions& out);
  void read_trl(const Json& answer, const Batch& batch, Completions& out) const;
  void read_openai(const Json& answer, const Batch& batch, std::size_t asked, Completions& out) const;

  [[nodiscard]] data::Completion completion_of(const Json& ids, const Json& reason,
                                               const inference::SamplingConfig& sampling) const;
  // Entries of `values` by their place where `tokens` is null, else by the id of the token.
  [[nodiscard]] std::vector<float> log_probs_of(const std::vector<data::TokenId>& ids, const Json& values,
                                                const Json* tokens) const;

  [[nodiscard]] const Json& list(const Json& answer, const char* key) const;
  [[nodiscard]] std::string where() const;
  [[noreturn]] void wrong(const std::string& found, const std::string& expected) const;

  VllmConfig config_;
  http::JsonClient client_;
  Protocol protocol_ = Protocol::unknown;
  bool own_ = false;            // the server is rlalgo's
  std::string model_;           // OpenAI's protocol
  bool drawn_ = true;           // log-probs are of the distribution that is drawn from
  bool told_of_model_ = false;  // that they are not
};

static_assert(inference::Generator<VllmClient>);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/vllm_client_impl.hpp>
#endif
