// A generator that asks any server of OpenAI's /v1/completions that takes token ids and gives them back.
//
//   POST /v1/completions {"model", "prompt": [[ids]…], "n", …, "logprobs": 0, "return_token_ids": true}
//        → {"choices": [{"index", "token_ids", "logprobs": {"token_logprobs"}, "finish_reason"}], "usage"}
//
// Ids are read from `token_ids` of the choices (vLLM from 0.10.2 on, rlalgo); a server that has none there is asked once more with
// "return_tokens_as_token_ids", which older ones know: then they are the words "token_id:N" of logprobs.tokens. A server
// that gives neither is refused, with what it gave: a text tokenized again is not what was drawn. So is one whose count of
// the prompt's tokens is another than was sent, and, where `require_log_probs`, one without log-probs.
//
// Log-probs count where they are of the distribution that is drawn from: always, where nothing bends it (temperature 1,
// nothing truncated, no penalty); else where /server_info says processed_logprobs. Else completions are left without them,
// and `tell` hears it once. Draws are the server's: the key has no effect. Whose weights it draws from it does not say.
//
// Errors: [rlalgo.remote.85] a server that gives no token ids, or no log-probs, or read another prompt; [.10] an answer of
// the wrong shape; [.11] a token id outside the model's vocabulary; those of http/json_client.hpp.
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

namespace rlalgo::remote {

struct OpenAiConfig {
  http::ClientConfig server{};  // with the key, where it asks for one, among its headers
  std::string model = {};       // empty: the server's first
  std::string adapter = {};     // is asked where the server has it
  double start_seconds = 0.0;   // how long the first call waits for the server; 0 = not at all
  std::function<void(const std::string&)> tell = {};
  std::int64_t vocab_size = 0;                         // of the model that is trained; 0 = ids are not checked
  nlohmann::ordered_json generation_kwargs = nullptr;  // merged over the fields of a request
  bool require_log_probs = true;
};

class OpenAiClient {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr inference::WeightSource weights = inference::WeightSource::remote;

  explicit OpenAiClient(OpenAiConfig config)
      : config_(std::move(config)),
        client_(config_.server),
        reader_("POST " + client_.base_url() + "/v1/completions", config_.vocab_size) {}

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling,
                                                      inference::DrawKey key);

  // The same of one call: prompts that want the same count, and the limit of `sampling`; appended to out[chosen[…]].
  void ask(std::span<const inference::Request> requests, std::span<const std::size_t> chosen, std::size_t count,
           const inference::SamplingConfig& sampling, std::vector<std::vector<data::Completion>>& out);

 private:
  enum class Ids { unknown, field, words };  // where a server has them

  void find_out();
  [[nodiscard]] std::string model_name();
  [[nodiscard]] bool reports_drawn();
  [[nodiscard]] Json call(const Json& body);
  [[nodiscard]] std::vector<const Json*> choices_of(const Json& answer, std::size_t expected) const;
  [[nodiscard]] Json ids_of(const Json& choice) const;
  void check_prompt(const Json& answer, std::size_t sent, std::size_t count) const;
  [[noreturn]] void lacks(const std::string& what, const std::string& found, const std::string& expected) const;

  OpenAiConfig config_;
  http::JsonClient client_;
  detail::CompletionReader reader_;
  std::string model_;
  bool known_ = false;
  Ids ids_ = Ids::unknown;
  bool drawn_ = true;           // log-probs are of the distribution that is drawn from
  bool told_of_model_ = false;  // that they are not
};

static_assert(inference::Generator<OpenAiClient>);

namespace detail {

// `requests` in calls: those that want the same count and limit go together.
void in_calls(std::span<const inference::Request> requests, const inference::SamplingConfig& sampling,
              const std::function<void(std::span<const std::size_t> chosen, std::size_t count,
                                       const inference::SamplingConfig& sampling)>& call);

}  // namespace detail

}  // namespace rlalgo::remote

#ifndef RLALGO_COMPILED
#include <rlalgo/remote/detail/open_ai_client_impl.hpp>
#endif
