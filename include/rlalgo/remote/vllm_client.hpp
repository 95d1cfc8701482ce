// A generator that asks a server speaking TRL's vllm-serve protocol.
//
//   POST /generate/ {"prompts": [[ids]…], "n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p",
//                    "max_tokens", "logprobs": 0, "generation_kwargs": {…}}
//   → {"completion_ids": [[ids]…] prompt-major, "logprobs": [[[x]…]…], "logprob_token_ids": [[[id]…]…]}
//
// The log-prob of a token is the entry of its own id (the innermost lists are sorted by rank, not sampled-first). A
// completion is left without log-probs when the server sends none or a null (NaN) among them. The first call waits for
// GET /health/, at most `start_seconds`. Draws are the server's: the key has no effect, and a resumed run samples anew.
// Source: TRL 1.8, scripts/vllm_serve.py.
//
// Errors: [rlalgo.remote.10] an answer of the wrong shape; [rlalgo.remote.11] a token id outside the model's
// vocabulary; those of http/json_client.hpp.
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
};

class VllmClient {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;

  explicit VllmClient(VllmConfig config) : config_(std::move(config)), client_(config_.server) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey /*key*/);

 private:
  [[nodiscard]] Json body(std::span<const inference::Request> requests, const std::vector<std::size_t>& chosen,
                          std::int64_t count, const inference::SamplingConfig& sampling) const;

  void read(const Json& answer, const std::vector<std::size_t>& chosen, std::size_t count,
            const inference::SamplingConfig& sampling, std::vector<std::vector<data::Completion>>& out) const;

  [[nodiscard]] data::Completion completion_of(const Json& ids, const inference::SamplingConfig& sampling) const;

  [[nodiscard]] std::vector<float> log_probs_of(const std::vector<data::TokenId>& ids, const Json& values,
                                                const Json& tokens) const;

  [[nodiscard]] const Json& list(const Json& answer, const char* key) const;
  [[nodiscard]] std::string where() const { return "POST " + client_.base_url() + "/generate/"; }
  [[noreturn]] void wrong(const std::string& found, const std::string& expected) const;

  VllmConfig config_;
  http::JsonClient client_;
  bool ready_ = false;
};

static_assert(inference::Generator<VllmClient>);

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/vllm_client_impl.hpp>
#endif
