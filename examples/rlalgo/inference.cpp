// Reads one prompt from standard input, streams one completion to standard output; or a conversation (chat.hpp).
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <span>
#include <string>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/text/stream_decoder.hpp>

#include "chat.hpp"
#include "json_lines.hpp"
#include "log.hpp"

namespace rlalgo::cli {

namespace {

struct InferenceOptions {
  std::string model, lora_model_dir, dtype = "auto", device = "auto", system;
  EngineOptions engine;
  bool chat = false;
  std::int64_t max_new_tokens = 256, top_k = 40, seed = 42;
  double temperature = 0.9, top_p = 0.95, min_p = 0, repetition_penalty = 1.1;
};

config::RunConfig model_of(const InferenceOptions& options) {
  const std::string& name = options.model;
  if (name.empty())
    core::raise_usage("cli", 6,
                      {.what = "`rlalgo inference` needs a model directory or a configuration file",
                       .expected = "rlalgo inference MODEL_DIR or CONFIG.yaml"});
  config::RunConfig run;
  run.base_model = name;
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    run = config::load_run_config(name, device_override(options.device));
    require_trained(run);
    if (run.lora)
      run.lora_model_dir = run.output_dir;
    else
      run.base_model = run.output_dir;
  }
  if (!options.lora_model_dir.empty()) run.lora_model_dir = options.lora_model_dir;
  choose_device(options.device, options.dtype, run);
  return run;
}

// All of standard input, of so many bytes at most.
std::string read_prompt() {
  std::string input;
  for (char piece[1U << 16U];;) {
    const ssize_t count = ::read(STDIN_FILENO, piece, sizeof piece);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) core::raise("cli", 21, {.what = "standard input cannot be read", .found = std::strerror(errno)});
    if (count == 0) return input;
    input.append(piece, static_cast<std::size_t>(count));
    if (input.size() > longest_line)
      core::raise("cli", 19,
                  {.what = "standard input is too long for a prompt",
                   .found = "more than " + std::to_string(longest_line) + " bytes"});
  }
}

int complete(const InferenceOptions& options) {
  if (!options.system.empty() && !options.chat)
    core::raise_usage("cli", 28,
                      {.what = "--system is a message of a conversation",
                       .found = "no --chat",
                       .remedy = "add --chat, or put the text into the prompt"});
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  rlalgo::inference::EngineConfig numbers = engine_of(options.engine);
  const config::RunConfig run = model_of(options);
  const assembly::LanguageModel model =
      assembly::LanguageModel::load(config::language_model_of(run), engine_memory(run, numbers.quantization));
  const rlalgo::inference::SamplingConfig sampling = {.temperature = options.temperature,
                                                      .top_p = options.top_p,
                                                      .top_k = options.top_k,
                                                      .min_p = options.min_p,
                                                      .repetition_penalty = options.repetition_penalty,
                                                      .max_new_tokens = options.max_new_tokens,
                                                      .stop_ids = model.stop_ids};
  if (terminal && options.chat)
    return converse(model, {.system = options.system,
                            .seed = static_cast<std::uint64_t>(options.seed),
                            .sampling = sampling,
                            .engine = numbers});
  if (terminal) note("type the prompt; Ctrl-D ends it");
  std::string input = read_prompt();
  if (!input.empty() && input.back() == '\n') input.pop_back();
  if (input.empty()) return 0;

  data::Json prompt = input;
  if (options.chat) {
    prompt = data::Json::array();
    if (!options.system.empty()) prompt.push_back({{"role", "system"}, {"content", options.system}});
    prompt.push_back({{"role", "user"}, {"content", input}});
  }

  numbers.max_slots = 1;
  numbers.pack_weights = true;
  rlalgo::inference::LocalEngine engine(model.decoder->config(), model.decoder->weights(), numbers);
  text::StreamDecoder stream(model.tokenizer);
  const run::Interrupt interrupt(run::Interrupt::Stage::running, "the completion ends here");
  rlalgo::inference::GenerateHooks hooks;
  hooks.on_token = [&](const auto& token) { std::cout << stream.push(token.id) << std::flush; };
  hooks.cancelled = [] { return run::Interrupt::requested() || !std::cout; };  // nobody reads on: cli.17
  const rlalgo::inference::Request request{.prompt = model.encode(prompt)};
  engine.generate(std::span(&request, 1), sampling, {.seed = static_cast<std::uint64_t>(options.seed)}, hooks);
  std::cout << stream.finish() << std::endl;
  return run::Interrupt::requested() ? run::Interrupt::exit_code() : 0;
}

}  // namespace

Run inference(CLI::App& app) {
  const auto o = std::make_shared<InferenceOptions>();
  constexpr std::int64_t most = std::int64_t{1} << 30U;
  add_model_option(app, o->model, "a model's directory, or the configuration of a training: its output_dir");
  app.add_option("--lora-model-dir", o->lora_model_dir, "an adapter for it (PEFT)")->type_name("DIR");
  add_dtype_option(app, o->dtype);
  add_device_option(app, o->device);
  add_engine_options(app, o->engine);
  app.add_flag(
      "--chat", o->chat,
      "the input is a user's message and goes through the chat template; on a terminal a conversation (/help in it)");
  app.add_option("--system", o->system, "with --chat: a system message before it");
  add_whole_option(app, "--max-new-tokens", o->max_new_tokens, 1, most, "the completion's length, at most");
  app.add_option("--temperature", o->temperature, "0 is greedy")->capture_default_str();
  app.add_option("--top-p", o->top_p, "draw from the likeliest tokens of this probability together")
      ->capture_default_str();
  add_whole_option(app, "--top-k", o->top_k, 0, most, "draw from so many likeliest tokens; 0: all");
  app.add_option("--min-p", o->min_p, "drop tokens less likely than this share of the likeliest")
      ->capture_default_str();
  app.add_option("--repetition-penalty", o->repetition_penalty, "above 1: tokens that occurred are less likely")
      ->capture_default_str();
  add_whole_option(app, "--seed", o->seed, 0, std::int64_t{1} << 53U, "the same seed, the same completion");
  return [o] { return complete(*o); };
}

}  // namespace rlalgo::cli
