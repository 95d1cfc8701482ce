// vLLM's route of token ids in, token ids out.
//
//   POST /inference/v1/generate {"token_ids": [ids], "sampling_params": {…}, "model", "request_id"}
//   → {"request_id", "choices": [{"index", "token_ids", "logprobs" (chat form), "finish_reason", "weight_versions":
//     [{"version", "start", "end"}]}], "prompt_logprobs"}
//
// sampling_params has the fields of sampling_fields.hpp, "logprobs" and "prompt_logprobs" (numbers). A completion keeps
// the weights that it begins with: weight_versions is one span.
//
// With "stream": true, an event for each token: {"request_id", "choices": [{"index", "token_ids": [id], "logprobs",
// "finish_reason"}]}, the last one of a completion with "weight_versions"; usage as "stream_options" says; [DONE].
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/http/exchange.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/event_stream.hpp>
#include <rlalgo/serve/detail/log_prob_forms.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/prompts.hpp>

namespace rlalgo::serve::detail {

struct TokenRequest {
  std::string id;
  std::optional<std::int64_t> alternatives, prompt_alternatives;  // log-probs beside a token's own
  StreamFields streaming;
  std::int64_t count = 1, version = 0;
  std::size_t prompt = 0;                        // tokens
  std::shared_ptr<const void> memory = nullptr;  // what the answer may take (answer_budget.hpp)
};

class TokenAnswer : public std::enable_shared_from_this<TokenAnswer> {
 public:
  TokenAnswer(Service& service, SharedExchange exchange, TokenRequest request)
      : service_(service),
        exchange_(std::move(exchange)),
        events_(exchange_),
        request_(std::move(request)),
        texts_(service.model.tokenizer, false),
        drawn_(static_cast<std::size_t>(request_.count)),
        ended_(static_cast<std::size_t>(request_.count)) {}

  void on_token(const inference::TokenEvent& event) {
    const auto choice = static_cast<std::size_t>(event.completion);
    ++drawn_[choice];
    ended_[choice] = event.finished.has_value();
    Json content = Json::array();
    if (request_.alternatives)
      content.push_back(chat_log_prob(texts_, event.id, event.log_prob, *request_.alternatives, event.top));
    write_choice(choice, Json::array({event.id}), std::move(content), event.finished);
  }

  void on_end(inference::RequestResult&& ended) {
    if (!request_.streaming.stream) {
      const auto kept = std::make_shared<const inference::RequestResult>(std::move(ended));
      return service_.write(exchange_, false, [self = shared_from_this(), kept] { return self->whole(*kept); });
    }
    const inference::RequestResult& result = ended;
    for (std::size_t j = 0; j < result.completions.size(); ++j)  // what was aborted
      if (!ended_[j]) write_choice(j, Json::array(), Json::array(), result.completions[j].completion.finish);
    if (request_.streaming.usage_at_end)
      events_.write(
          {{"request_id", request_.id}, {"choices", Json::array()}, {"usage", usage_of(request_.prompt, sum())}});
    events_.end();
  }

  void on_failed(const core::Error& error) { events_.fail(error); }

 private:
  [[nodiscard]] Json span_of(std::int64_t version, std::size_t end) const {
    return Json::array({{{"version", service_.store.name_of(version)}, {"start", 0}, {"end", end}}});
  }
  [[nodiscard]] std::size_t sum() const { return std::accumulate(drawn_.begin(), drawn_.end(), std::size_t{0}); }

  void write_choice(std::size_t index, Json ids, Json content, const std::optional<data::Finish>& finish) {
    Json choice = {{"index", index},
                   {"token_ids", std::move(ids)},
                   {"logprobs", request_.alternatives ? Json{{"content", std::move(content)}} : Json(nullptr)},
                   {"finish_reason", finish ? Json(reason_of(*finish)) : Json(nullptr)}};
    if (finish) choice["weight_versions"] = span_of(request_.version, drawn_[index]);
    Json event = {{"request_id", request_.id}, {"choices", Json::array({std::move(choice)})}};
    if (request_.streaming.usage_always) event["usage"] = usage_of(request_.prompt, drawn_[index]);
    events_.write(event);
  }

  [[nodiscard]] Json whole(const inference::RequestResult& result) const {
    Json choices = Json::array();
    for (const inference::CompletionResult& one : result.completions) {
      const data::Completion& completion = one.completion;
      Json content = Json::array();
      for (std::size_t t = 0; request_.alternatives && t < completion.ids.size(); ++t)
        content.push_back(chat_log_prob(texts_, completion.ids[t], completion.log_probs[t], *request_.alternatives,
                                        top_at(one.top, t)));
      choices.push_back({{"index", choices.size()},
                         {"token_ids", completion.ids},
                         {"logprobs", request_.alternatives ? Json{{"content", std::move(content)}} : Json(nullptr)},
                         {"finish_reason", reason_of(completion.finish)},
                         {"weight_versions", span_of(completion.weights_version, completion.ids.size())}});
    }
    return {{"request_id", request_.id},
            {"choices", std::move(choices)},
            {"prompt_logprobs", request_.prompt_alternatives
                                    ? prompt_log_probs(texts_, result, *request_.prompt_alternatives)
                                    : Json(nullptr)}};
  }

  Service& service_;
  SharedExchange exchange_;
  EventStream events_;
  TokenRequest request_;
  TokenTexts texts_;
  std::vector<std::size_t> drawn_;  // [count] tokens
  std::vector<bool> ended_;         // [count]
};

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
    TokenRequest request{.id = fields.text("request_id").value_or(service_.next_id("generate-")),
                         .streaming = {},
                         .version = weights->version,
                         .prompt = prompt.ids.size()};
    request.streaming = read_stream(service_, fields);
    refuse_others(fields);
    for (const char* ignored : {"priority", "cache_salt", "kv_transfer_params"}) (void)fields.find(ignored);
    const Json& params = fields.required("sampling_params");
    Fields inner(params, "sampling_params");
    SamplingRequest sampling = read_sampling(inner, service_.limits(), 16, service_.model.sampling);
    if (sampling.max_tokens == 0) inner.out_of_range("max_tokens", "0", "at least 1");
    request.count = sampling.spec.count;
    request.alternatives = inner.integer("logprobs", 0, service_.most_log_probs());
    request.prompt_alternatives = inner.integer("prompt_logprobs", 0, service_.most_log_probs());
    if (request.streaming.stream && request.prompt_alternatives)
      inner.out_of_range("prompt_logprobs", "a number", "nothing with \"stream\": true");
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
    spec.top_log_probs = request.alternatives.value_or(0);
    spec.prompt_log_probs = request.prompt_alternatives;
    Engine::Work work{.id = request.id, .requests = {}, .on_failed = {}};
    const bool stream = request.streaming.stream;
    double bytes =
        answer_bytes({.tokens = static_cast<double>(spec.count) * static_cast<double>(spec.sampling.max_new_tokens),
                      .log_probs = !request.alternatives ? AnswerForm::none
                                   : stream              ? AnswerForm::streamed
                                                         : AnswerForm::chat,
                      .alternatives = request.alternatives.value_or(0)});
    if (request.prompt_alternatives)
      bytes += answer_bytes({.tokens = static_cast<double>(request.prompt),
                             .log_probs = AnswerForm::chat,
                             .alternatives = *request.prompt_alternatives});
    request.memory = service_.answers.hold(bytes, "sampling_params.n");
    const auto answer = std::make_shared<TokenAnswer>(service_, exchange, std::move(request));
    work.on_failed = [answer](const core::Error& error) { answer->on_failed(error); };
    if (stream) spec.on_token = [answer](const inference::TokenEvent& event) { answer->on_token(event); };
    spec.on_end = [answer](inference::RequestId, inference::RequestResult&& result) {
      answer->on_end(std::move(result));
    };
    work.requests.push_back(std::move(spec));
    service_.submit(exchange, std::move(work));
  }

 private:
  static void refuse_others(Fields& fields) {
    std::string found;
    if (const Json* const features = fields.find("features"); features != nullptr && !features->empty())
      found = "features";
    if (fields.text("output_mode").value_or("tokens") != "tokens") found = "output_mode";
    if (found.empty()) return;
    refuse_request(400, 12,
                   {.what = "this route answers token ids of a text",
                    .found = found,
                    .remedy = "POST /v1/completions answers text"},
                   found);
  }

  Service& service_;
};

}  // namespace rlalgo::serve::detail
