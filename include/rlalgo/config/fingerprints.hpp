// What a run depends on that its keys only name: rows, rewards, frozen weights. Compared by a resume like settings.
//
//   rows of datasets, held-out rows   what training and evaluation read after preparation: token ids, and for rollouts
//                                     prompts and columns; in their order
//   code of <name>                    the file of a Python reward, environment or tool (what it imports is not followed)
//   weights of <name>                 config.json and safetensors files of a reward model, and of the base model (and the
//                                     adapter that it starts from) where it is read again: as the frozen base of an
//                                     adapter, or as the reference
//
// Digests are XXH64 (core/digest.hpp).
// Errors: those of resolve_model(); [rlalgo.os.1] a file that cannot be read.
#pragma once

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/load_data.hpp>
#include <rlalgo/config/load_preferences.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/python_dataset.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/file_digest.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::config {

// What the weights on disk are: the bytes of the safetensors files of a model's, or an adapter's, directory.
[[nodiscard]] inline std::string weights_identity(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  core::Digest digest;
  data::add_file(digest, directory / "config.json");
  for (const std::filesystem::path& file : files) data::add_file(digest, file);
  return digest.hex();
}

// A directory with a config.json, or "organisation/name": module.function has no slash and is no directory.
[[nodiscard]] inline bool names_reward_model(const std::string& name) {
  return name.find('/') != std::string::npos || os::is_regular_file(std::filesystem::path(name) / "config.json");
}

[[nodiscard]] inline std::string rows_fingerprint(std::span<const data::TokenizedPrompt> prompts) {
  const auto text = [](const data::Json& json) {
    return json.dump(-1, ' ', false, data::Json::error_handler_t::replace);
  };
  core::Digest digest;
  for (const data::TokenizedPrompt& prompt : prompts)
    digest.add({reinterpret_cast<const char*>(prompt.ids.data()), prompt.ids.size() * sizeof(data::TokenId)})
        .add(prompt.has_prompt ? text(prompt.prompt) : std::string("no prompt"))
        .add(text(prompt.columns));
  return digest.hex();
}

namespace detail {

inline void add_code(const RunConfig& c, const std::string& function, data::Json& out) {
  if (function.find('.') == std::string::npos) return;
  if (const std::filesystem::path file = python_file(function, c); !file.empty())
    out["code of " + function] = os::file_digest(file);
}

// The base is read again by the run that goes on; without that its weights come from the checkpoint.
inline void add_base(const RunConfig& c, bool reference, data::Json& out) {
  if (!c.lora && !reference) return;
  out["weights of base_model"] =
      weights_identity(resolve_model(c.base_model, c.place("base_model"), c.model_revision.value_or("")));
  if (c.lora_model_dir && reference)
    out["weights of lora_model_dir"] = weights_identity(resolve_model(*c.lora_model_dir, c.place("lora_model_dir")));
}

// The frozen network whose hidden states are features is read again.
inline void add_features(const RunConfig& c, data::Json& out) {
  if (!matches_features(c)) return;
  if (!c.ebft.feature_model) return add_base(c, true, out);
  out["weights of ebft.feature_model"] =
      weights_identity(resolve_model(*c.ebft.feature_model, c.place("ebft.feature_model")));
}

}  // namespace detail

// Of a run that learns from its own completions.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, std::span<const data::TokenizedPrompt> train,
                                             std::span<const data::TokenizedPrompt> evaluation) {
  data::Json out = {{"rows of datasets", rows_fingerprint(train)}};
  if (!evaluation.empty()) out["held-out rows"] = rows_fingerprint(evaluation);
  for (const std::string& name : c.trl.reward_funcs) {
    if (names_reward_model(name))
      out["weights of " + name] = weights_identity(resolve_model(name, c.place("trl.reward_funcs")));
    else
      detail::add_code(c, name, out);
  }
  if (c.trl.environment_factory) detail::add_code(c, *c.trl.environment_factory, out);
  for (const data::Json& factory : c.trl.environment_factories) detail::add_code(c, factory.get<std::string>(), out);
  if (c.trl.rollout_func) detail::add_code(c, *c.trl.rollout_func, out);
  for (const std::string& tool : c.trl.tools) detail::add_code(c, tool, out);
  detail::add_base(c, c.beta != 0.0, out);
  detail::add_features(c, out);
  return out;
}

// Of a run that learns from preferences.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, const PreferenceData& data) {
  data::Json out = {{"rows of datasets", data::identity_of(*data.train)}};
  if (data.evaluation) out["held-out rows"] = data::identity_of(*data.evaluation);
  detail::add_base(c, needs_reference(c), out);
  return out;
}

}  // namespace rlalgo::config
