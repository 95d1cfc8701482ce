// The routes of TRL's vllm-serve and those that axolotl's adds.
//
// They have no "model": the weights are those of the active adapter, which /set_lora_adapter/ sets, else of the adapter
// named axolotl-lora where one is loaded, else the base model's. A request may name another in "model".
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/json_value.hpp>
#include <rlalgo/serve/detail/log_prob_forms.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/prompts.hpp>

namespace rlalgo::serve::detail {

inline constexpr const char* trained_adapter = "axolotl-lora";  // the name that axolotl's trainers load theirs under

// Completions of several prompts, answered when all are there.
class TrlAnswer : public std::enable_shared_from_this<TrlAnswer> {
 public:
  // `memory`: what the answer may take (answer_budget.hpp).
  TrlAnswer(Service& service, SharedExchange exchange, std::vector<Prompt> prompts,
            std::optional<std::int64_t> log_probs, std::shared_ptr<const void> memory)
      : service_(service),
        memory_(std::move(memory)),
        exchange_(std::move(exchange)),
        prompts_(std::move(prompts)),
        log_probs_(log_probs),
        results_(prompts_.size()),
        left_(prompts_.size()) {}

  [[nodiscard]] const std::vector<Prompt>& prompts() const noexcept { return prompts_; }

  void on_end(std::size_t prompt, inference::RequestResult&& result) {
    results_[prompt] = std::move(result);
    if (--left_ == 0) service_.write(exchange_, true, [self = shared_from_this()] { return self->whole(); });
  }
  void on_failed(const core::Error& error) { answer_error(*exchange_, error, true); }

 private:
  [[nodiscard]] Json whole() const {
    Json prompt_ids = Json::array(), completion_ids = Json::array(), values = Json::array(), ids = Json::array(),
         versions = Json::array(), names = Json::array(), reasons = Json::array();
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
      prompt_ids.push_back(prompts_[i].ids);
      for (const inference::CompletionResult& one : results_[i].completions) {
        const data::Completion& completion = one.completion;
        completion_ids.push_back(completion.ids);
        versions.push_back(completion.weights_version);
        names.push_back(service_.store.name_of(completion.weights_version));
        reasons.push_back(reason_of(completion.finish));
        if (!log_probs_) continue;
        Json value_rows = Json::array(), id_rows = Json::array();
        for (std::size_t t = 0; t < completion.ids.size(); ++t)
          ranked_log_probs(completion.ids[t], completion.log_probs[t], top_at(one.top, t), value_rows, id_rows);
        values.push_back(std::move(value_rows));
        ids.push_back(std::move(id_rows));
      }
    }
    return {{"prompt_ids", std::move(prompt_ids)},
            {"completion_ids", std::move(completion_ids)},
            {"logprobs", log_probs_ ? std::move(values) : Json(nullptr)},
            {"logprob_token_ids", log_probs_ ? std::move(ids) : Json(nullptr)},
            {"finish_reasons", std::move(reasons)},
            {"weights_versions", std::move(versions)},
            {"weights_version_names", std::move(names)}};
  }

  Service& service_;
  std::shared_ptr<const void> memory_;
  SharedExchange exchange_;
  std::vector<Prompt> prompts_;
  std::optional<std::int64_t> log_probs_;
  std::vector<inference::RequestResult> results_;
  std::size_t left_;
};

// Log-probs of sequences, in TRL's two forms.
class SequenceAnswer : public std::enable_shared_from_this<SequenceAnswer> {
 public:
  SequenceAnswer(Service& service, std::shared_ptr<const void> memory, SharedExchange exchange,
                 std::vector<std::vector<data::TokenId>> sequences, std::vector<std::int64_t> prompt_lengths,
                 std::int64_t alternatives, bool binary)
      : service_(service),
        memory_(std::move(memory)),
        exchange_(std::move(exchange)),
        sequences_(std::move(sequences)),
        prompt_lengths_(std::move(prompt_lengths)),
        alternatives_(alternatives),
        binary_(binary),
        results_(sequences_.size()),
        left_(sequences_.size()) {}

  void on_end(std::size_t sequence, inference::RequestResult&& result) {
    results_[sequence] = std::move(result);
    done();
  }
  // A sequence without a token to score.
  void done() {
    if (--left_ == 0)
      service_.write(exchange_, true,
                     [self = shared_from_this()] { return self->binary_ ? self->binary() : self->json(); });
  }
  void on_failed(const core::Error& error) { answer_error(*exchange_, error, true); }

  [[nodiscard]] bool asks(std::size_t sequence) const {
    return length(sequence) > (prompt_lengths_[sequence] == 0 ? 1 : 0);
  }

 private:
  struct Position {
    data::TokenId id;
    std::optional<float> log_prob;  // none: the first token of a sequence
    std::span<const TokenLogProb> top;
  };

  [[nodiscard]] std::int64_t length(std::size_t i) const {
    return static_cast<std::int64_t>(sequences_[i].size()) - prompt_lengths_[i];
  }
  [[nodiscard]] Position position(std::size_t i, std::int64_t t) const {
    const std::int64_t at = prompt_lengths_[i] + t;
    Position out{.id = sequences_[i][static_cast<std::size_t>(at)]};
    if (at == 0 || results_[i].completions.empty()) return out;
    const auto given = static_cast<std::size_t>(at - std::max<std::int64_t>(prompt_lengths_[i], 1));
    const inference::CompletionResult& result = results_[i].completions[0];
    if (given >= result.completion.log_probs.size()) return out;
    out.log_prob = result.completion.log_probs[given];
    out.top = top_at(result.top, given);
    return out;
  }

  [[nodiscard]] Json json() const {
    Json values = Json::array(), ids = Json::array();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      Json value_rows = Json::array(), id_rows = Json::array();
      for (std::int64_t t = 0; t < length(i); ++t) {
        const Position p = position(i, t);
        if (p.log_prob) {
          ranked_log_probs(p.id, *p.log_prob, p.top, value_rows, id_rows);
        } else {
          value_rows.push_back(Json::array());
          id_rows.push_back(Json::array());
        }
      }
      values.push_back(std::move(value_rows));
      ids.push_back(std::move(id_rows));
    }
    return {{"logprobs", std::move(values)}, {"logprob_token_ids", std::move(ids)}};
  }

  template <class T>
  [[nodiscard]] static std::string encoded(const std::vector<T>& values) {
    static_assert(std::endian::native == std::endian::little && sizeof(T) == 4);
    return core::base64({reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(T)});
  }

  [[nodiscard]] Json binary() const {
    std::int64_t longest = 0;
    Json lengths = Json::array();
    for (std::size_t i = 0; i < sequences_.size(); ++i) {
      longest = std::max(longest, length(i));
      lengths.push_back(length(i));
    }
    const auto rows = sequences_.size() * static_cast<std::size_t>(longest),
               k = static_cast<std::size_t>(alternatives_);
    constexpr float none = -std::numeric_limits<float>::infinity();
    std::vector<float> values(rows * k, none), own(rows, none);
    std::vector<std::int32_t> ids(rows * k, 0), own_ids(rows, 0);
    for (std::size_t i = 0; i < sequences_.size(); ++i)
      for (std::int64_t t = 0; t < length(i); ++t) {
        const Position p = position(i, t);
        if (!p.log_prob) continue;
        const std::size_t row = i * static_cast<std::size_t>(longest) + static_cast<std::size_t>(t);
        own[row] = *p.log_prob;
        own_ids[row] = p.id;
        for (std::size_t j = 0; j < std::min(k, p.top.size()); ++j) {
          values[row * k + j] = p.top[j].log_prob;
          ids[row * k + j] = p.top[j].id;
        }
      }
    return {{"logprobs_b64", encoded(values)},
            {"token_ids_b64", encoded(ids)},
            {"actual_logprobs_b64", encoded(own)},
            {"actual_token_ids_b64", encoded(own_ids)},
            {"shape", {sequences_.size(), longest, alternatives_}},
            {"completion_lengths", std::move(lengths)}};
  }

  Service& service_;
  std::shared_ptr<const void> memory_;
  SharedExchange exchange_;
  std::vector<std::vector<data::TokenId>> sequences_;
  std::vector<std::int64_t> prompt_lengths_;
  std::int64_t alternatives_;
  bool binary_;
  std::vector<inference::RequestResult> results_;
  std::size_t left_;
};

class TrlRoutes {
 public:
  explicit TrlRoutes(Service& service) : service_(service) {}

  void generate(const SharedExchange& exchange) {
    const Json body = merged(parse_body(exchange->request().body));
    Fields fields(body);
    refuse_images(fields);
    std::vector<Prompt> prompts = read_prompts(fields, "prompts", service_.model, true);
    start(exchange, fields, std::move(prompts));
  }

  void chat(const SharedExchange& exchange) {
    const Json body = merged(parse_body(exchange->request().body));
    Fields fields(body);
    const Json& conversations = fields.required("messages");
    if (!conversations.is_array() || conversations.empty())
      fields.wrong_type("messages", conversations, "a list of conversations");
    std::vector<Prompt> prompts;
    for (std::size_t i = 0; i < conversations.size(); ++i)
      prompts.push_back(render_chat(fields, checked_messages(conversations[i], "messages[" + std::to_string(i) + "]"),
                                    service_.model));
    start(exchange, fields, std::move(prompts));
  }

  void sequence_log_probs(const SharedExchange& exchange) {
    const Json body = parse_body(exchange->request().body);
    Fields fields(body);
    const Json& list = fields.required("sequences");
    if (!list.is_array() || list.empty()) fields.wrong_type("sequences", list, "a list of lists of token ids");
    const Json& lengths = fields.required("prompt_lengths");
    if (!lengths.is_array() || lengths.size() != list.size())
      fields.wrong_type("prompt_lengths", lengths, std::to_string(list.size()) + " numbers, one for each sequence");
    const std::int64_t alternatives =
        fields.integer("top_logprobs", 1, service_.vocab()).value_or(std::min<std::int64_t>(100, service_.vocab()));
    const double temperature = fields.number("temperature", 0.0, any_number).value_or(1.0);
    if (temperature == 0.0) fields.out_of_range("temperature", "0", "above 0");
    const std::string form = fields.text("response_format").value_or("json");
    if (form != "json" && form != "binary") fields.out_of_range("response_format", form, "json or binary");
    const auto weights = weights_of(fields);
    std::vector<std::vector<data::TokenId>> sequences;
    std::vector<std::int64_t> prompt_lengths;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = "sequences[" + std::to_string(i) + "]";
      sequences.push_back(token_ids(list[i], service_.vocab(), place));
      const auto size = static_cast<std::int64_t>(sequences.back().size());
      if (size > service_.model.length_limit()) too_long(std::to_string(size) + " tokens, " + place, service_.model);
      const std::optional<std::int64_t> length = whole(lengths[i]);
      if (!length || *length < 0 || *length > size)
        fields.out_of_range("prompt_lengths[" + std::to_string(i) + "]", quoted(lengths[i]),
                            "0 to " + std::to_string(size));
      prompt_lengths.push_back(*length);
    }
    service_.check_unread(fields);
    double tokens = 0, longest = 0;  // the binary form has a row for each place of the longest
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto length = static_cast<double>(sequences[i].size()) - static_cast<double>(prompt_lengths[i]);
      tokens += length;
      longest = std::max(longest, length);
    }
    auto memory = service_.answers.hold(
        answer_bytes({.tokens = tokens,
                      .log_probs = form == "binary" ? AnswerForm::streamed : AnswerForm::ranked,
                      .alternatives = alternatives}) +
            (form != "binary" ? 0.0
                              : answer_bytes({.tokens = longest * static_cast<double>(sequences.size()),
                                              .log_probs = AnswerForm::binary,
                                              .alternatives = alternatives})),
        "top_logprobs");
    const auto answer = std::make_shared<SequenceAnswer>(service_, std::move(memory), exchange, sequences,
                                                         prompt_lengths, alternatives, form == "binary");
    Engine::Work work{.id = service_.next_id("score-"),
                      .requests = {},
                      .on_failed = [answer](const core::Error& error) { answer->on_failed(error); }};
    std::size_t empty = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      if (!answer->asks(i)) {
        ++empty;
        continue;
      }
      const auto prompt = sequences[i].begin() + std::max<std::int64_t>(prompt_lengths[i], 1);
      inference::RequestSpec spec{.prompt = {sequences[i].begin(), prompt}, .given = {prompt, sequences[i].end()}};
      spec.sampling = {.temperature = temperature, .max_new_tokens = static_cast<std::int64_t>(spec.given.size())};
      spec.top_log_probs = alternatives;
      spec.weights = weights;
      spec.on_end = [answer, i](inference::RequestId, inference::RequestResult&& result) {
        answer->on_end(i, std::move(result));
      };
      work.requests.push_back(std::move(spec));
    }
    const bool any = !work.requests.empty();
    for (std::size_t i = 0; i < empty; ++i) answer->done();
    if (any) service_.submit(exchange, std::move(work));
  }

  void health(const SharedExchange& exchange) {
    if (const auto failure = service_.engine.failure())
      return answer_json(*exchange, {{"status", "unhealthy"}, {"message", failure->what()}}, 503);
    if (!service_.engine.healthy())
      return answer_json(*exchange, {{"status", "unhealthy"}, {"message", "a step of the engine does not end"}}, 503);
    answer_json(*exchange, {{"status", "ok"}});
  }

  void world_size(const SharedExchange& exchange) { answer_json(*exchange, {{"world_size", 1}}); }

  // A fence: what was asked for before it has been done when it is answered.
  void reset_prefix_cache(const SharedExchange& exchange) {
    const bool trl = exchange->request().target.starts_with("/reset_prefix_cache/");
    const auto reset = [this, exchange, trl] {
      service_.engine.call([](inference::DecoderEngine& engine) { engine.scheduler().reset_prefix_cache(); });
      answer_json(*exchange, trl ? Json{{"message", "Request received, resetting prefix cache status: True"}}
                                 : Json{{"success", true}});
    };
    service_.broadcasts.fence([this, exchange, trl, reset](const std::exception_ptr& failure) {
      try {
        if (failure != nullptr) std::rethrow_exception(failure);
        service_.later(exchange, trl, reset);
      } catch (const std::exception& error) {
        answer_error(*exchange, error, trl);
      }
    });
  }

 private:
  // generation_kwargs win over the named fields; what their names mean is the same.
  [[nodiscard]] static Json merged(Json body) {
    const auto at = body.find("generation_kwargs");
    if (at == body.end() || at->is_null()) return body;
    if (!at->is_object()) refuse_type("generation_kwargs", *at, "an object");
    const Json more = *at;
    body.erase("generation_kwargs");
    for (const auto& [name, value] : more.items()) body[name] = value;
    return body;
  }

  static void refuse_images(Fields& fields) {
    const Json* const images = fields.list("images");
    if (images == nullptr) return;
    for (const Json& one : *images)
      if (!one.is_null() && !(one.is_array() && one.empty()))
        refuse_request(400, 12, {.what = "images are not supported", .remedy = "the model reads text only"}, "images");
  }

  [[nodiscard]] inference::Forward::WeightsHandle weights_of(Fields& fields) const {
    if (const auto name = fields.text("model")) return service_.weights_of(*name);
    if (const std::string active = service_.active_adapter(); !active.empty()) return service_.weights_of(active);
    if (auto trained = service_.store.find(trained_adapter)) return trained;
    return service_.store.base();
  }

  // What rlalgo's trainer wants drawn: {"seed", "step", "first_indices": [prompts], "first_positions": [prompts]}, as
  // inference::LocalEngine would draw it.
  struct Draws {
    inference::DrawKey key;
    std::vector<std::uint64_t> first_indices;
    std::vector<std::uint32_t> first_positions;
  };

  [[nodiscard]] static std::optional<Draws> read_draws(Fields& fields, std::size_t prompts) {
    const Json* const object = fields.object("draws");
    if (object == nullptr) return std::nullopt;
    Fields inner(*object, "draws");
    const auto whole_number = [&](const char* name, const Json& value, std::uint64_t most) {
      if (!value.is_number_unsigned()) inner.wrong_type(name, value, "whole numbers of at least 0");
      const auto out = value.get<std::uint64_t>();
      if (out > most) inner.out_of_range(name, value.dump(), "at most " + std::to_string(most));
      return out;
    };
    Draws out;
    out.key.seed = whole_number("seed", inner.required("seed"), UINT64_MAX);
    out.key.step = whole_number("step", inner.required("step"), UINT64_MAX);
    for (const char* name : {"first_indices", "first_positions"}) {
      const Json& list = inner.required(name);
      if (!list.is_array() || list.size() != prompts)
        inner.wrong_type(name, list, std::to_string(prompts) + " numbers, one for each prompt");
    }
    for (const Json& value : inner.required("first_indices"))
      out.first_indices.push_back(whole_number("first_indices", value, UINT64_MAX));
    for (const Json& value : inner.required("first_positions"))
      out.first_positions.push_back(static_cast<std::uint32_t>(whole_number("first_positions", value, UINT32_MAX)));
    return out;
  }

  void start(const SharedExchange& exchange, Fields& fields, std::vector<Prompt> prompts) {
    SamplingRequest sampling = read_sampling(fields, service_.limits(), 16);
    service_.constrain(sampling.spec, sampling.pattern);
    std::optional<std::int64_t> log_probs = 0;
    if (const Json& body = fields.whole(); body.contains("logprobs")) {
      const std::int64_t most =
          service_.config.most_log_probs < 0 ? service_.vocab() : std::max<std::int64_t>(service_.most_log_probs(), 20);
      log_probs = fields.integer("logprobs", 0, most);
    }
    if (sampling.max_tokens == 0) fields.out_of_range("max_tokens", "0", "at least 1");
    const auto weights = weights_of(fields);
    (void)fields.find("truncate_prompt_tokens");
    for (const Prompt& prompt : prompts) check_length(prompt, service_.model);
    const std::optional<Draws> draws = read_draws(fields, prompts.size());
    service_.check_unread(fields);
    double bytes = 0;
    for (const Prompt& prompt : prompts) {
      const auto room = service_.model.length_limit() - static_cast<std::int64_t>(prompt.ids.size());
      bytes += answer_bytes({.tokens = static_cast<double>(prompt.ids.size())}) +
               answer_bytes({.tokens = static_cast<double>(sampling.spec.count) *
                                       static_cast<double>(std::min(sampling.spec.sampling.max_new_tokens, room)),
                             .log_probs = log_probs ? AnswerForm::ranked : AnswerForm::none,
                             .alternatives = log_probs.value_or(0)});
    }
    auto memory = service_.answers.hold(bytes, "n");
    const auto answer =
        std::make_shared<TrlAnswer>(service_, exchange, std::move(prompts), log_probs, std::move(memory));
    Engine::Work work{.id = service_.next_id("trl-"), .requests = {}, .on_failed = [answer](const core::Error& error) {
                        answer->on_failed(error);
                      }};
    for (std::size_t i = 0; i < answer->prompts().size(); ++i) {
      inference::RequestSpec spec = service_.request_for(sampling, answer->prompts()[i], weights);
      if (!spec.stop_strings.empty())
        spec.text_stream = service_.text_stream(spec, sampling.skip_special_tokens, false);
      spec.first_index = static_cast<std::uint64_t>(i) * static_cast<std::uint64_t>(spec.count);
      if (draws) {
        spec.key = draws->key;
        spec.first_index = draws->first_indices[i];
        spec.first_position = draws->first_positions[i];
      }
      spec.log_probs = inference::LogProbKind::drawn_from;
      spec.top_log_probs = log_probs.value_or(0);
      spec.on_end = [answer, i](inference::RequestId, inference::RequestResult&& result) {
        answer->on_end(i, std::move(result));
      };
      work.requests.push_back(std::move(spec));
    }
    service_.submit(exchange, std::move(work));
  }

  Service& service_;
};

}  // namespace rlalgo::serve::detail
