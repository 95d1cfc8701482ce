// Where a model's files are: a directory, or an id in the local Hugging Face cache; nothing is downloaded. A PEFT directory stands
// for its base with the adapter on it.
//
// Errors (usage): [rlalgo.config.20] the name is neither. Those of model/adapter_files.hpp.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/hub_cache.hpp>
#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/os/home_path.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::assembly {

// A directory (~ is the home directory), or an id in the hub cache; `place` names it in errors.
[[nodiscard]] inline std::filesystem::path resolve_model(const std::string& given, const std::string& place,
                                                         const std::string& revision = {}) {
  const std::string name = os::expand_home(given, place);
  if (os::is_directory(name)) return name;
  if (data::is_hub_id(name))
    if (const auto cached = data::find_in_hub_cache(data::HubKind::models, name, revision)) return *cached;
  core::raise_usage("config", 20,
                    {.what = "there is no such model",
                     .found = name + (os::exists(name) ? ", which is no directory" : ""),
                     .expected = "a directory, or an id in the local cache " + data::hub_cache_directory().string(),
                     .where = place,
                     .remedy = data::is_hub_id(name) && !os::exists(name)
                                   ? "nothing is downloaded unless you ask for it: rlalgo fetch " + name +
                                         (revision.empty() ? "" : " --revision " + revision)
                                   : "give the path of a Hugging Face model directory"});
}

// A model, an adapter or a tokenizer as it is named.
struct NamedModel {
  std::string name = {};      // a directory, or an id in the hub cache
  std::string where = {};     // the place that named it, for error texts
  std::string revision = {};  // of an id; empty: main

  [[nodiscard]] std::filesystem::path directory() const { return resolve_model(name, where, revision); }
};

struct ModelPlaces {
  std::filesystem::path base = {}, adapter = {}, tokenizer = {};  // adapter: empty if the name is none's
  std::string base_model = {};                                    // as it was named, or as the adapter names it
};

// `tokenizer`: of another directory than the model's.
[[nodiscard]] inline ModelPlaces find_model(const NamedModel& model, const std::optional<NamedModel>& tokenizer = {}) {
  ModelPlaces out{.base = model.directory(),
                  .adapter = {},
                  .tokenizer = {},
                  .base_model = os::expand_home(model.name, model.where)};
  if (model::is_adapter_directory(out.base) && !os::exists(out.base / "model.safetensors") &&
      !os::exists(out.base / "model.safetensors.index.json")) {
    out.adapter = out.base;
    out.base_model = model::adapter_base_model(out.adapter);
    out.base = resolve_model(out.base_model, (out.adapter / model::adapter_config_file).string(),
                             model::adapter_base_revision(out.adapter));
  }
  out.tokenizer = tokenizer                                                            ? tokenizer->directory()
                  : !out.adapter.empty() && os::exists(out.adapter / "tokenizer.json") ? out.adapter
                                                                                       : out.base;
  return out;
}

}  // namespace rlalgo::assembly
