// Reads one prompt from standard input, streams one completion to standard output.
//
//   rlalgo inference MODEL_DIR|CONFIG.yaml [--chat] [--lora-model-dir DIR] [--system TEXT] [--max-new-tokens 256]
//                    [--temperature 0.9] [--top-p 0.95] [--top-k 40] [--min-p 0] [--repetition-penalty 1.1] [--seed 42]
//
// --chat: the input is a user's message and goes through the chat template. With a configuration file, the model is its
// output_dir. Temperature 0 is greedy.
#include <filesystem>
#include <iostream>
#include <iterator>
#include <string>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/run/interrupt.hpp>
#include <rlalgo/text/stream_decoder.hpp>

#include "options.hpp"

namespace rlalgo::cli {

namespace {

config::RunConfig model_of(const Options& options) {
  if (options.words().empty())
    core::raise_usage("cli", 6, {.what = "`rlalgo inference` needs a model directory or a configuration file"});
  const std::string& name = options.words()[0];
  config::RunConfig run;
  run.base_model = name;
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    run = config::load_run_config(name);
    if (run.lora)
      run.lora_model_dir = run.output_dir;
    else
      run.base_model = run.output_dir;
  }
  if (!options.text("lora-model-dir").empty()) run.lora_model_dir = options.text("lora-model-dir");
  return run;
}

}  // namespace

int inference(const Arguments& arguments) {
  const Options options("inference", arguments,
                        {{"system", ""},
                         {"max-new-tokens", "256"},
                         {"temperature", "0.9"},
                         {"top-p", "0.95"},
                         {"top-k", "40"},
                         {"min-p", "0"},
                         {"seed", "42"},
                         {"repetition-penalty", "1.1"},
                         {"lora-model-dir", ""}},
                        {"chat"}, 1);
  const config::LanguageModel model = config::load_language_model(model_of(options));
  std::string input(std::istreambuf_iterator<char>(std::cin), {});
  if (!input.empty() && input.back() == '\n') input.pop_back();
  if (input.empty()) return 0;

  data::Json prompt = input;
  if (options.flag("chat")) {
    prompt = data::Json::array();
    if (!options.text("system").empty()) prompt.push_back({{"role", "system"}, {"content", options.text("system")}});
    prompt.push_back({{"role", "user"}, {"content", input}});
  }
  const rlalgo::inference::SamplingConfig sampling = {
      .temperature = options.number("temperature"),
      .top_p = options.number("top-p"),
      .top_k = static_cast<std::int64_t>(options.number("top-k")),
      .min_p = options.number("min-p"),
      .repetition_penalty = options.number("repetition-penalty"),
      .max_new_tokens = static_cast<std::int64_t>(options.number("max-new-tokens")),
      .stop_ids = model.stop_ids};

  rlalgo::inference::LocalEngine engine(model.decoder->config(), model.decoder->weights(), {.max_slots = 1});
  text::StreamDecoder stream(model.tokenizer);
  run::Interrupt interrupt;
  rlalgo::inference::GenerateHooks hooks;
  hooks.on_token = [&](const auto& token) { std::cout << stream.push(token.id) << std::flush; };
  hooks.cancelled = [] { return run::Interrupt::requested(); };
  const rlalgo::inference::Request request{.prompt = model.encode(prompt)};
  engine.generate(std::span(&request, 1), sampling, {.seed = static_cast<std::uint64_t>(options.number("seed"))},
                  hooks);
  std::cout << stream.finish() << std::endl;
  return run::Interrupt::requested() ? run::Interrupt::exit_code : 0;
}

}  // namespace rlalgo::cli
