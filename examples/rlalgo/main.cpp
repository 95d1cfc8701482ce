// rlalgo: the command line. `rlalgo VERB …`; see verbs.hpp.
//
// Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <string_view>

#include <rlalgo/core/error.hpp>

#include "verbs.hpp"

namespace {

struct Verb {
  std::string_view name;
  std::string_view usage;
  std::string_view what;
  int (*run)(const rlalgo::cli::Arguments&);
};

constexpr std::array<Verb, 9> verbs = {{
    {"train", "train CONFIG.yaml [--key value …]", "trains as the configuration says; any key can be overridden",
     rlalgo::cli::train},
    {"preprocess", "preprocess CONFIG.yaml [--debug] [--key value …]",
     "tokenizes preference data once, for later runs; --debug prints rows token by token", rlalgo::cli::preprocess},
    {"inference", "inference CONFIG.yaml|MODEL_DIR [--chat] [--key value …]",
     "reads a prompt from standard input and streams a completion", rlalgo::cli::inference},
    {"merge-lora", "merge-lora CONFIG.yaml | --model BASE --lora-model-dir DIR --output-dir DIR",
     "writes a model with its adapter added to the weights", rlalgo::cli::merge_lora},
    {"tokenize", "tokenize --model DIR [--no-special-tokens]", "JSON lines: texts and conversations to token ids",
     rlalgo::cli::tokenize},
    {"score", "score --model DIR [--lora-model-dir DIR]", "JSON lines: log-probs of given tokens", rlalgo::cli::score},
    {"generate", "generate --model DIR [--lora-model-dir DIR]", "JSON lines: completions of many prompts, batched",
     rlalgo::cli::generate},
    {"report", "report OUTPUT_DIR", "rewrites report.html of a finished or running training", rlalgo::cli::report},
    {"version", "version", "prints the versions of rlalgo and of what it is built on", rlalgo::cli::version},
}};

void print_usage(std::ostream& out) {
  out << "rlalgo: post-training of language models by reinforcement learning\n\nusage:\n";
  for (const Verb& verb : verbs) out << "  rlalgo " << verb.usage << "\n      " << verb.what << "\n";
}

// A failure without a number gets one.
int run(const Verb& verb, const rlalgo::cli::Arguments& arguments) {
  try {
    return verb.run(arguments);
  } catch (const rlalgo::core::Error&) {
    throw;
  } catch (const std::exception& error) {
    rlalgo::core::raise("cli", 2, {.what = "unexpected failure", .found = error.what()});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name.empty() || name == "help" || name == "--help" || name == "-h") {
    print_usage(name.empty() ? std::cerr : std::cout);
    return name.empty() ? 2 : 0;
  }
  const auto verb = std::find_if(verbs.begin(), verbs.end(), [&](const Verb& v) {
    return v.name == name || (v.name == "version" && name == "--version");
  });
  try {
    if (verb == verbs.end())
      rlalgo::core::raise_usage(
          "cli", 1,
          {.what = "there is no such verb", .found = std::string(name), .remedy = "run `rlalgo help` for the list"});
    return run(*verb, {argv + 2, argv + argc});
  } catch (const rlalgo::core::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
    return error.exit_code();
  }
}
