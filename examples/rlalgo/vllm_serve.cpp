// A generation server over a model directory, or the result of a training.
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/serve_section.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/server.hpp>

#include "json_lines.hpp"
#include "log.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

// The `vllm:` section of a configuration says what no option does.
struct ServeOptions {
  std::string model, name, dtype = "auto", device = "auto", generation_config = "auto", api_key, api_key_file,
                           weight_transfer;
  std::vector<std::string> allowed_paths, lora_modules;
  serve::ServerConfig server;
  EngineOptions numbers;
  int port = 8000;
  std::int64_t max_model_len = 0, max_num_batched_tokens = 0, cache_megabytes = 0, answer_megabytes = 0;
  double drain_seconds = 30;
  std::set<std::string> given = {};  // of the options that a section has keys for, and that a device changes
  std::string share_named_by = "--gpu-memory-utilization";
  std::vector<std::string> idle = {};
};

// Options of axolotl's vllm-serve that the `vllm:` section has, too, and that change nothing here.
constexpr std::array<std::pair<const char*, const char*>, 4> idle_options = {{
    {"--tensor-parallel-size", "the server is one process with one copy of the model"},
    {"--data-parallel-size", "the server is one process with one copy of the model"},
    {"--enable-prefix-caching", "prefixes are always shared, which changes no answer"},
    {"--serve-module", "the server is this program"},
}};

bool is_configuration(const std::string& model) { return model.ends_with(".yaml") || model.ends_with(".yml"); }

void read_section(ServeOptions& options) {
  if (!is_configuration(options.model)) return;
  const config::ServeSection section =
      config::read_serve_section(config::load_document(os::expand_home(options.model)));
  for (const std::string& line : section.warnings) warning(line);
  const auto set = [&](const char* option, auto& place, const auto& value) {
    if (value && !options.given.contains(option)) place = static_cast<std::decay_t<decltype(place)>>(*value);
  };
  // An address that others reach is the file's alone: without a key the server listens where it may.
  const auto reaches = [](const std::string& host) {
    return !host.starts_with("127.") && host != "::1" && host != "localhost";
  };
  std::optional<std::string> host = section.host;
  if (host && reaches(*host) && !options.given.contains("--host") && options.api_key.empty() &&
      !options.server.open_to_all) {
    warning(
        "vllm.host: " + *host +
        " needs a key, or everybody who reaches this machine could use and change the model: "
        "listening on 127.0.0.1. --api-key KEY listens there with a key (VLLM_API_KEY of a training), --open-to-all "
        "without one");
    host = "127.0.0.1";
  }
  set("--host", options.server.http.host, host);
  set("--port", options.port, section.port);
  set("--dtype", options.dtype, section.dtype);
  set("--device", options.device, section.device);
  set("--max-model-len", options.max_model_len, section.max_model_len);
  set("--gpu-memory-utilization", options.server.memory_fraction, section.gpu_memory_utilization);
  if (section.gpu_memory_utilization && options.given.insert("--gpu-memory-utilization").second)
    options.share_named_by = "vllm.gpu_memory_utilization";
}

config::RunConfig model_of(const ServeOptions& options) {
  if (options.model.empty())
    core::raise_usage("cli", 22, {.what = "`rlalgo vllm-serve` needs a model directory or a configuration file"});
  config::RunConfig run;
  run.base_model = options.model;
  if (is_configuration(options.model)) run = config::load_run_config(options.model, device_override(options.device));
  choose_device(options.device, options.dtype, run);
  run.lora.reset();  // what is trained is loaded by the trainer
  return run;
}

serve::SamplingDefaults defaults_of(const ServeOptions& options, const config::RunConfig& run) {
  if (options.generation_config == "vllm") return {};
  const bool own = options.generation_config == "auto";
  const std::filesystem::path directory =
      own ? config::find_model(run).base
          : std::filesystem::path(os::expand_home(options.generation_config, "--generation-config"));
  const auto found = model::read_generation_config(directory);
  if (!found && !own)
    core::raise_usage("cli", 7,
                      {.what = "an option has no such value",
                       .found = "--generation-config " + options.generation_config,
                       .expected = "auto, vllm, or a directory with generation_config.json"});
  return found ? serve::sampling_defaults(*found, (directory / "generation_config.json").string())
               : serve::SamplingDefaults{};
}

serve::ServedModel load(const ServeOptions& options) {
  const config::RunConfig run = model_of(options);
  const serve::SamplingDefaults defaults = defaults_of(options, run);
  const bool adapter = !config::find_model(run).adapter.empty();
  assembly::LanguageModel model = assembly::LanguageModel::load(config::language_model_of(run));
  // An adapter's directory is served as the model, under its own name: its base is another one.
  const std::string root = adapter ? run.base_model : model.base_model;
  return {.name = options.name.empty() ? root : options.name,
          .root = root,
          .parent = adapter ? model.base_model : "",
          .decoder = std::move(model.decoder),
          .tokenizer = std::move(model.tokenizer),
          .chat_template = std::move(model.chat_template),
          .stop_ids = std::move(model.stop_ids),
          .max_model_len = options.max_model_len,
          .sampling = defaults};
}

// vLLM's option: {"backend": "gloo"}.
std::string broadcast_backend(const std::string& option) {
  const serve::Json config = serve::Json::parse(option, nullptr, false);
  const auto backend = config.is_object() ? config.find("backend") : config.end();
  const bool text = backend != config.end() && backend->is_string();
  if (!text || (*backend != "gloo" && *backend != "nccl") || (*backend == "gloo" && !distributed::gloo_built()))
    core::raise_usage("cli", 7,
                      {.what = "an option has no such value",
                       .found = "--weight-transfer-config " + option,
                       .expected = distributed::gloo_built()
                                       ? R"('{"backend": "gloo"}' or '{"backend": "nccl"}')"
                                       : R"('{"backend": "nccl"}': this program was compiled without libgloo-dev)"});
  return backend->get<std::string>();
}

// vLLM's option: name=directory, or {"name": …, "path": …}.
serve::NamedAdapter named_adapter(const std::string& word) {
  const std::size_t equals = word.find('=');
  std::string name = word.substr(0, equals == std::string::npos ? 0 : equals),
              path = equals == std::string::npos ? "" : word.substr(equals + 1);
  if (word.starts_with("{")) {
    const serve::Json object = serve::Json::parse(word, nullptr, false);
    const auto text = [&](const char* key) {
      const bool good = object.is_object() && object.contains(key) && object[key].is_string();
      return good ? object[key].get<std::string>() : std::string();
    };
    name = text("name"), path = text("path");
  }
  if (name.empty() || path.empty())
    core::raise_usage("cli", 7,
                      {.what = "an option has no such value",
                       .found = "--lora-modules " + word,
                       .expected = R"(name=directory, or '{"name": …, "path": …}'; the model stands before it)"});
  return {name, os::expand_home(path, "--lora-modules")};
}

// The option's, which `ps` shows to everybody; the first line of a file; or the environment's.
std::string key_of(const ServeOptions& options) {
  if (!options.api_key.empty()) return options.api_key;
  if (options.api_key_file.empty()) {
    const char* const key = std::getenv("VLLM_API_KEY");
    return key != nullptr ? key : "";
  }
  const std::string path = os::expand_home(options.api_key_file, "--api-key-file");
  os::FileText file = os::read_regular_file(path, 64U << 10U);
  if (file.problem.empty() && file.text.find_first_not_of(" \t\r\n") == std::string::npos)
    file.problem = "no key in it";
  if (!file.problem.empty())
    core::raise_usage("cli", 25,
                      {.what = "the file with the server's key cannot be used",
                       .found = file.problem,
                       .expected = "the key in its first line",
                       .where = path});
  const std::string line = file.text.substr(0, file.text.find('\n'));
  return line.substr(0, line.find_last_not_of(" \t\r") + 1);
}

// Ends the process where what runs does not let the server end in its time. Every answer that could be made is out then.
class LastResort {
 public:
  LastResort(double seconds, int exit_code)
      : thread_([this, seconds, exit_code] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; })) return;
          note("warning: what runs did not end in time, the server ends without it");
          std::_Exit(exit_code);
        }) {}
  ~LastResort() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LastResort(const LastResort&) = delete;
  LastResort& operator=(const LastResort&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

// What a device other than the CPU changes: how many completions are computed at a time, as in vLLM, and whether a share of its memory
// says anything.
void suit_device(const ServeOptions& options, bool cpu, inference::EngineConfig& engine) {
  if (!cpu && !options.given.contains("--max-num-seqs")) engine.max_slots = 256;
  if (!options.given.contains("--gpu-memory-utilization")) return;
  if (cpu)
    warning(options.share_named_by + " has no effect: on the CPU memory for keys and values is --kv-cache-mb");
  else if (options.cache_megabytes > 0)
    warning(options.share_named_by + " has no effect: --kv-cache-mb says how much keys and values take");
}

// The end of a server whose device computes nothing any more: a supervisor starts another. The answers that are on their way
// have some seconds; what the device holds is not given back, as that would wait for it.
[[noreturn]] void end_with(serve::GenerationServer& server, const core::Error& failure) {
  fail(failure.what());
  constexpr double seconds = 10.0;
  const LastResort last_resort(seconds, failure.exit_code());
  server.stop(1.0);
  std::fflush(nullptr);
  std::_Exit(failure.exit_code());
}

int serve_until_stopped(ServeOptions options) {
  read_section(options);
  serve::ServerConfig config = options.server;
  if (options.port < 0 || options.port > 65535)
    core::raise_usage("cli", 7,
                      {.what = "an option has no such value",
                       .found = "--port " + std::to_string(options.port),
                       .expected = "0 to 65535"});
  config.http.port = static_cast<std::uint16_t>(options.port);
  config.api_key = key_of(options);
  config.answer_bytes = static_cast<std::uint64_t>(options.answer_megabytes) << 20U;
  if (!options.weight_transfer.empty()) config.broadcast_backend = broadcast_backend(options.weight_transfer);
  for (const std::string& path : options.allowed_paths)
    config.allowed_paths.emplace_back(os::expand_home(path, "--allowed-path"));
  for (const std::string& word : options.lora_modules) config.adapters.push_back(named_adapter(word));
  const inference::EngineConfig numbers = engine_of(options.numbers);
  config.engine.engine.quantization = numbers.quantization;
  config.engine.engine.cache_element = numbers.cache_element;
  config.engine.engine.invariant = numbers.invariant;
  if (const std::int64_t all = options.max_num_batched_tokens, decoding = config.engine.engine.max_slots; all > 0) {
    if (config.engine.engine.prefill_rows > 0 || all <= decoding)
      core::raise_usage(
          "cli", 7,
          {.what = "an option has no such value",
           .found =
               "--max-num-batched-tokens " + std::to_string(all) +
               (all <= decoding ? "" : " beside --prefill-rows " + std::to_string(config.engine.engine.prefill_rows)),
           .expected = all <= decoding
                           ? "more than --max-num-seqs " + std::to_string(decoding) + ", which draw in each step"
                           : "one of the two: prompt tokens of a step are what --max-num-seqs leaves of it"});
    config.engine.engine.prefill_rows = all - decoding;
  }
  config.engine.engine.cache_bytes = static_cast<std::size_t>(options.cache_megabytes) << 20U;
  std::mutex telling;
  config.tell = [&telling](const std::string& line) {
    const std::lock_guard lock(telling);
    note(line);
  };
  const run::Interrupt interrupt(run::Interrupt::Stage::running,
                                 "no more requests are taken, those under way may finish");
  std::optional<LastResort> last_resort;  // outlives the server
  serve::ServedModel model = load(options);
  suit_device(options, model.decoder->device().is_cpu(), config.engine.engine);
  serve::GenerationServer server(std::move(model), std::move(config));
  note("serving " + options.model + " at " + server.url());
  while (!run::Interrupt::requested()) {
    if (const auto failure = server.failure()) end_with(server, *failure);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  constexpr double to_end = 10.0;  // seconds for what was cut off at the end of its time
  last_resort.emplace(options.drain_seconds + to_end, run::Interrupt::exit_code());
  server.stop(options.drain_seconds);
  return run::Interrupt::exit_code();
}

// A number from `least` to `most`; CLI::Range takes NaN, too.
CLI::Validator within(double least, double most) {
  std::ostringstream range;
  range << std::setprecision(17) << ", expected a number from " << least << " to " << most;
  return CLI::Validator(
      [least, most, told = range.str()](const std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        const bool good = end != text.c_str() && *end == '\0' && value >= least && value <= most;
        return good ? std::string() : text + told;
      },
      "");
}

}  // namespace

Run vllm_serve(CLI::App& app) {
  constexpr double many = 1e9;
  const auto o = std::make_shared<ServeOptions>();
  serve::ServerConfig& s = o->server;
  add_model_option(app, o->model, "a model's directory, or a configuration: its base_model, as its vllm: section says");
  app.add_option("--host", s.http.host, "address to listen on; another than 127.0.0.1 needs a key")
      ->capture_default_str();
  app.add_option("--port", o->port, "0: one that is free")->capture_default_str();
  const auto* const key =
      app.add_option("--api-key", o->api_key,
                     "what requests must bring as Authorization: Bearer KEY; better in a file, for ps shows it");
  app.add_option("--api-key-file", o->api_key_file, "a file with the key in its first line; without both: VLLM_API_KEY")
      ->excludes(const_cast<CLI::Option*>(key));
  app.add_option("--allowed-host", s.allowed_hosts,
                 "names by which others reach a server on 127.0.0.1 that asks for no key (a proxy's)");
  app.add_flag("--open-to-all", s.open_to_all, "listens on any address without a key");
  app.add_option("--served-model-name", o->name,
                 "what requests call the model; default: as it is named here, an adapter by its own directory");
  add_dtype_option(app, o->dtype);
  add_device_option(app, o->device);
  add_engine_options(app, o->numbers);
  app.add_option(
         "--generation-config", o->generation_config,
         "sampling that OpenAI's routes are not told: auto (the model's generation_config.json), vllm (none), or "
         "a directory with that file")
      ->capture_default_str();
  app.add_option("--max-model-len", o->max_model_len, "tokens of prompt and completion; 0: the model's")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--max-num-seqs", s.engine.engine.max_slots, "completions computed at a time")->capture_default_str();
  app.add_option("--prefill-rows", s.engine.engine.prefill_rows, "prompt tokens added to a step; 0: 256, on a GPU 2048")
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", o->max_num_batched_tokens,
                 "vLLM's name: all tokens of a step, so --prefill-rows and --max-num-seqs together; 0: as those say")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option(
         "--prefill-ahead", s.engine.engine.prefill_ahead,
         "prompt tokens at most that are computed before those that have begun draw again; 0: they are never held up")
      ->capture_default_str();
  app.add_option("--gpu-memory-utilization", s.memory_fraction,
                 "of a GPU: the share of its memory for model, passes, keys and values")
      ->capture_default_str()
      ->check(within(0.01, 1));
  app.add_option("--kv-cache-mb", o->cache_megabytes,
                 "memory for keys and values; 0: on a GPU what its share leaves, else 1 GiB, or the longest request")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--max-waiting", s.engine.most_waiting,
                 "requests that may wait, each whatever its size; more are answered 429")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--answer-memory-mb", o->answer_megabytes,
                 "memory for answers; 0: 2 GiB, or a quarter of what the process may have")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--request-timeout", s.request_seconds, "seconds a request may take; 0: any time")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--drain-timeout", o->drain_seconds, "seconds for requests under way after SIGTERM")
      ->capture_default_str()
      ->check(within(0, many));
  app.add_option("--max-logprobs", s.most_log_probs, "log-probs beside a token; -1: the vocabulary")
      ->capture_default_str()
      ->check(within(-1, many));
  app.add_flag("--processed-logprobs", s.drawn_log_probs,
               "OpenAI routes report the distribution that was drawn from, as TRL's always do");
  app.add_option(
         "--seed", s.seed,
         "requests without a seed repeat: by this number, the weights' name, the prompt, and how often it was asked")
      ->check(within(0, 9223372036854774784.0));
  app.add_option("--lora-modules", o->lora_modules,
                 "adapters beside the model, each name=directory: requests ask for them by name")
      ->type_name("NAME=DIR");
  app.add_option("--allowed-path", o->allowed_paths, "adapters are read below these directories alone");
  app.add_option("--weight-transfer-config", o->weight_transfer,
                 "how trainers broadcast that do not say it: '{\"backend\": \"gloo\"}', else NCCL")
      ->type_name("JSON");
  app.add_option("--broadcast-timeout", s.broadcast_seconds,
                 "seconds for a trainer to join, and for each tensor that it broadcasts")
      ->capture_default_str()
      ->check(within(0.1, 86400.0));
  for (const auto& [option, reason] : idle_options)
    app.add_option(option, o->idle)->type_name("")->group("")->expected(0, 1);
  app.add_flag("--strict", s.strict, "a field that is not known is an error");
  app.add_flag("--access-log", s.access_log, "a line for every request");
  app.footer("\nRoutes: docs/serving.md. SIGTERM and Ctrl-C refuse new requests and let those under way finish.");
  return [o, &app] {
    for (const char* option :
         {"--host", "--port", "--dtype", "--device", "--max-model-len", "--max-num-seqs", "--gpu-memory-utilization"})
      if (app.get_option(option)->count() > 0) o->given.insert(option);
    for (const auto& [option, reason] : idle_options)
      if (app.get_option(option)->count() > 0) warning(std::string(option) + " has no effect: " + reason);
    return serve_until_stopped(*o);
  };
}

}  // namespace rlalgo::cli
