// The routes of OpenAI's protocol, with vLLM's additions, and the small ones.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/version.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/detail/openai_answer.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/prompts.hpp>
#include <rlalgo/serve/schema_pattern.hpp>

namespace rlalgo::serve::detail {

// Fields that clients send and that change nothing here.
inline void read_without_effect(Fields& fields) {
  for (const char* name : {"store", "metadata", "best_of", "suffix", "priority", "cache_salt", "service_tier",
                           "return_token_strs", "spaces_between_special_tokens", "parallel_tool_calls"})
    (void)fields.find(name);
}

class OpenAiRoutes {
 public:
  explicit OpenAiRoutes(Service& service) : service_(service) {}

  void completions(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    OpenAiRequest request;
    const auto weights = read_common(fields, request, "cmpl-", 16);
    const std::optional<std::int64_t> log_probs = fields.integer("logprobs", 0, service_.most_log_probs());
    request.log_probs = log_probs;
    request.echo = fields.flag("echo", false);
    request.prompts = read_prompts(fields, "prompt", service_.model, fields.flag("add_special_tokens", true));
    if (request.sampling.max_tokens == 0) {
      if (!request.echo) fields.out_of_range("max_tokens", "0", "at least 1, or 0 with echo");
      request.no_tokens = true;
    }
    start(exchange, fields, std::move(request), weights);
  }

  void chat_completions(const SharedExchange& exchange) {
    Json body = parse_body(exchange->request().body);
    if (const auto at = body.find("max_completion_tokens"); at != body.end()) {  // its name of today
      Json limit = std::move(*at);
      body.erase("max_completion_tokens");
      if (!limit.is_null()) body["max_tokens"] = std::move(limit);
    }
    Fields fields(body);
    OpenAiRequest request;
    request.chat = true;
    const Json messages = checked_messages(fields.required("messages"), "messages");
    const auto weights = read_common(fields, request, "chatcmpl-", std::nullopt);
    const bool log_probs = fields.flag("logprobs", false);
    const auto alternatives = fields.integer("top_logprobs", 0, service_.most_log_probs());
    if (alternatives.value_or(0) > 0 && !log_probs)
      fields.out_of_range("top_logprobs", std::to_string(*alternatives), "0 without \"logprobs\": true");
    if (log_probs) request.log_probs = alternatives.value_or(0);
    read_tools(fields, request);
    request.prompts.push_back(render_chat(fields, messages, service_.model));
    if (request.sampling.max_tokens == 0) fields.out_of_range("max_tokens", "0", "at least 1");
    start(exchange, fields, std::move(request), weights);
  }

  void models(const SharedExchange& exchange) {
    Json cards = Json::array({base_card()});
    for (const WeightStore::Adapter& adapter : service_.store.adapters()) cards.push_back(card_of(adapter));
    answer_json(*exchange, {{"object", "list"}, {"data", std::move(cards)}});
  }

  void model(const SharedExchange& exchange, const std::string& name) {
    if (name == service_.model.name) return answer_json(*exchange, base_card());
    for (const WeightStore::Adapter& adapter : service_.store.adapters())
      if (adapter.name == name) return answer_json(*exchange, card_of(adapter));
    (void)service_.weights_of(name);
    answer_json(*exchange, base_card());
  }

  void tokenize(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    check_model(fields);
    std::vector<data::TokenId> ids;
    if (fields.has("messages")) {
      ids = render_chat(fields, checked_messages(fields.required("messages"), "messages"), service_.model).ids;
    } else {
      const std::string text = fields.required_text("prompt");
      ids = service_.model.tokenizer.encode(text, fields.flag("add_special_tokens", true));
    }
    Json strings = nullptr;
    if (fields.flag("return_token_strs", false)) {
      strings = Json::array();
      for (const data::TokenId id : ids) strings.push_back(service_.model.tokenizer.token(id));
    }
    service_.check_unread(fields);
    answer_json(*exchange, {{"count", ids.size()},
                            {"max_model_len", service_.model.length_limit()},
                            {"tokens", ids},
                            {"token_strs", std::move(strings)}});
  }

  void detokenize(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    check_model(fields);
    (void)fields.required("tokens");
    const std::vector<data::TokenId> ids = fields.ids("tokens", service_.vocab());
    service_.check_unread(fields);
    answer_json(*exchange, {{"prompt", service_.model.tokenizer.decode(ids, false)}});
  }

  void version(const SharedExchange& exchange) {
    answer_json(*exchange, {{"version", std::string(rlalgo::version)}, {"server", "rlalgo"}});
  }

 private:
  void check_model(Fields& fields) { (void)service_.weights_of(fields.text("model").value_or("")); }

  [[nodiscard]] Json base_card() const {
    const std::string& parent = service_.model.parent;
    return card(service_.model.name, service_.started(), service_.model.root, parent.empty() ? Json() : Json(parent));
  }
  [[nodiscard]] Json card_of(const WeightStore::Adapter& adapter) const {
    return card(adapter.name, adapter.since, adapter.path.string(), service_.model.name);
  }
  [[nodiscard]] Json card(const std::string& id, std::int64_t created, const std::string& root, Json parent) const {
    return {{"id", id},
            {"object", "model"},
            {"created", created},
            {"owned_by", "rlalgo"},
            {"root", root},
            {"parent", std::move(parent)},
            {"max_model_len", service_.model.length_limit()},
            {"permission", Json::array()}};
  }

  static void read_tools(Fields& fields, OpenAiRequest& request) {
    const Json* const tools = fields.list("tools");
    const Json* const choice = fields.find("tool_choice");
    request.tool_calls = tools != nullptr && !tools->empty();
    if (choice == nullptr || *choice == "auto") return;
    if (*choice == "none") {
      request.tool_calls = false;
      return;
    }
    std::string named;
    if (choice->is_object()) {
      Fields inner(*choice, "tool_choice");
      Fields function(inner.required("function"), "tool_choice.function");
      named = function.required_text("name");
    } else if (*choice != "required") {
      fields.wrong_type("tool_choice", *choice, "\"auto\", \"none\", \"required\" or a function");
    }
    if (!request.tool_calls) fields.out_of_range("tool_choice", quoted(*choice), "\"none\" without tools");
    if (request.sampling.pattern)
      fields.out_of_range("tool_choice", quoted(*choice), "\"auto\" or \"none\" with structured output");
    request.sampling.pattern = call_pattern(fields, *tools, named);
  }

  // The text of one call, of the function of that name, or of any.
  [[nodiscard]] static std::string call_pattern(Fields& fields, const Json& tools, const std::string& named) {
    std::string out;
    for (std::size_t i = 0; i < tools.size(); ++i) {
      const std::string place = "tools[" + std::to_string(i) + "]";
      Fields tool(tools[i], place);
      Fields function(tool.required("function"), place + ".function");
      const std::string name = function.required_text("name");
      if (!named.empty() && name != named) continue;
      const Json* const parameters = function.object("parameters");
      out += (out.empty() ? "(" : "|") + escaped("<tool_call>\n{\"name\": " + Json(name).dump() + ", \"arguments\": ") +
             (parameters == nullptr ? any_object_pattern() : schema_pattern(*parameters, true, false)) +
             escaped("}\n</tool_call>");
    }
    if (out.empty()) fields.out_of_range("tool_choice", named, "the name of one of the tools");
    return out + ")";
  }

  // Fields of both routes.
  [[nodiscard]] inference::Forward::WeightsHandle read_common(Fields& fields, OpenAiRequest& request,
                                                              const char* prefix,
                                                              std::optional<std::int64_t> max_tokens) {
    request.model = fields.text("model").value_or(service_.model.name);
    auto weights = service_.weights_of(request.model);
    request.id = prefix + fields.text("request_id").value_or(service_.next_id(""));
    request.sampling = read_sampling(fields, service_.limits(), max_tokens, service_.model.sampling);
    request.prompt_log_probs = fields.integer("prompt_logprobs", -1, service_.most_log_probs());
    if (request.prompt_log_probs == -1) {
      if (service_.config.most_log_probs >= 0)
        fields.out_of_range("prompt_logprobs", "-1", "0 to " + std::to_string(service_.most_log_probs()));
      request.prompt_log_probs = service_.vocab();
    }
    request.streaming = read_stream(service_, fields);
    if (request.streaming.stream && request.prompt_log_probs)
      fields.out_of_range("prompt_logprobs", "a number", "nothing with \"stream\": true");
    request.return_ids = fields.flag("return_token_ids", false);
    request.ids_for_tokens = fields.flag("return_tokens_as_token_ids", false);
    request.user = fields.text("user").value_or("");
    read_without_effect(fields);
    return weights;
  }

  void start(const SharedExchange& exchange, Fields& fields, OpenAiRequest request,
             const inference::Forward::WeightsHandle& weights) {
    if (const auto keep = fields.integer("truncate_prompt_tokens", -1, service_.model.length_limit())) {
      const auto most = static_cast<std::size_t>(*keep < 0 ? service_.model.length_limit() - 1 : *keep);
      if (most == 0) fields.out_of_range("truncate_prompt_tokens", "0", "at least 1, or -1");
      for (Prompt& prompt : request.prompts)
        if (prompt.ids.size() > most) {
          prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - static_cast<std::ptrdiff_t>(most));
          prompt.text.clear();
        }
    }
    for (const Prompt& prompt : request.prompts) check_length(prompt, service_.model);
    service_.check_unread(fields);
    service_.constrain(request.sampling.spec, request.sampling.pattern);
    request.memory = service_.answers.hold(bytes_of(request), "n");
    const auto answer = std::make_shared<OpenAiAnswer>(service_, exchange, std::move(request));
    Engine::Work work = work_of(answer, weights);
    if (const std::string& user = answer->request().user; !user.empty())
      work.client = exchange->request().peer + " " + user;
    service_.submit(exchange, std::move(work));
  }

  // What the answer may take at most.
  [[nodiscard]] double bytes_of(const OpenAiRequest& request) const {
    const bool stream = request.streaming.stream;
    const AnswerForm form = stream ? AnswerForm::streamed : request.chat ? AnswerForm::chat : AnswerForm::completion;
    double out = 0;
    for (const Prompt& prompt : request.prompts) {
      const auto length = static_cast<double>(prompt.ids.size());
      const auto drawn = static_cast<double>(
          std::min(request.sampling.spec.sampling.max_new_tokens,
                   std::max<std::int64_t>(1, service_.model.length_limit() - static_cast<std::int64_t>(length))));
      out += answer_bytes({.tokens = drawn * static_cast<double>(request.sampling.spec.count),
                           .log_probs = request.log_probs ? form : AnswerForm::none,
                           .alternatives = request.log_probs.value_or(0)}) +
             answer_bytes({.tokens = length});
      if (request.prompt_log_probs)
        out +=
            answer_bytes({.tokens = length, .log_probs = AnswerForm::chat, .alternatives = *request.prompt_log_probs});
      if (request.echo && request.log_probs)
        out += static_cast<double>(request.sampling.spec.count) *
               answer_bytes({.tokens = length, .log_probs = form, .alternatives = *request.log_probs});
    }
    return out;
  }

  // The scheduler's requests of an answer.
  [[nodiscard]] Engine::Work work_of(const std::shared_ptr<OpenAiAnswer>& answer,
                                     const inference::Forward::WeightsHandle& weights) const {
    const OpenAiRequest& request = answer->request();
    Engine::Work work{.id = request.id, .requests = {}, .on_failed = [answer](const core::Error& error) {
                        answer->on_failed(error);
                      }};
    for (std::size_t i = 0; i < request.prompts.size(); ++i) {
      inference::RequestSpec spec = service_.request_for(request.sampling, request.prompts[i], weights);
      spec.text = true;
      spec.text_stream =
          service_.text_stream(spec, request.sampling.skip_special_tokens, request.sampling.include_stop_text);
      spec.log_probs =
          service_.config.drawn_log_probs ? inference::LogProbKind::drawn_from : inference::LogProbKind::model;
      spec.top_log_probs = request.log_probs.value_or(0);
      spec.prompt_log_probs = request.prompt_log_probs;
      if (request.echo && request.log_probs)
        spec.prompt_log_probs = std::max(*request.log_probs, request.prompt_log_probs.value_or(0));
      // Prompts of a list that are equal shall differ, unless a seed says what they are.
      if (spec.key.step != 0) spec.first_index = i * static_cast<std::uint64_t>(spec.count);
      if (request.streaming.stream)
        spec.on_token = [answer, i](const inference::TokenEvent& event) { answer->on_token(i, event); };
      spec.on_end = [answer, i](inference::RequestId, inference::RequestResult&& result) {
        answer->on_end(i, std::move(result));
      };
      work.requests.push_back(std::move(spec));
    }
    return work;
  }

  Service& service_;
};

}  // namespace rlalgo::serve::detail
