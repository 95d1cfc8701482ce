// What all routes of a server share, and how work is handed over for an exchange.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/http/exchange.hpp>
#include <rlalgo/inference/text_streams.hpp>
#include <rlalgo/serve/answer_budget.hpp>
#include <rlalgo/serve/broadcasts.hpp>
#include <rlalgo/serve/constrained_tokens.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/engine.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/prompts.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/repeatable_draws.hpp>
#include <rlalgo/serve/request_pool.hpp>
#include <rlalgo/serve/sampling_fields.hpp>
#include <rlalgo/serve/served_model.hpp>
#include <rlalgo/serve/server_config.hpp>
#include <rlalgo/serve/task_queue.hpp>
#include <rlalgo/serve/weight_store.hpp>

namespace rlalgo::serve::detail {

using SharedExchange = std::shared_ptr<http::Exchange>;

class Service {
 public:
  Service(ServedModel served, ServerConfig settings)
      : model(std::move(served)),
        config(std::move(settings)),
        engine(model.decoder->config(), config.engine, model.stop_ids),
        store(model.decoder, engine, model.weights),
        broadcasts(store, {.address = config.http.host, .seconds = config.broadcast_seconds}),
        answers(config.answer_bytes) {
    for (const NamedAdapter& adapter : config.adapters) {
      if (adapter.name == model.name)
        core::raise_usage("serve", 31,
                          {.what = "an adapter has the name of the model",
                           .found = adapter.name,
                           .remedy = "give one of them another name: requests say which they mean by it"});
      store.load_adapter(adapter.name, adapter.path, false);
    }
  }

  const ServedModel model;
  const ServerConfig config;
  Engine engine;
  WeightStore store;
  TaskQueue tasks;  // adapters and weights, one after the other
  Broadcasts broadcasts;
  const AnswerBudget answers;
  RequestPool pool;  // the last: its threads use the others

  [[nodiscard]] std::int64_t vocab() const { return model.decoder->config().vocab_size; }
  [[nodiscard]] SamplingLimits limits() const { return {.vocab_size = vocab(), .length = model.length_limit()}; }
  // As a range of "logprobs": −1 of the configuration stands for the vocabulary.
  [[nodiscard]] std::int64_t most_log_probs() const {
    return config.most_log_probs < 0 ? vocab() : std::min(config.most_log_probs, vocab());
  }

  // The weights of the model or adapter of that name. Raises serve.5.
  [[nodiscard]] inference::Forward::WeightsHandle weights_of(const std::string& name) const {
    if (name.empty() || name == model.name || name == model.root) return store.base();
    if (auto handle = store.find(name)) return handle;
    if (model.any_name) return store.base();
    refuse_request(404, 5,
                   {.what = "there is no such model",
                    .found = name,
                    .expected = model.name + ", or an adapter that is loaded",
                    .remedy = "GET /v1/models lists them"},
                   "model");
  }

  // Whether adapters may be read from anywhere: nobody but this machine's own programs asks.
  [[nodiscard]] bool any_path() const { return config.http.host.starts_with("127.") || config.http.host == "::1"; }

  // The adapter that routes without a "model" answer with; empty: none.
  [[nodiscard]] std::string active_adapter() const {
    const std::lock_guard lock(mutex_);
    return active_adapter_;
  }
  void set_active_adapter(std::string name) {
    const std::lock_guard lock(mutex_);
    active_adapter_ = std::move(name);
  }

  // Says a name that no route asks for once; with ServerConfig::strict raises serve.21.
  void check_unread(const Fields& fields) {
    for (const std::string& name : fields.unread()) {
      if (config.strict)
        refuse_request(400, 21,
                       {.what = "a field is not known", .found = name, .remedy = "leave it out; the server is strict"},
                       name);
      const std::lock_guard lock(mutex_);
      if (told_.size() < most_told && told_.insert(name).second && config.tell)
        config.tell("a request has a field that is not known and has no effect: " + name);
    }
  }

  // Decodes completions of `spec` as they go on its prompt's text. The id that ends one is no text, unless
  // `include_end` says so.
  [[nodiscard]] std::function<inference::TextStream()> text_stream(const inference::RequestSpec& spec,
                                                                   bool skip_special_tokens, bool include_end) const {
    std::vector<data::TokenId> ends;
    if (!include_end) {
      ends = spec.sampling.stop_ids;
      if (!spec.ignore_eos) ends.insert(ends.end(), model.stop_ids.begin(), model.stop_ids.end());
    }
    return inference::text_streams(model.tokenizer, spec.prompt, std::move(ends), skip_special_tokens);
  }

  // Keeps the text of completions to an expression. Raises serve.12, .4 and .23.
  void constrain(inference::RequestSpec& spec, const std::optional<std::string>& pattern) {
    if (!pattern) return;
    if (!model.tokenizer.streams_bytes())
      refuse_request(400, 12,
                     {.what = "structured output is not supported with this model's tokenizer",
                      .expected = "one that works on bytes (ByteLevel)"});
    if (spec.min_new_tokens > 0)
      refuse_request(400, 4,
                     {.what = "a value is out of range",
                      .found = std::to_string(spec.min_new_tokens),
                      .expected = "0 with structured output",
                      .where = "min_tokens"},
                     "min_tokens");
    std::vector<data::TokenId> ends = model.stop_ids;
    ends.insert(ends.end(), spec.sampling.stop_ids.begin(), spec.sampling.stop_ids.end());
    spec.edit_logits = [before = std::move(spec.edit_logits), tokens = constraint(*pattern), ends = std::move(ends)](
                           std::span<float> logits, std::span<const data::TokenId> completion) {
      if (before) before(logits, completion);
      (*tokens)(logits, completion, ends);
    };
  }

  // Hands work over; it ends when the client of `exchange` leaves.
  void submit(const SharedExchange& exchange, Engine::Work work) {
    work.seconds = config.request_seconds;
    if (work.client.empty()) work.client = exchange->request().peer;
    const Engine::Ticket ticket = engine.submit(std::move(work));
    exchange->on_gone([this, ticket] { engine.cancel(ticket); });
  }

  // Whole answers are written by the pool, not by the engine's thread. `detail`: answer_error.
  void write(const SharedExchange& exchange, bool detail, std::function<Json()> answer) {
    pool.finish(exchange->request().peer, [exchange, detail, answer = std::move(answer)] {
      try {
        if (!exchange->gone()) answer_json(*exchange, answer());
      } catch (const std::exception& error) {
        answer_error(*exchange, error, detail);
      }
    });
  }

  // Work on adapters or weights, in the order given; what it throws is the answer of `exchange` (`detail`: answer_error).
  void later(const SharedExchange& exchange, bool detail, std::function<void()> task) {
    tasks.add([exchange, detail, task = std::move(task)] {
      try {
        task();
      } catch (const std::exception& error) {
        answer_error(*exchange, error, detail);
      }
    });
  }

  // The answer of `exchange` when an act of `broadcasts` is done.
  [[nodiscard]] static Broadcasts::Done answer_when_done(const SharedExchange& exchange, const char* message,
                                                         bool detail) {
    return [exchange, message, detail](const std::exception_ptr& failure) {
      if (failure == nullptr) return answer_json(*exchange, {{"message", message}});
      answer_failure(*exchange, failure, detail);
    };
  }
  static void answer_failure(http::Exchange& exchange, const std::exception_ptr& failure, bool detail) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      answer_error(exchange, error, detail);
    }
  }

  // What the scheduler is asked for a prompt: never more tokens than the model's length leaves.
  [[nodiscard]] inference::RequestSpec request_for(const SamplingRequest& sampling, const Prompt& prompt,
                                                   const inference::Forward::WeightsHandle& weights) {
    inference::RequestSpec spec = sampling.spec;
    spec.prompt = prompt.ids;
    if (config.seed && !sampling.seeded)
      spec.key = draws_.next(*config.seed, store.name_of(weights->version), prompt.ids);
    spec.sampling.max_new_tokens =
        std::min(spec.sampling.max_new_tokens, model.length_limit() - static_cast<std::int64_t>(spec.prompt.size()));
    spec.min_new_tokens = std::min(spec.min_new_tokens, spec.sampling.max_new_tokens);
    spec.weights = weights;
    return spec;
  }

  [[nodiscard]] std::string next_id(const char* prefix) {
    return prefix + std::to_string(started_) + "-" + std::to_string(++requests_);
  }
  [[nodiscard]] std::int64_t started() const noexcept { return started_; }

 private:
  // Of an expression that was asked for lately, with what is known of it.
  [[nodiscard]] std::shared_ptr<const ConstrainedTokens> constraint(const std::string& pattern) {
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = constraints_.find(pattern); at != constraints_.end()) return at->second;
    }
    auto out = std::make_shared<const ConstrainedTokens>(pattern, model.tokenizer, vocab());
    const std::lock_guard lock(mutex_);
    if (constraints_.size() >= most_constraints) constraints_.clear();
    return constraints_.emplace(pattern, std::move(out)).first->second;
  }

  static constexpr std::size_t most_constraints = 16;
  static constexpr std::size_t most_told = 1000;
  const std::int64_t started_ =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  std::atomic<std::uint64_t> requests_ = 0;
  mutable std::mutex mutex_;
  std::string active_adapter_;
  std::set<std::string> told_;
  std::map<std::string, std::shared_ptr<const ConstrainedTokens>> constraints_;
  RepeatableDraws draws_;
};

}  // namespace rlalgo::serve::detail
