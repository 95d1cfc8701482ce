// Writes the base model with the adapter added to its weights: a Hugging Face directory, shard by shard.
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rlalgo/assembly/model_places.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/places.hpp>
#include <rlalgo/model/merge_adapter.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/run/output_trial.hpp>

#include "json_lines.hpp"
#include "verbs.hpp"

namespace rlalgo::cli {

namespace {

struct MergeOptions {
  std::string config, model, lora_model_dir, output_dir, dtype = "auto";
};

std::optional<c10::ScalarType> dtype_named(const std::string& name) {
  if (name == "auto") return std::nullopt;
  return name == "bfloat16"  ? c10::ScalarType::BFloat16
         : name == "float16" ? c10::ScalarType::Half
                             : c10::ScalarType::Float;
}

// How far what was computed is from what the file holds.
std::string rounding(const model::MergeReport& report) {
  char text[160];
  std::snprintf(text, sizeof text, "%lld numbers were written in %s: rounded by %.2g at most, by %.2g in the mean",
                static_cast<long long>(report.rounded), report.dtype.c_str(), report.largest, report.mean());
  return text;
}

int merge(MergeOptions o) {
  std::string revision;
  model::MergeOptions options{.dtype = dtype_named(o.dtype)};
  if (!o.config.empty()) {
    const config::RunConfig run = config::load_run_config(o.config);
    options.quantisation = run.quantisation();
    options.computed = run.bfloat16 ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
    if (o.model.empty()) o.model = run.base_model, revision = run.model_revision.value_or("");
    if (o.lora_model_dir.empty()) require_trained(run), o.lora_model_dir = run.output_dir;
    if (o.output_dir.empty()) o.output_dir = (std::filesystem::path(run.output_dir) / "merged").string();
  }
  if (o.model.empty() || o.lora_model_dir.empty() || o.output_dir.empty())
    core::raise_usage("cli", 14,
                      {.what = "`rlalgo merge-lora` needs a configuration file, or --model, --lora-model-dir and "
                               "--output-dir"});
  const std::filesystem::path base = assembly::resolve_model(o.model, "--model", revision);
  o.lora_model_dir = os::expand_home(o.lora_model_dir, "--lora-model-dir");
  o.output_dir = os::expand_home(o.output_dir, "--output-dir");
  const std::vector<config::ReadPlace> read = {{"the base model", base}, {"the adapter", o.lora_model_dir, true}};
  config::refuse_overlap("--output-dir", o.output_dir, read);
  const run::OutputTrial output(o.output_dir);
  const model::MergeReport report = model::merge_adapter(base, o.lora_model_dir, o.output_dir, options);
  if (report.quantised > 0)
    std::cout << report.quantised
              << " maps of the base are in 4 or 8 bits: the merged model has what their codes stand for\n";
  if (report.largest > 0 || report.quantised > 0) std::cout << rounding(report) << "\n";
  std::cout << "merged model in " << o.output_dir << "\n";
  return 0;
}

}  // namespace

Run merge_lora(CLI::App& app) {
  const auto options = std::make_shared<MergeOptions>();
  app.add_option("CONFIG", options->config, "the configuration of the training")->type_name("");
  app.add_option("--model", options->model, "the base model; default: base_model of the configuration")
      ->type_name("DIR");
  app.add_option("--lora-model-dir", options->lora_model_dir, "the adapter; default: output_dir of the configuration")
      ->type_name("DIR");
  app.add_option("--output-dir", options->output_dir, "where the result goes; default: output_dir/merged")
      ->type_name("DIR");
  app.add_option("--dtype", options->dtype,
                 "of the merged model: auto (the base's; bfloat16 where that is quantised), float32, bfloat16, float16")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16", "float16"}))
      ->type_name("");
  return [options] { return merge(*options); };
}

}  // namespace rlalgo::cli
