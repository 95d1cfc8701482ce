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
// Errors: those of assembly/model_places.hpp; [rlalgo.os.1] a file that cannot be read.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <rlalgo/assembly/identity.hpp>
#include <rlalgo/assembly/load_preferences.hpp>
#include <rlalgo/assembly/rewards.hpp>
#include <rlalgo/config/datasets.hpp>
#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/method_of.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/os/file_digest.hpp>
#include <rlalgo/remote/user_function.hpp>

namespace rlalgo::config {

namespace detail {

inline void add_code(const RunConfig& c, const std::string& function, data::Json& out) {
  if (function.find('.') == std::string::npos) return;
  if (const std::filesystem::path file = remote::module_file(function, python_search_paths(c)); !file.empty())
    out["code of " + function] = os::file_digest(file);
}

// The base is read again by the run that goes on; without that its weights come from the checkpoint.
inline void add_base(const RunConfig& c, bool reference, data::Json& out) {
  if (!c.lora && !reference) return;
  out["weights of base_model"] = assembly::weights_identity(base_model_of(c).directory());
  if (c.lora_model_dir && reference)
    out["weights of lora_model_dir"] = assembly::weights_identity(adapter_of(c)->directory());
}

// The frozen network whose hidden states are features is read again: the base, or another.
[[nodiscard]] inline bool features_of_base(const RunConfig& c) { return matches_features(c) && !c.ebft.feature_model; }
inline void add_features(const RunConfig& c, data::Json& out) {
  if (!matches_features(c) || features_of_base(c)) return;
  out["weights of ebft.feature_model"] =
      assembly::weights_identity(assembly::resolve_model(*c.ebft.feature_model, c.place("ebft.feature_model")));
}

}  // namespace detail

// Of a run that learns from its own completions.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, std::span<const data::TokenizedPrompt> train,
                                             std::span<const data::TokenizedPrompt> evaluation) {
  data::Json out = {{"rows of datasets", assembly::rows_identity(train)}};
  if (!evaluation.empty()) out["held-out rows"] = assembly::rows_identity(evaluation);
  for (const std::string& name : c.trl.reward_funcs) {
    if (assembly::names_reward_model(name))
      out["weights of " + name] =
          assembly::weights_identity(assembly::resolve_model(name, c.place("trl.reward_funcs")));
    else
      detail::add_code(c, name, out);
  }
  if (c.trl.environment_factory) detail::add_code(c, *c.trl.environment_factory, out);
  for (const data::Json& factory : c.trl.environment_factories) detail::add_code(c, factory.get<std::string>(), out);
  if (c.trl.rollout_func) detail::add_code(c, *c.trl.rollout_func, out);
  for (const std::string& tool : c.trl.tools) detail::add_code(c, tool, out);
  detail::add_base(c, c.beta != 0.0 || detail::features_of_base(c), out);
  detail::add_features(c, out);
  return out;
}

// Of a run that learns from preferences.
[[nodiscard]] inline data::Json fingerprints(const RunConfig& c, const assembly::PreferenceData& data) {
  data::Json out = {{"rows of datasets", data::identity_of(*data.train)}};
  if (data.evaluation) out["held-out rows"] = data::identity_of(*data.evaluation);
  detail::add_base(c, needs_reference(c), out);
  return out;
}

}  // namespace rlalgo::config
