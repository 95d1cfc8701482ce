// Definitions of lora_config.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/detail/module_pattern.hpp>
#include <rlalgo/model/lora_config.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE bool ends_path(std::string_view path, std::string_view entry) {
  return path == entry ||
         (path.size() > entry.size() && path.ends_with(entry) && path[path.size() - entry.size() - 1] == '.');
}

RLALGO_INLINE bool inside_path(const std::string& path, const std::string& entry) {
  return ModulePattern("(^|.*\\.)" + entry + "($|\\..*)", false).matches(path);
}

RLALGO_INLINE std::vector<std::string> modules_around(const std::string& entry, std::string_view path) {
  std::vector<std::string> out;
  if (entry.empty()) return out;
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    if (path.substr(0, end).ends_with(entry)) out.emplace_back(path.substr(0, end));
    if (end == std::string_view::npos) return out;
  }
}

RLALGO_INLINE void check_saved_modules(const LoraConfig& c, const std::vector<std::string>& linears,
                                       const std::vector<std::string>& modules) {
  const auto refuse = [](const std::string& what, const std::string& found, const std::string& remedy) {
    core::raise_usage("model", 36, {.what = what, .found = found, .remedy = remedy});
  };
  for (const std::string& entry : c.modules_to_save) {
    if (!entry.empty() && std::string_view("model.layers").ends_with(entry))
      refuse("modules_to_save names the list of all layers, which has no copy of its own", entry,
             "name what the layers have (mlp, norm, o_proj), one layer (layers.0), or train without an adapter");
    for (const std::string& path : linears) {
      for (const std::string& module : modules_around(entry, path))
        if (module.ends_with(".self_attn") || module.ends_with(".linear_attn"))
          refuse("modules_to_save names an attention as a whole, whose copy PEFT cannot run", entry,
                 "name its parts: q_proj, o_proj or out_proj, for example");
      if (!modules_around(entry, path).empty() && is_lora_target(c, path))
        refuse("modules_to_save names a module that gets the adapter as well", entry + ", the end of a part of " + path,
               "write whole names (mlp, not lp), or take the module out of target_modules");
    }
  }
  for (const std::string& path : modules) {
    std::set<std::string> copies;
    for (const std::string& entry : c.modules_to_save)
      for (const std::string& module : modules_around(entry, path)) copies.insert(module);
    if (copies.size() > 1)
      refuse("modules_to_save names a module and one inside it: PEFT cannot load two copies of it",
             *copies.begin() + " and " + *copies.rbegin(), "name one of them");
  }
}

RLALGO_INLINE void raise_lora_setting(const std::string& name, const std::string& found, const std::string& expected) {
  core::raise_usage("model", 24,
                    {.what = "adapter setting " + name + " is out of range", .found = found, .expected = expected});
}

}  // namespace detail

namespace detail {

// The last components of paths, each once.
inline std::vector<std::string> last_names(const std::vector<std::string>& paths) {
  std::vector<std::string> out;
  for (const std::string& path : paths) {
    const std::string name = path.substr(path.rfind('.') + 1);
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  return out;
}

inline std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace detail

namespace detail {

inline bool is_expert(const std::string& path) { return path.find(".experts.") != std::string::npos; }

inline bool is_of_mlp(const std::string& path) {
  return (path.find(".mlp.") != std::string::npos && !path.ends_with(".shared_expert_gate")) ||
         path.find(".block_sparse_moe.") != std::string::npos;
}

// gpt-oss's experts are parameters from the start: PEFT does not take the names of linear maps for them.
inline bool are_parameters(const std::vector<std::string>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [](const std::string& path) { return path.ends_with(".mlp.router"); });
}

// Names of gate, up and down of an expert, where PEFT takes them for parameters of all of a layer; else empty.
inline std::vector<std::string> names_of_experts(const std::vector<std::string>& linears,
                                                 const std::vector<std::string>& modules) {
  if (std::none_of(modules.begin(), modules.end(), is_expert) || are_parameters(modules) ||
      std::any_of(linears.begin(), linears.end(), is_of_mlp))
    return {};
  const bool numbered =
      std::any_of(modules.begin(), modules.end(), [](const std::string& path) { return path.ends_with(".w1"); });
  return numbered ? std::vector<std::string>{"w1", "w3", "w2"}
                  : std::vector<std::string>{"gate_proj", "up_proj", "down_proj"};
}

}  // namespace detail

RLALGO_INLINE LoraConfig with_every_linear(LoraConfig config, const std::vector<std::string>& linears,
                                           const std::vector<std::string>& modules) {
  if (!std::exchange(config.every_linear, false)) return config;
  std::vector<std::string>& names = config.target_modules;
  const auto add = [&](const std::string& name) {
    if (name != "lm_head" && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : detail::last_names(linears)) add(name);
  // Of a shared expert, or of a layer without experts.
  const auto has = [&](const std::string& name) {
    return std::any_of(modules.begin(), modules.end(), [&](const std::string& path) {
      return !detail::is_expert(path) && detail::is_of_mlp(path) && path.ends_with("." + name);
    });
  };
  for (const std::string& name : detail::names_of_experts(linears, modules))
    if (has(name)) add(name);
  return config;
}

RLALGO_INLINE LoraConfig with_expert_parameters(LoraConfig config, const std::vector<std::string>& linears,
                                                const std::vector<std::string>& modules) {
  const std::vector<std::string> names = detail::names_of_experts(linears, modules);
  if (names.empty()) return config;
  std::vector<bool> named;
  for (const std::string& name : names) named.push_back(std::erase(config.target_modules, name) > 0);
  if (named[0] != named[1])
    core::raise_usage("model", 40,
                      {.what = "an adapter is to be put on one half of the experts' gate_up_proj",
                       .found = named[0] ? names[0] : names[1],
                       .expected = names[0] + " and " + names[1] + ", or neither: PEFT has one adapter for both",
                       .remedy = "name both in lora_target_modules, or take it out"});
  const auto put = [&](const char* parameter) {
    if (std::find(config.target_parameters.begin(), config.target_parameters.end(), parameter) ==
        config.target_parameters.end())
      config.target_parameters.emplace_back(parameter);
  };
  if (named[0]) {
    put("gate_up_proj");
    config.rank_pattern.emplace_back(".*\\.gate_up_proj", 2 * config.r);
    config.alpha_pattern.emplace_back(".*\\.gate_up_proj", 2.0 * config.alpha);
  }
  if (named[2]) put("down_proj");
  return config;
}

RLALGO_INLINE void check_lora(const LoraConfig& c) {
  const auto require = [](bool good, const char* name, const auto& found, const char* expected) {
    if (!good) detail::raise_lora_setting(name, std::to_string(found), expected);
  };
  const auto rank = [&](const char* name, std::int64_t r) {
    if (r < 1 || r > largest_rank)
      detail::raise_lora_setting(name, std::to_string(r), "1 to " + std::to_string(largest_rank));
  };
  rank("r", c.r);
  require(std::isfinite(c.alpha) && c.alpha > 0, "alpha", c.alpha, "above 0");
  require(c.dropout >= 0 && c.dropout < 1, "dropout", c.dropout, "0 to below 1");
  if (c.target_modules.empty() && !c.target_pattern.empty() && !c.layers_to_transform.empty())
    detail::raise_lora_setting("layers_to_transform", "target_modules " + c.target_pattern,
                               "a list of names in target_modules; a pattern names layers itself");
  if (!c.layers_pattern.empty() && c.layers_to_transform.empty())
    detail::raise_lora_setting("layers_pattern", c.layers_pattern.front() + " without layers_to_transform",
                               "both or none");
  for (const auto& [key, r] : c.rank_pattern) rank("rank_pattern", r);
  for (const auto& [key, alpha] : c.alpha_pattern)
    require(std::isfinite(alpha) && alpha > 0, "alpha_pattern", alpha, "above 0");
}

RLALGO_INLINE LoraShape lora_shape(const LoraConfig& c, const std::string& path) {
  const std::int64_t r = detail::pattern_value(c.rank_pattern, path, c.r);
  const double alpha = detail::pattern_value(c.alpha_pattern, path, c.alpha);
  return {r, alpha / (c.use_rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r))};
}

RLALGO_INLINE bool is_target_parameter(const LoraConfig& c, const std::string& path) {
  return std::any_of(c.target_parameters.begin(), c.target_parameters.end(),
                     [&](const std::string& entry) { return detail::ends_path(path, entry); });
}

RLALGO_INLINE void check_target_parameters(const LoraConfig& c, const std::vector<std::string>& parameters) {
  if (c.target_parameters.empty()) return;
  for (const std::string& entry : c.target_parameters)
    if (std::none_of(parameters.begin(), parameters.end(),
                     [&](const std::string& path) { return detail::ends_path(path, entry); }))
      core::raise_usage(
          "model", 23,
          {.what = "target_parameters names no parameter of experts",
           .found = entry,
           .expected = parameters.empty()
                           ? "a model with experts; name linear maps in target_modules"
                           : "mlp.experts.gate_up_proj, mlp.experts.down_proj, or a path like " + parameters.front()});
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    core::raise_usage(
        "model", 43,
        {.what = "an adapter on the parameters of experts has no such setting", .found = what, .remedy = remedy});
  };
  if (c.dropout != 0.0)
    refuse("dropout " + std::to_string(c.dropout), "set lora_dropout: 0, or take target_parameters out");
  if (c.use_dora) refuse("DoRA", "set peft_use_dora: false, or take target_parameters out");
  if (c.init != LoraInit::standard && c.init != LoraInit::gaussian)
    refuse("an initialisation that looks at the weights, or is not zero",
           "set peft_init_lora_weights: true or gaussian");
}

RLALGO_INLINE bool is_saved_module(const LoraConfig& c, const std::string& path) {
  return std::any_of(c.modules_to_save.begin(), c.modules_to_save.end(),
                     [&](const std::string& entry) { return !detail::modules_around(entry, path).empty(); });
}

RLALGO_INLINE bool is_lora_target(const LoraConfig& c, const std::string& path) {
  for (const std::string& entry : c.exclude_modules)
    if (detail::ends_path(path, entry)) return false;
  if (c.exclude_modules.empty() && !c.exclude_pattern.empty() &&
      detail::ModulePattern(c.exclude_pattern, true).matches(path))
    return false;
  for (const std::string& entry : c.modules_to_save)
    if (detail::inside_path(path, entry)) return false;
  if (c.target_modules.empty()) {
    if (c.target_pattern == "all-linear") return path != "lm_head";
    return !c.target_pattern.empty() && detail::ModulePattern(c.target_pattern, true).matches(path);
  }
  if (std::none_of(c.target_modules.begin(), c.target_modules.end(),
                   [&](const std::string& entry) { return detail::ends_path(path, entry); }))
    return false;
  if (c.layers_to_transform.empty()) return true;
  const auto layer_of = [&](const std::string& list) {
    return detail::ModulePattern(".*\\." + list + "\\.(\\d+)\\.", false).group(path);
  };
  std::string index;
  if (c.layers_pattern.empty()) index = layer_of("[^.]*");
  for (const std::string& list : c.layers_pattern)
    if (index.empty()) index = layer_of(list);
  return !index.empty() && std::find(c.layers_to_transform.begin(), c.layers_to_transform.end(), std::stoll(index)) !=
                               c.layers_to_transform.end();
}

namespace detail {

// Names that PEFT takes for those of all experts together (target_parameters), where a model's MLPs are nothing else.
RLALGO_INLINE void check_expert_targets(const LoraConfig& c, const std::vector<std::string>& linears,
                                        const std::vector<std::string>& modules) {
  if (std::none_of(modules.begin(), modules.end(), is_expert)) return;
  const auto refuse = [&](const std::string& found) {
    core::raise_usage(
        "model", 40,
        {.what = "an adapter is to be put on experts or their router by a name that PEFT takes for all of a layer",
         .found = found,
         .expected = "linear maps outside of them: q_proj, k_proj, v_proj, o_proj, or the end of a longer path",
         .remedy = "name those in lora_target_modules; experts themselves by lora_target_parameters: "
                   "[mlp.experts.gate_up_proj, mlp.experts.down_proj]; a router carries none"});
  };
  for (const std::string& entry : c.modules_to_save)
    for (const std::string& path : modules)
      if (!modules_around(entry, path).empty() &&
          (is_expert(path) || path.find(".block_sparse_moe.") != std::string::npos))
        refuse("modules_to_save: " + entry);
  if (std::any_of(linears.begin(), linears.end(), is_of_mlp)) return;
  if (c.target_modules.empty() && c.target_pattern == "all-linear") {
    if (are_parameters(modules)) return;
    refuse("target_modules: all-linear");
  }
  for (std::string path : modules) {
    if (!is_of_mlp(path)) continue;
    for (const std::string& entry : c.target_modules)
      if (ends_path(path, entry)) refuse("target_modules: " + entry);
    if (!c.target_modules.empty() || c.target_pattern.empty()) continue;
    const std::string given = path;
    if (const std::size_t at = path.find(".experts."); at != std::string::npos)  // as transformers has them
      path.erase(at + 8, path.find('.', at + 9) - at - 8);
    if (const std::size_t at = path.find(".block_sparse_moe."); at != std::string::npos) path.replace(at, 18, ".mlp.");
    const ModulePattern pattern(c.target_pattern, true);
    if (pattern.matches(given) || pattern.matches(path)) refuse("target_modules: " + c.target_pattern);
  }
}

}  // namespace detail

RLALGO_INLINE std::vector<std::string> lora_targets(const LoraConfig& c, const std::vector<std::string>& linears,
                                                    const std::vector<std::string>& modules, TargetCheck check) {
  const auto names_one = [](const std::vector<std::string>& paths, const std::string& entry) {
    return std::any_of(paths.begin(), paths.end(),
                       [&](const std::string& path) { return detail::ends_path(path, entry); });
  };
  const auto missing = [&](const std::string& key, const std::string& found) {
    const bool saved = key == "modules_to_save";
    core::raise_usage(
        "model", 23,
        {.what = key + " names no module of the model",
         .found = found,
         .expected = saved ? "embed_tokens, lm_head, norm, mlp, or the end of another path "
                             "like model.layers.0.self_attn.q_proj"
                           : detail::listed(detail::last_names(linears)) + ", or a path like " + linears.front()});
  };
  if (check == TargetCheck::every) detail::check_expert_targets(c, linears, modules);
  for (const std::string& entry : c.target_modules) {
    if (names_one(linears, entry)) continue;
    if (names_one(modules, entry))
      core::raise_usage("model", 25,
                        {.what = "an adapter target is not a linear map",
                         .found = entry,
                         .remedy = check == TargetCheck::every
                                       ? "name it in modules_to_save: it is then trained whole"
                                       : "merge the adapter with PEFT (merge_and_unload) and use the merged model"});
    if (check == TargetCheck::every) missing("target_modules", entry);
  }
  for (const std::string& entry : c.modules_to_save)
    if (std::none_of(modules.begin(), modules.end(),
                     [&](const std::string& path) { return !detail::modules_around(entry, path).empty(); }))
      missing("modules_to_save", entry);
  detail::check_saved_modules(c, linears, modules);
  std::vector<std::string> targets;
  for (const std::string& path : linears)
    if (is_lora_target(c, path)) targets.push_back(path);
  if (targets.empty() && (c.target_parameters.empty() || !c.target_pattern.empty()))
    missing("target_modules", c.target_pattern.empty() ? std::string("nothing") : c.target_pattern);
  return targets;
}

}  // namespace rlalgo::model
