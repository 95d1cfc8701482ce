// Writes the base model with the adapter added to its weights: a Hugging Face directory, shard by shard.
//
//   rlalgo merge-lora CONFIG.yaml [--lora-model-dir DIR] [--output-dir DIR]
//   rlalgo merge-lora --model BASE --lora-model-dir DIR --output-dir DIR
//
// With a configuration: its base_model; the adapter is lora_model_dir of the command line, else output_dir; the result
// goes to --output-dir, else to output_dir/merged.
#include <filesystem>
#include <iostream>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/model/merge_adapter.hpp>

#include "options.hpp"

namespace rlalgo::cli {

int merge_lora(const Arguments& arguments) {
  const Options options("merge-lora", arguments, {{"model", ""}, {"lora-model-dir", ""}, {"output-dir", ""}}, {}, 1);
  std::string base = options.text("model"), adapter = options.text("lora-model-dir"),
              target = options.text("output-dir"), revision;
  if (!options.words().empty()) {
    const config::RunConfig run = config::load_run_config(options.words()[0]);
    if (base.empty()) base = run.base_model, revision = run.model_revision.value_or("");
    if (adapter.empty()) adapter = run.output_dir;
    if (target.empty()) target = (std::filesystem::path(run.output_dir) / "merged").string();
  }
  if (base.empty() || adapter.empty() || target.empty())
    core::raise_usage("cli", 14,
                      {.what = "`rlalgo merge-lora` needs a configuration file, or --model, --lora-model-dir and "
                               "--output-dir"});
  model::merge_adapter(config::resolve_model(base, "--model", revision), adapter, target);
  std::cout << "merged model in " << target << "\n";
  return 0;
}

}  // namespace rlalgo::cli
