// One request of OpenAI's protocol on its way: what it asked for, and its answer, whole or as server-sent events.
//
// The functions are called on the engine's thread; whole() on one of the pool's.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/inference/request.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/event_stream.hpp>
#include <rlalgo/serve/detail/log_prob_forms.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/detail/tool_text.hpp>
#include <rlalgo/serve/prompts.hpp>
#include <rlalgo/serve/sampling_fields.hpp>

namespace rlalgo::serve::detail {

struct OpenAiRequest {
  bool chat = false;
  std::string id, model;
  std::string user;  // on whose behalf: whose place in the fair queue it takes
  std::int64_t created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  SamplingRequest sampling;
  std::vector<Prompt> prompts;
  std::optional<std::int64_t> log_probs;         // so many of the most likely beside each token
  std::optional<std::int64_t> prompt_log_probs;  // the same of the prompt's
  StreamFields streaming;
  bool echo = false;
  bool return_ids = false, ids_for_tokens = false;
  bool no_tokens = false;                        // max_tokens 0: the one that is drawn is not shown
  bool tool_calls = false;                       // are taken out of the text
  std::shared_ptr<const void> memory = nullptr;  // what the answer may take (answer_budget.hpp)
};

class OpenAiAnswer : public std::enable_shared_from_this<OpenAiAnswer> {
 public:
  OpenAiAnswer(Service& service, SharedExchange exchange, OpenAiRequest request)
      : service_(service),
        exchange_(std::move(exchange)),
        events_(exchange_),
        request_(std::move(request)),
        texts_(service.model.tokenizer, request_.ids_for_tokens),
        results_(request_.prompts.size()),
        streams_(request_.streaming.stream ? request_.prompts.size() * count() : 0),
        left_(request_.prompts.size()) {
    for (std::size_t k = 0; k < streams_.size(); ++k) streams_[k].tools = ToolText(call_prefix(k));
    for (const Prompt& prompt : request_.prompts) usage_prompt_ += prompt.ids.size();
  }

  [[nodiscard]] const OpenAiRequest& request() const noexcept { return request_; }

  void on_token(std::size_t prompt, const inference::TokenEvent& event) {
    const auto completion = static_cast<std::size_t>(event.completion);
    Stream& stream = streams_[prompt * count() + completion];
    begin_stream(prompt, completion);
    std::string text(event.text);
    if (event.finished && request_.sampling.include_stop_text) text += event.stop_text;
    const bool shown = !request_.no_tokens;
    if (shown) {
      ++usage_completion_;
      stream.ids.push_back(event.id);
      if (request_.log_probs) add_log_prob(stream, event.id, event.log_prob, event.top);
    } else {
      text.clear();
    }
    if (request_.tool_calls) text = stream.tools.push(text);
    const bool silent = text.empty() && !event.finished && !request_.log_probs && !request_.return_ids;
    if (silent) return;
    Json reason, stop_reason;
    if (event.finished) {
      if (request_.tool_calls) text += finish_tools(prompt, completion, stream);
      reason = finish_reason(*event.finished, stream.tools.called());
      stop_reason = stop_reason_of(*event.finished, std::string(event.stop_text), event.id);
    }
    write_piece(prompt, completion, std::move(text), std::move(reason), stop_reason);
    stream.ended = event.finished.has_value();
  }

  void on_end(std::size_t prompt, inference::RequestResult&& result) {
    if (request_.streaming.stream) {
      for (std::size_t j = 0; j < count(); ++j) {
        Stream& stream = streams_[prompt * count() + j];
        if (std::exchange(stream.ended, true)) continue;
        begin_stream(prompt, j);
        std::string text = request_.tool_calls ? finish_tools(prompt, j, stream) : std::string();
        write_piece(prompt, j, std::move(text), finish_reason(result.completions[j].completion.finish, false), nullptr);
      }
    } else {
      results_[prompt] = std::move(result);
    }
    if (--left_ > 0) return;
    if (request_.streaming.stream)
      end_stream();
    else
      service_.write(exchange_, false, [self = shared_from_this()] { return self->whole(); });
  }

  void on_failed(const core::Error& error) { events_.fail(error); }

  // The answer of a request that is not streamed.
  [[nodiscard]] Json whole() {
    Json choices = Json::array();
    usage_completion_ = 0;
    for (std::size_t i = 0; i < results_.size(); ++i)
      for (std::size_t j = 0; j < count(); ++j) choices.push_back(choice(i, j));
    Json out = envelope(request_.chat ? "chat.completion" : "text_completion");
    out["choices"] = std::move(choices);
    out["usage"] = usage();
    if (request_.chat) {
      out["prompt_logprobs"] = prompt_part(0);
      if (request_.return_ids) out["prompt_token_ids"] = request_.prompts[0].ids;
    }
    return out;
  }

 private:
  struct Stream {
    bool begun = false, first = true, ended = false;
    std::vector<data::TokenId> ids;       // not written yet
    Json chat_log_probs = Json::array();  // of these
    std::optional<CompletionLogProbs> log_probs;
    ToolText tools;
  };

  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(request_.sampling.spec.count); }

  [[nodiscard]] Json envelope(const char* object) const {
    return {{"id", request_.id}, {"object", object}, {"created", request_.created}, {"model", request_.model}};
  }
  [[nodiscard]] Json usage() const { return usage_of(usage_prompt_, usage_completion_); }

  [[nodiscard]] static Json finish_reason(data::Finish finish, bool called_tools) {
    return finish == data::Finish::stop && called_tools ? "tool_calls" : reason_of(finish);
  }
  // The stop string or id of the request that ended a completion; null for the model's own end.
  [[nodiscard]] Json stop_reason_of(data::Finish finish, const std::string& stop_text, data::TokenId last) const {
    if (finish != data::Finish::stop) return nullptr;
    if (!stop_text.empty()) return stop_text;
    const auto& stops = request_.sampling.spec.sampling.stop_ids;
    const auto& ends = service_.model.stop_ids;
    const bool own = !request_.sampling.spec.ignore_eos && std::find(ends.begin(), ends.end(), last) != ends.end();
    return !own && std::find(stops.begin(), stops.end(), last) != stops.end() ? Json(last) : Json(nullptr);
  }

  [[nodiscard]] std::string prompt_text(std::size_t i) const {
    const Prompt& prompt = request_.prompts[i];
    return prompt.text.empty() ? service_.model.tokenizer.decode(prompt.ids, request_.sampling.skip_special_tokens)
                               : prompt.text;
  }
  [[nodiscard]] Json prompt_part(std::size_t i) const {
    if (!request_.prompt_log_probs) return nullptr;
    return prompt_log_probs(texts_, results_[i], *request_.prompt_log_probs);
  }

  // Whole answers.

  [[nodiscard]] Json choice(std::size_t i, std::size_t j) {
    inference::CompletionResult& result = results_[i].completions[j];
    const data::Completion& completion = result.completion;
    const bool shown = !request_.no_tokens;
    const std::vector<data::TokenId> ids = shown ? completion.ids : std::vector<data::TokenId>();
    usage_completion_ += ids.size();
    std::string text = shown ? result.text : std::string();
    if (shown && request_.sampling.include_stop_text) text += result.stop_text;
    Json out = {{"index", i * count() + j}};
    bool called = false;
    if (request_.chat) {
      out["message"] = message(j, text, ids, result, called);
    } else {
      if (request_.echo) text = prompt_text(i) + text;
      out["text"] = std::move(text);
    }
    out["logprobs"] = log_probs(i, ids, result);
    const auto finish = shown ? completion.finish : data::Finish::length;
    out["finish_reason"] = finish_reason(finish, called);
    out["stop_reason"] = ids.empty() ? Json(nullptr) : stop_reason_of(finish, result.stop_text, ids.back());
    if (request_.return_ids) out["token_ids"] = ids;
    if (!request_.chat) {
      if (request_.return_ids) out["prompt_token_ids"] = request_.prompts[i].ids;
      out["prompt_logprobs"] = prompt_part(i);
    }
    out["weights_version"] = completion.weights_version;
    out["weights_version_name"] = service_.store.name_of(completion.weights_version);
    return out;
  }

  [[nodiscard]] std::string call_prefix(std::size_t choice) const {
    return "call_" + request_.id + "-" + std::to_string(choice) + "-";
  }

  [[nodiscard]] Json message(std::size_t j, const std::string& text, const std::vector<data::TokenId>& ids,
                             const inference::CompletionResult& result, bool& called) {
    Json out = {{"role", "assistant"}, {"content", text}};
    if (request_.tool_calls) {
      ToolText tools(call_prefix(j));
      std::string content = tools.push(text);
      content += tools.finish();
      if (called = tools.called(); called) {
        out["content"] = content.find_first_not_of(" \n\r\t") == std::string::npos ? Json(nullptr) : Json(content);
        out["tool_calls"] = tools.calls();
      }
    }
    // The three fields by which NeMo Gym carries tokens on: all or none.
    if (request_.log_probs && (request_.return_ids || request_.ids_for_tokens)) {
      out["prompt_token_ids"] = request_.prompts[0].ids;
      out["generation_token_ids"] = ids;
      out["generation_log_probs"] = result.completion.log_probs;
    }
    return out;
  }

  [[nodiscard]] Json log_probs(std::size_t i, const std::vector<data::TokenId>& ids,
                               const inference::CompletionResult& result) const {
    if (!request_.log_probs) return nullptr;
    if (request_.chat) {
      Json content = Json::array();
      for (std::size_t t = 0; t < ids.size(); ++t)
        content.push_back(
            chat_log_prob(texts_, ids[t], result.completion.log_probs[t], *request_.log_probs, top_at(result.top, t)));
      return {{"content", std::move(content)}};
    }
    CompletionLogProbs out(texts_, *request_.log_probs);
    if (request_.echo) add_prompt(out, results_[i], request_.prompts[i].ids);
    for (std::size_t t = 0; t < ids.size(); ++t) out.add(ids[t], result.completion.log_probs[t], top_at(result.top, t));
    return out.take();
  }

  static void add_prompt(CompletionLogProbs& out, const inference::RequestResult& result,
                         const std::vector<data::TokenId>& prompt) {
    for (std::size_t p = 0; p < prompt.size(); ++p) {
      if (p == 0 || p > result.prompt_log_probs.size()) {
        out.add(prompt[p], std::nullopt, {});
        continue;
      }
      out.add(prompt[p], result.prompt_log_probs[p - 1].log_prob, top_at(result.prompt_top, p - 1));
    }
  }

  // Streams.

  void begin_stream(std::size_t prompt, std::size_t completion) {
    events_.begin();
    Stream& stream = streams_[prompt * count() + completion];
    if (std::exchange(stream.begun, true)) return;
    if (request_.chat) {
      Json event = envelope("chat.completion.chunk");
      event["choices"] = Json::array({{{"index", prompt * count() + completion},
                                       {"delta", {{"role", "assistant"}, {"content", ""}}},
                                       {"logprobs", nullptr},
                                       {"finish_reason", nullptr}}});
      if (request_.return_ids) event["prompt_token_ids"] = request_.prompts[prompt].ids;
      if (request_.streaming.usage_always) event["usage"] = usage();
      events_.write(event);
    } else {
      stream.log_probs.emplace(texts_, request_.log_probs.value_or(0));
    }
  }

  void add_log_prob(Stream& stream, data::TokenId id, float log_prob, std::span<const TokenLogProb> top) {
    if (request_.chat)
      stream.chat_log_probs.push_back(chat_log_prob(texts_, id, log_prob, *request_.log_probs, top));
    else
      stream.log_probs->add(id, log_prob, top);
  }

  void write_piece(std::size_t prompt, std::size_t completion, std::string text, Json reason, const Json& stop_reason) {
    Stream& stream = streams_[prompt * count() + completion];
    Json choice = {{"index", prompt * count() + completion}};
    const bool first = std::exchange(stream.first, false);
    if (request_.chat) {
      Json delta = Json::object();
      if (!text.empty() || reason.is_null()) delta["content"] = std::move(text);
      choice["delta"] = std::move(delta);
    } else {
      if (first && request_.echo) text = prompt_text(prompt) + text;
      choice["text"] = std::move(text);
    }
    choice["logprobs"] = nullptr;
    if (request_.log_probs && !stream.ids.empty()) {
      if (request_.chat)
        choice["logprobs"] = {{"content", std::exchange(stream.chat_log_probs, Json::array())}};
      else
        choice["logprobs"] = stream.log_probs->take();
    }
    choice["finish_reason"] = std::move(reason);
    choice["stop_reason"] = stop_reason;
    if (request_.return_ids) {
      choice["token_ids"] = stream.ids;
      if (first && !request_.chat) choice["prompt_token_ids"] = request_.prompts[prompt].ids;
    }
    stream.ids.clear();
    Json event = envelope(request_.chat ? "chat.completion.chunk" : "text_completion");
    event["choices"] = Json::array({std::move(choice)});
    if (request_.streaming.usage_always) event["usage"] = usage();
    events_.write(event);
  }

  // Writes the calls that a text held; what was no call after all is text.
  [[nodiscard]] std::string finish_tools(std::size_t prompt, std::size_t completion, Stream& stream) {
    std::string rest = stream.tools.finish();
    if (!stream.tools.called()) return rest;
    Json calls = stream.tools.calls();
    for (std::size_t k = 0; k < calls.size(); ++k) calls[k]["index"] = k;
    Json event = envelope("chat.completion.chunk");
    event["choices"] = Json::array({{{"index", prompt * count() + completion},
                                     {"delta", {{"tool_calls", std::move(calls)}}},
                                     {"logprobs", nullptr},
                                     {"finish_reason", nullptr}}});
    if (request_.streaming.usage_always) event["usage"] = usage();
    events_.write(event);
    return rest;
  }

  void end_stream() {
    if (request_.streaming.usage_at_end) {
      Json event = envelope(request_.chat ? "chat.completion.chunk" : "text_completion");
      event["choices"] = Json::array();
      event["usage"] = usage();
      events_.write(event);
    }
    events_.end();
  }

  Service& service_;
  SharedExchange exchange_;
  EventStream events_;
  OpenAiRequest request_;
  TokenTexts texts_;
  std::vector<inference::RequestResult> results_;  // [prompts]
  std::vector<Stream> streams_;                    // [prompts · count]
  std::size_t left_;                               // prompts without an end
  std::size_t usage_prompt_ = 0, usage_completion_ = 0;
};

}  // namespace rlalgo::serve::detail
