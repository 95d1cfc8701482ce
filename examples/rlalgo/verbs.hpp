// The verbs of the command line, one file each. A verb adds its words and options to a CLI::App (CLI11), whose --help is
// its manual, and returns what runs once they are read: that returns the process exit status and throws core::Error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace rlalgo::cli {

using Run = std::function<int()>;

Run train(CLI::App& app);
Run preprocess(CLI::App& app);
Run evaluate(CLI::App& app);
Run inference(CLI::App& app);
Run merge_lora(CLI::App& app);
Run tokenize(CLI::App& app);
Run score(CLI::App& app);
Run generate(CLI::App& app);
Run vllm_serve(CLI::App& app);
Run report(CLI::App& app);
Run keys(CLI::App& app);
Run completion(CLI::App& app);
Run fetch(CLI::App& app);
Run init(CLI::App& app);
Run doctor(CLI::App& app);
Run kernels(CLI::App& app);
Run version(CLI::App& app);

// What the verbs are and take, for completions.
struct VerbOption {
  std::string name;  // --checkpoint
  std::string says;
  bool flag = false;  // without a value
};
struct VerbWords {
  std::string_view name, what;
  std::vector<VerbOption> options;
  bool takes_keys = false;  // of a configuration, as --key value
};
[[nodiscard]] std::vector<VerbWords> verb_words();

// Raises cli.17 when something that was printed has not arrived: the disk is full, the descriptor is closed.
void require_output();

}  // namespace rlalgo::cli
