// Reads one prompt from standard input, streams one completion to standard output.
//
//   rlalgo inference MODEL_DIR|CONFIG.yaml [--chat] [--system TEXT] [--max-new-tokens 256] [--temperature 0.9] [--top-p
//   0.95]
//                    [--top-k 40] [--min-p 0] [--repetition-penalty 1.1] [--seed 42]
//
// --chat: the input is a user's message and goes through the chat template. With a configuration file, the model is its
// output_dir. Temperature 0 is greedy.
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <string>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/text/stream_decoder.hpp>
#include <rlalgo/trainer/interrupt.hpp>

#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

struct Options {
  std::string model;
  bool chat = false;
  std::map<std::string, std::string> values = {{"system", ""},         {"max-new-tokens", "256"},
                                               {"temperature", "0.9"}, {"top-p", "0.95"},
                                               {"top-k", "40"},        {"min-p", "0"},
                                               {"seed", "42"},         {"repetition-penalty", "1.1"}};

  [[nodiscard]] double number(const std::string& name) const {
    const std::string& text = values.at(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      core::raise_usage("cli", 7, {.what = "an option is not a number", .found = text, .where = "--" + name});
    return value;
  }
};

Options parse(const Arguments& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    if (!name.starts_with("--")) {
      if (!options.model.empty())
        core::raise_usage("cli", 6, {.what = "`rlalgo inference` takes one model", .found = name});
      options.model = name;
      continue;
    }
    name.erase(0, 2);
    for (char& c : name) c = c == '_' ? '-' : c;
    if (name == "chat") {
      options.chat = true;
      continue;
    }
    const auto option = options.values.find(name);
    if (option == options.values.end() || i + 1 == arguments.size()) {
      std::string known = "--chat";
      for (const auto& [key, value] : options.values) known += ", --" + key;
      core::raise_usage(
          "cli", 8,
          {.what = option == options.values.end() ? "there is no such option" : "an option lacks its value",
           .found = arguments[i],
           .expected = known});
    }
    option->second = arguments[++i];
  }
  if (options.model.empty())
    core::raise_usage("cli", 6, {.what = "`rlalgo inference` needs a model directory or a configuration file"});
  return options;
}

config::RunConfig model_of(const Options& options) {
  config::RunConfig run;
  run.base_model = options.model;
  if (options.model.ends_with(".yaml") || options.model.ends_with(".yml")) {
    run = config::load_run_config(options.model);
    if (run.lora)
      run.lora_model_dir = run.output_dir;
    else
      run.base_model = run.output_dir;
  }
  return run;
}

}  // namespace

int inference(const Arguments& arguments) {
  const Options options = parse(arguments);
  const config::LanguageModel model = config::load_language_model(model_of(options));
  std::string input(std::istreambuf_iterator<char>(std::cin), {});
  if (!input.empty() && input.back() == '\n') input.pop_back();
  if (input.empty()) return 0;

  data::Json prompt = input;
  if (options.chat) {
    prompt = data::Json::array();
    if (!options.values.at("system").empty())
      prompt.push_back({{"role", "system"}, {"content", options.values.at("system")}});
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
  trainer::Interrupt interrupt;
  rlalgo::inference::GenerateHooks hooks;
  hooks.on_token = [&](const auto& token) { std::cout << stream.push(token.id) << std::flush; };
  hooks.cancelled = [] { return trainer::Interrupt::requested(); };
  const rlalgo::inference::Request request{.prompt = model.encode(prompt)};
  engine.generate(std::span(&request, 1), sampling, {.seed = static_cast<std::uint64_t>(options.number("seed"))},
                  hooks);
  std::cout << stream.finish() << std::endl;
  return trainer::Interrupt::requested() ? trainer::Interrupt::exit_code : 0;
}

}  // namespace rlalgo::cli
