// vLLM's route of token ids in, token ids out.
//
//   POST /inference/v1/generate {"token_ids": [ids], "sampling_params": {…}, "model", "request_id"}
//   → {"request_id", "choices": [{"index", "token_ids", "logprobs" (chat form), "finish_reason", "weight_versions":
//     [{"version", "start", "end"}]}], "prompt_logprobs"}
//
// sampling_params has the fields of sampling_fields.hpp, "logprobs" and "prompt_logprobs" (numbers). A completion keeps
// the weights that it begins with: weight_versions is one span. Nothing is streamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/log_prob_forms.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/prompts.hpp>

namespace rlalgo::serve::detail {

class TokenRoutes {
 public:
  explicit TokenRoutes(Service& service) : service_(service) {}

  void generate(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const auto weights = service_.weights_of(fields.text("model").value_or(""));
    Prompt prompt;
    (void)fields.required("token_ids");
    prompt.ids = fields.ids("token_ids", service_.vocab());
    const std::string id = fields.text("request_id").value_or(service_.next_id("generate-"));
    refuse_others(fields);
    for (const char* ignored : {"priority", "cache_salt", "kv_transfer_params"}) (void)fields.find(ignored);
    const Json& params = fields.required("sampling_params");
    Fields inner(params, "sampling_params");
    SamplingRequest sampling = read_sampling(inner, service_.limits(), 16, service_.model.sampling);
    if (sampling.max_tokens == 0) inner.out_of_range("max_tokens", "0", "at least 1");
    const auto beside = inner.integer("logprobs", 0, service_.most_log_probs());
    const auto prompt_beside = inner.integer("prompt_logprobs", 0, service_.most_log_probs());
    for (const char* ignored : {"detokenize", "output_kind"}) (void)inner.find(ignored);
    service_.check_unread(inner);
    service_.check_unread(fields);
    check_length(prompt, service_.model);
    service_.constrain(sampling.spec, sampling.pattern);

    inference::RequestSpec spec = service_.request_for(sampling, prompt, weights);
    if (!spec.stop_strings.empty())
      spec.text_stream = service_.text_stream(spec, sampling.skip_special_tokens, sampling.include_stop_text);
    spec.log_probs =
        service_.config.drawn_log_probs ? inference::LogProbKind::drawn_from : inference::LogProbKind::model;
    spec.top_log_probs = beside.value_or(0);
    spec.prompt_log_probs = prompt_beside;
    spec.on_end = [this, exchange, id, beside, prompt_beside](inference::RequestId, inference::RequestResult&& result) {
      answer(*exchange, id, beside, prompt_beside, result);
    };
    Engine::Work work{.id = id, .requests = {}, .on_failed = [exchange](const core::Error& error) {
                        answer_error(*exchange, error, false);
                      }};
    work.requests.push_back(std::move(spec));
    service_.submit(exchange, std::move(work));
  }

 private:
  static void refuse_others(Fields& fields) {
    std::string found;
    if (fields.flag("stream", false)) found = "stream";
    if (const Json* const features = fields.find("features"); features != nullptr && !features->empty())
      found = "features";
    if (fields.text("output_mode").value_or("tokens") != "tokens") found = "output_mode";
    if (found.empty()) return;
    refuse_request(400, 12,
                   {.what = "this route answers token ids of a text, at once",
                    .found = found,
                    .remedy = "POST /v1/completions streams, and answers text"},
                   found);
  }

  void answer(http::Exchange& exchange, const std::string& id, std::optional<std::int64_t> beside,
              std::optional<std::int64_t> prompt_beside, const inference::RequestResult& result) const {
    const TokenTexts texts(service_.model.tokenizer, false);
    Json choices = Json::array();
    for (const inference::CompletionResult& one : result.completions) {
      const data::Completion& completion = one.completion;
      Json content = Json::array();
      for (std::size_t t = 0; beside && t < completion.ids.size(); ++t)
        content.push_back(
            chat_log_prob(texts, completion.ids[t], completion.log_probs[t], *beside, top_at(one.top, t)));
      const Json span = {{"version", service_.store.name_of(completion.weights_version)},
                         {"start", 0},
                         {"end", completion.ids.size()}};
      choices.push_back({{"index", choices.size()},
                         {"token_ids", completion.ids},
                         {"logprobs", beside ? Json{{"content", std::move(content)}} : Json(nullptr)},
                         {"finish_reason", reason_of(completion.finish)},
                         {"weight_versions", Json::array({span})}});
    }
    answer_json(exchange,
                {{"request_id", id},
                 {"choices", std::move(choices)},
                 {"prompt_logprobs", prompt_beside ? prompt_log_probs(texts, result, *prompt_beside) : Json(nullptr)}});
  }

  Service& service_;
};

}  // namespace rlalgo::serve::detail
