// Definitions of server.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/http/server.hpp>
#include <rlalgo/inference/engine_config.hpp>
#include <rlalgo/inference/memory_share.hpp>
#include <rlalgo/model/weights.hpp>
#include <rlalgo/os/open_files.hpp>
#include <rlalgo/serve/detail/answers.hpp>
#include <rlalgo/serve/detail/broadcast_routes.hpp>
#include <rlalgo/serve/detail/openai_routes.hpp>
#include <rlalgo/serve/detail/service.hpp>
#include <rlalgo/serve/detail/target.hpp>
#include <rlalgo/serve/detail/token_routes.hpp>
#include <rlalgo/serve/detail/trl_routes.hpp>
#include <rlalgo/serve/detail/weight_routes.hpp>
#include <rlalgo/serve/detail/who_asks.hpp>
#include <rlalgo/serve/metrics_text.hpp>
#include <rlalgo/serve/server.hpp>
#include <rlalgo/tensor/device.hpp>

namespace rlalgo::serve {

namespace detail {

// The bytes of both are looked at whatever they are: how long it takes says nothing of the key.
inline bool same_key(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0U : 1U;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned>(key.empty() ? 0 : static_cast<unsigned char>(key[i % key.size()]));
  return difference == 0;
}

// Answers requests by their method and path.
class Router {
 public:
  using Route = std::function<void(const SharedExchange&, const Target&)>;

  explicit Router(Service& service)
      : service_(service), openai_(service), trl_(service), tokens_(service), weights_(service), broadcasts_(service) {
    const auto plain = [](auto& owner, auto member) {
      return [&owner, member](const SharedExchange& exchange, const Target&) { (owner.*member)(exchange); };
    };
    add("POST", "/v1/completions", plain(openai_, &OpenAiRoutes::completions));
    add("POST", "/v1/chat/completions", plain(openai_, &OpenAiRoutes::chat_completions));
    add("GET", "/v1/models", plain(openai_, &OpenAiRoutes::models));
    add("POST", "/tokenize", plain(openai_, &OpenAiRoutes::tokenize));
    add("POST", "/detokenize", plain(openai_, &OpenAiRoutes::detokenize));
    add("GET", "/version", plain(openai_, &OpenAiRoutes::version), Access::open);
    add("POST", "/v1/load_lora_adapter", plain(weights_, &WeightRoutes::load_adapter));
    add("POST", "/v1/unload_lora_adapter", plain(weights_, &WeightRoutes::unload_adapter));
    add("POST", "/reset_prefix_cache", plain(trl_, &TrlRoutes::reset_prefix_cache));
    add("GET", "/get_world_size", plain(trl_, &TrlRoutes::world_size));
    add("POST", "/resume", plain(weights_, &WeightRoutes::resume));
    add("GET", "/is_paused", plain(weights_, &WeightRoutes::is_paused));
    add("POST", "/abort_requests", plain(weights_, &WeightRoutes::abort_requests));
    add("GET", "/weight_info", plain(weights_, &WeightRoutes::weight_info));
    add("POST", "/update_weight_version", plain(weights_, &WeightRoutes::name_version));
    add("POST", "/init_weight_transfer_engine", plain(weights_, &WeightRoutes::init_transfer));
    add("POST", "/start_weight_update", plain(weights_, &WeightRoutes::start_transfer));
    add("POST", "/update_weights", plain(weights_, &WeightRoutes::update_transfer), Access::guarded, Form::error,
        Size::weights);
    add("POST", "/finish_weight_update", plain(weights_, &WeightRoutes::finish_transfer));
    add("GET", "/server_info", plain(weights_, &WeightRoutes::server_info));
    add("GET", "/is_sleeping", plain(weights_, &WeightRoutes::is_sleeping));
    add("POST", "/sleep",
        [this](const SharedExchange& exchange, const Target& target) { weights_.sleep(exchange, target); });
    add("POST", "/wake_up",
        [this](const SharedExchange& exchange, const Target& target) { weights_.wake_up(exchange, target); });
    add("POST", "/weight_checker", plain(weights_, &WeightRoutes::weight_checker));
    add("POST", "/inference/v1/generate", plain(tokens_, &TokenRoutes::generate));
    add("POST", "/pause", [this](const SharedExchange& exchange, const Target& target) {
      weights_.pause(exchange, target.query("mode"));
    });
    add(
        "GET", "/health",
        [this](const SharedExchange& exchange, const Target&) {
          exchange->respond({.status = service_.engine.healthy() ? 200 : 503});
        },
        Access::open);
    const Route ping = [](const SharedExchange& exchange, const Target&) { exchange->respond({.status = 200}); };
    add("GET", "/ping", ping, Access::open);
    add("POST", "/ping", ping, Access::open);
    add(
        "GET", "/metrics",
        [this](const SharedExchange& exchange, const Target&) {
          exchange->respond({.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}},
                             .body = metrics_text(service_.engine.counts(), service_.model.name)});
        },
        Access::open);
    add("GET", "/openapi.json", [this](const SharedExchange& exchange, const Target&) { openapi(exchange); });
    add("GET", "/health/", plain(trl_, &TrlRoutes::health), Access::open, Form::detail);
    add("GET", "/get_world_size/", plain(trl_, &TrlRoutes::world_size), Access::guarded, Form::detail);
    trl("/generate/", plain(trl_, &TrlRoutes::generate));
    trl("/chat/", plain(trl_, &TrlRoutes::chat));
    trl("/get_sequence_logprobs/", plain(trl_, &TrlRoutes::sequence_log_probs));
    trl("/reset_prefix_cache/", plain(trl_, &TrlRoutes::reset_prefix_cache));
    trl("/set_lora_adapter/", plain(weights_, &WeightRoutes::set_adapter));
    trl("/clear_lora_adapter/", plain(weights_, &WeightRoutes::clear_adapter));
    add("POST", "/http_update_weights/", plain(weights_, &WeightRoutes::http_update), Access::guarded, Form::detail,
        Size::weights);
    // Trainers take these in /openapi.json for NCCL: they are not listed.
    const auto unlisted = [&](const char* path, auto member) {
      add("POST", path, plain(broadcasts_, member), Access::guarded, Form::detail, Size::usual, false);
    };
    unlisted("/init_communicator/", &BroadcastRoutes::open);
    unlisted("/update_named_param/", &BroadcastRoutes::announce_one);
    unlisted("/batch_update_named_params/", &BroadcastRoutes::announce);
    unlisted("/close_communicator/", &BroadcastRoutes::close);
  }

  // Whether a request may send its body: who asks, for what, and how large it is. On a thread that reads sockets.
  [[nodiscard]] http::Admission admit(const http::Request& head, std::optional<std::uint64_t> length) {
    Form form = Form::error;
    try {
      const Target target(head.target);
      const auto at = find(target.path());
      if (at != routes_.end()) form = at->second.form;
      const bool open = at != routes_.end() && at->second.access == Access::open;
      if (!open && head.method != "OPTIONS") check_key(head);
      const ServerConfig& config = service_.config;
      const bool body = length.value_or(1) > 0 && (head.method == "POST" || head.method == "PUT" || length);
      if (config.api_key.empty() && !open) {
        check_origin(head.headers, is_loopback(config.http.host), config.allowed_hosts);
        if (body) check_content_type(head.headers);
      }
      if (at != routes_.end()) check_method(at->second, head.method, target.path());
      const bool weights = at != routes_.end() && at->second.size == Size::weights;
      const std::size_t most = weights ? config.http.body_limit : std::min(config.body_limit, config.http.body_limit);
      if (length.value_or(0) > most)
        refuse_request(413, 11,
                       {.what = "the body is too large",
                        .found = std::to_string(*length) + " bytes",
                        .expected = "at most " + std::to_string(most)});
      return {.refusal = std::nullopt, .body_limit = most};
    } catch (const std::exception& error) {
      return {.refusal = error_response(error, form == Form::detail), .body_limit = 0};
    }
  }

  // What answers at once does so here, on a thread that reads sockets; the rest is for the pool.
  void operator()(const SharedExchange& exchange) {
    const auto at = find(Target(exchange->request().target).path());
    const bool quick = at == routes_.end() || at->second.access == Access::open;
    if (quick) return serve(exchange);
    try {
      service_.pool.add(exchange->request().peer, [this, exchange] {
        if (!exchange->gone()) serve(exchange);
      });
    } catch (const std::exception& error) {
      answer_error(*exchange, error, at->second.form == Form::detail);
    }
  }

 private:
  void serve(const SharedExchange& exchange) {
    Form form = Form::error;
    try {
      const Target target(exchange->request().target);
      const auto at = find(target.path());
      if (at == routes_.end()) return elsewhere(exchange, target);
      Entry& entry = at->second;
      form = entry.form;
      check_method(entry, exchange->request().method, target.path());
      if (const auto failure = service_.engine.failure(); failure && entry.access != Access::open)
        throw Refusal(503, {}, *failure);
      if (service_.engine.draining() && entry.access != Access::open)
        refuse_request(503, 10, {.what = "the server is shutting down", .remedy = "ask another one"});
      entry.methods.find(known_method(exchange->request().method))->second(exchange, target);
    } catch (const std::exception& error) {
      answer_error(*exchange, error, form == Form::detail);
    }
  }

  enum class Access { guarded, open };
  enum class Form { error, detail };
  enum class Size { usual, weights };
  struct Entry {
    std::map<std::string, Route> methods;
    Access access = Access::guarded;
    Form form = Form::error;
    Size size = Size::usual;
    bool listed = true;
  };

  void add(const char* method, const char* path, Route route, Access access = Access::guarded, Form form = Form::error,
           Size size = Size::usual, bool listed = true) {
    Entry& entry = routes_[path];
    entry.methods[method] = std::move(route);
    entry.access = access;
    entry.form = form;
    entry.size = size;
    entry.listed = listed;
  }
  void trl(const char* path, Route route) { add("POST", path, std::move(route), Access::guarded, Form::detail); }

  // A path is also known with, or without, a slash at its end.
  std::map<std::string, Entry, std::less<>>::iterator find(const std::string& path) {
    auto at = routes_.find(path);
    if (at == routes_.end() && path.size() > 1)
      at = routes_.find(path.back() == '/' ? path.substr(0, path.size() - 1) : path + "/");
    return at;
  }

  [[nodiscard]] const std::string& known_method(const std::string& method) const {
    return method == "HEAD" ? get_ : method;
  }
  void check_method(const Entry& entry, const std::string& method, const std::string& path) const {
    if (!entry.methods.contains(known_method(method))) wrong_method(method, path);
  }

  void check_key(const http::Request& head) const {
    if (service_.config.api_key.empty()) return;
    const std::string* const header = http::find_header(head.headers, "Authorization");
    constexpr std::string_view scheme = "Bearer ";
    bool good = header != nullptr && header->size() >= scheme.size() &&
                http::same_name(std::string_view(*header).substr(0, scheme.size()), scheme);
    const std::string_view given = good ? std::string_view(*header).substr(scheme.size()) : std::string_view();
    good = same_key(given, service_.config.api_key) && good;
    if (!good)
      refuse_request(401, 8,
                     {.what = "the request has no valid key", .expected = "the header Authorization: Bearer KEY"});
  }

  void elsewhere(const SharedExchange& exchange, const Target& target) {
    constexpr std::string_view models = "/v1/models/";
    if (target.path().starts_with(models)) {
      if (exchange->request().method != "GET" && exchange->request().method != "HEAD")
        wrong_method(exchange->request().method, target.path());
      return openai_.model(exchange, target.path().substr(models.size()));
    }
    refuse_request(404, 6, {.what = "there is no such route", .found = target.path()});
  }

  [[noreturn]] static void wrong_method(const std::string& method, const std::string& path) {
    refuse_request(405, 7, {.what = "the route has no such method", .found = method, .where = path});
  }

  void openapi(const SharedExchange& exchange) {
    Json paths = Json::object();
    for (const auto& [path, entry] : routes_) {
      if (!entry.listed) continue;
      for (const auto& [method, route] : entry.methods) {
        std::string lower = method;
        for (char& c : lower) c = static_cast<char>(c + 32);
        paths[path][lower] = {{"responses", {{"200", {{"description", "OK"}}}}}};
      }
    }
    answer_json(*exchange, {{"openapi", "3.1.0"},
                            {"info", {{"title", "rlalgo"}, {"version", std::string(rlalgo::version)}}},
                            {"paths", std::move(paths)}});
  }

  Service& service_;
  OpenAiRoutes openai_;
  TrlRoutes trl_;
  TokenRoutes tokens_;
  WeightRoutes weights_;
  BroadcastRoutes broadcasts_;
  std::map<std::string, Entry, std::less<>> routes_;
  const std::string get_ = "GET";
};

// A line about the load every few seconds, while there is any.
class LoadReport {
 public:
  LoadReport(Service& service, double seconds) : service_(service), seconds_(seconds) {
    if (seconds_ > 0.0 && service_.config.tell) thread_ = std::thread([this] { loop(); });
  }
  ~LoadReport() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  LoadReport(const LoadReport&) = delete;
  LoadReport& operator=(const LoadReport&) = delete;

 private:
  void loop() {
    Engine::Counts before = service_.engine.counts();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, std::chrono::duration<double>(seconds_), [&] { return over_; })) {
      const Engine::Counts now = service_.engine.counts();
      const auto drawn = now.scheduler.drawn_tokens - before.scheduler.drawn_tokens;
      const auto asked = now.scheduler.prompt_tokens - before.scheduler.prompt_tokens;
      const auto found = now.scheduler.cached_tokens - before.scheduler.cached_tokens;
      before = now;
      if (drawn == 0 && asked == 0 && now.scheduler.running == 0 && now.pending == 0) continue;
      char line[256];
      std::snprintf(line, sizeof line,
                    "running %zu, waiting %zu, %.1f tokens/s, prompts %.1f tokens/s, pages %zu%s, prefix hits %.0f %%",
                    now.scheduler.running, now.scheduler.waiting + now.pending, static_cast<double>(drawn) / seconds_,
                    static_cast<double>(asked) / seconds_, now.scheduler.pages_in_use,
                    now.page_limit == 0 ? "" : (" of " + std::to_string(now.page_limit)).c_str(),
                    asked == 0 ? 0.0 : 100.0 * static_cast<double>(found) / static_cast<double>(asked));
      service_.config.tell(line);
    }
  }

  Service& service_;
  double seconds_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// Memory for keys and values on a device: what its share leaves, and no more than what is free. Nothing where it does not say how much
// it has.
inline void share_device(ServerConfig& config, const ServedModel& model, const model::DecoderWeights& weights) {
  inference::EngineConfig& engine = config.engine.engine;
  const std::int64_t longest = model.length_limit();
  const inference::MemoryShare share =
      inference::memory_share(model.decoder->config(), weights, engine, config.memory_fraction, longest);
  if (share.total == 0.0) return;
  const double free = static_cast<double>(tensor::device_memory(*engine.device).free),
               page = static_cast<double>(share.page_bytes),
               left = std::min(share.left(), free - share.copies - share.passes);
  const auto megabytes = [](double bytes) { return std::to_string(static_cast<std::int64_t>(bytes / 1e6)) + " MB"; };
  const std::string copies = share.copies > 0.0 ? ", copies in 8 bits " + megabytes(share.copies) : "";
  if (left < share.page_memory(1))
    core::raise_usage(
        "serve", 32,
        {.what = "there is no memory for keys and values on the device",
         .found = megabytes(share.share()) + " of " + megabytes(share.total) + " for the server, " + megabytes(free) +
                  " free: weights " + megabytes(share.weights) + copies + ", passes " + megabytes(share.passes),
         .expected =
             megabytes(share.page_memory(longest)) + " more, for a request of " + std::to_string(longest) + " tokens",
         .where = engine.device->str(),
         .remedy = "raise --gpu-memory-utilization, lower --max-num-seqs or --max-model-len, or end what else uses the "
                   "device"});
  const auto pages = static_cast<std::size_t>(left / page);
  engine.cache_bytes = pages * share.page_bytes;
  if (!config.tell) return;
  const std::int64_t tokens = static_cast<std::int64_t>(pages) * cpu::page_positions;
  config.tell(engine.device->str() + ": " + megabytes(share.total) + ", weights " + megabytes(share.weights) + copies +
              ", passes " + megabytes(share.passes) + ", keys and values " +
              megabytes(static_cast<double>(engine.cache_bytes)) + " for " + std::to_string(tokens) + " tokens");
  if (left < share.page_memory(longest))
    config.tell("warning: longer requests than that are refused, though the model takes " + std::to_string(longest) +
                " tokens: raise --gpu-memory-utilization, or set --max-model-len");
}

inline ServerConfig checked(ServerConfig config, const ServedModel& model) {
  if (config.http.host == "localhost") config.http.host = "127.0.0.1";
  if (!is_loopback(config.http.host) && config.api_key.empty() && !config.open_to_all)
    core::raise_usage("serve", 22,
                      {.what = "an address that others reach needs a key",
                       .found = config.http.host,
                       .remedy = "give one (--api-key-file, or VLLM_API_KEY), or listen on 127.0.0.1"});
  config.http.tell = config.tell;
  (void)os::raise_open_files();
  inference::EngineConfig& engine = config.engine.engine;
  const model::DecoderWeights& weights = model.weights != nullptr ? *model.weights : model.decoder->weights();
  engine = engine.for_weights(weights);
  if (engine.cache_bytes == 0 && config.memory_fraction > 0.0 && !engine.device->is_cpu())
    share_device(config, model, weights);
  // Memory for 1 GiB of keys and values, and for the longest request at least.
  if (engine.cache_bytes == 0) {
    const model::DecoderConfig& decoder = model.decoder->config();
    const inference::KvCache pages(decoder, *engine.cache_element);
    const std::size_t longest = (inference::KvCache::pages_for(model.length_limit()) + 2) * pages.page_bytes();
    engine.cache_bytes = std::max(std::size_t{1} << 30U, longest);
  }
  return config;
}

}  // namespace detail

struct GenerationServer::State {
  State(ServedModel model, ServerConfig config)
      : service(std::move(model), std::move(config)),
        router(service),
        report(service, service.config.report_seconds),
        server(admitting(service.config.http), [this](const detail::SharedExchange& exchange) {
          if (logs()) log_answer(*exchange);
          router(exchange);
        }) {}
  [[nodiscard]] bool logs() const { return service.config.access_log && service.config.tell; }
  [[nodiscard]] http::ServerConfig admitting(http::ServerConfig config) {
    config.admit = [this](const http::Request& head, std::optional<std::uint64_t> length) {
      http::Admission out = router.admit(head, length);
      if (out.refusal && logs())
        service.config.tell(head.peer + " " + head.method + " " + head.target + " " +
                            std::to_string(out.refusal->status) + " 0.0 ms");
      return out;
    };
    return config;
  }
  // A line of the access log: who asked, what, the status, and the milliseconds to the end of the answer.
  void log_answer(http::Exchange& exchange) {
    const http::Request& request = exchange.request();
    exchange.when_answered([this, asked = request.peer + " " + request.method + " " + request.target + " ",
                            since = std::chrono::steady_clock::now()](int status) {
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - since;
      char end[48];
      std::snprintf(end, sizeof end, "%d %.1f ms", status, took.count());
      service.config.tell(asked + end);
    });
  }
  // What still waits refers to the routes.
  ~State() {
    server.stop(0.0);
    service.pool.stop();
    service.broadcasts.stop();
    service.tasks.stop();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  detail::Service service;
  detail::Router router;
  detail::LoadReport report;
  http::Server server;
};

RLALGO_INLINE GenerationServer::GenerationServer(ServedModel model, ServerConfig config) {
  config = detail::checked(std::move(config), model);
  state_ = std::make_unique<State>(std::move(model), std::move(config));
}

RLALGO_INLINE GenerationServer::~GenerationServer() { stop(0.0); }

RLALGO_INLINE std::uint16_t GenerationServer::port() const { return state_->server.port(); }
RLALGO_INLINE std::string GenerationServer::url() const { return state_->server.url(); }
RLALGO_INLINE Engine::Counts GenerationServer::counts() const { return state_->service.engine.counts(); }

RLALGO_INLINE std::optional<core::Error> GenerationServer::failure() const { return state_->service.engine.failure(); }

RLALGO_INLINE void GenerationServer::replace_weights(std::shared_ptr<const model::DecoderWeights> weights,
                                                     const std::string& name) {
  state_->service.store.replace(std::move(weights), name);
}

RLALGO_INLINE void GenerationServer::stop(double seconds) {
  state_->service.engine.drain(seconds);
  state_->server.stop(5.0);
}

}  // namespace rlalgo::serve
