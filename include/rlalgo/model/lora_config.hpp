// The settings of a low-rank adapter, and which modules of a decoder they name, with PEFT's rules.
//
//   target list   an entry is a module's path or what follows a dot in it: "q_proj", "self_attn.q_proj"
//   target text   a regular expression that covers the path; "all-linear" = every linear map but lm_head
//   pattern keys  regular expressions for the end of a path; the first that fits gives rank or alpha
//
// Source: PEFT 0.19 (tuners/tuners_utils.py, check_target_module_exists; utils/other.py, get_pattern_key). A module to
// save is never a target.
// Departure: a list entry that names nothing is an error; PEFT trains without it in silence.
//
// Errors (usage): [rlalgo.model.23] a target or module to save that does not exist; [.24] a setting out of range; [.25]
// a target that is no linear map; [.26] see detail/module_pattern.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/detail/module_pattern.hpp>

namespace rlalgo::model {

// What A and B are before the first step.
enum class LoraInit {
  standard,   // A uniform in ±1/√in, B zero
  random,     // both uniform: the adapter changes the model at once (PEFT: false)
  gaussian,   // A ~ N(0, 1/r²), B zero
  pissa,      // the r largest singular directions of W, which are taken out of the base
  orthogonal  // B A = 0, both nonzero
};

struct LoraConfig {
  std::int64_t r = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  std::vector<std::string> target_modules;
  std::string target_pattern;                     // used when the list is empty
  std::vector<std::string> exclude_modules;       // as target_modules
  std::vector<std::string> modules_to_save;       // trained whole, in copies of their own
  std::vector<std::int64_t> layers_to_transform;  // empty: all; only with a list of targets
  std::vector<std::string> layers_pattern;        // names of the list of layers in a path; empty: any
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  bool use_rslora = false;  // scale α/√r instead of α/r
  bool use_dora = false;    // a trained magnitude per output row
  LoraInit init = LoraInit::standard;
};

// Rank and scale of one module.
struct LoraShape {
  std::int64_t r;
  double scale;
};

namespace detail {

[[nodiscard]] inline bool ends_path(std::string_view path, std::string_view entry) {
  return path == entry ||
         (path.size() > entry.size() && path.ends_with(entry) && path[path.size() - entry.size() - 1] == '.');
}

// The modules to save of a path: an entry stands for whole components (re.match(r"(^|.*\.)entry($|\..*)")).
[[nodiscard]] inline bool inside_path(const std::string& path, const std::string& entry) {
  return ModulePattern("(^|.*\\.)" + entry + "($|\\..*)", false).matches(path);
}

template <class Value>
[[nodiscard]] Value pattern_value(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& path,
                                  Value fallback) {
  for (const auto& [key, value] : patterns)
    if (ModulePattern("(.*\\.)?(" + key + ")$", false).matches(path)) return value;
  return fallback;
}

[[noreturn]] inline void raise_lora_setting(const std::string& name, const std::string& found,
                                            const std::string& expected) {
  core::raise_usage("model", 24,
                    {.what = "adapter setting " + name + " is out of range", .found = found, .expected = expected});
}

}  // namespace detail

inline void check_lora(const LoraConfig& c) {
  const auto require = [](bool good, const char* name, const auto& found, const char* expected) {
    if (!good) detail::raise_lora_setting(name, std::to_string(found), expected);
  };
  require(c.r >= 1, "r", c.r, "1 or more");
  require(std::isfinite(c.alpha) && c.alpha > 0, "alpha", c.alpha, "above 0");
  require(c.dropout >= 0 && c.dropout < 1, "dropout", c.dropout, "0 to below 1");
  for (const auto& [key, rank] : c.rank_pattern) require(rank >= 1, "rank_pattern", rank, "1 or more");
  for (const auto& [key, alpha] : c.alpha_pattern)
    require(std::isfinite(alpha) && alpha > 0, "alpha_pattern", alpha, "above 0");
}

[[nodiscard]] inline LoraShape lora_shape(const LoraConfig& c, const std::string& path) {
  const std::int64_t r = detail::pattern_value(c.rank_pattern, path, c.r);
  const double alpha = detail::pattern_value(c.alpha_pattern, path, c.alpha);
  return {r, alpha / (c.use_rslora ? std::sqrt(static_cast<double>(r)) : static_cast<double>(r))};
}

[[nodiscard]] inline bool is_saved_module(const LoraConfig& c, const std::string& path) {
  return std::any_of(c.modules_to_save.begin(), c.modules_to_save.end(),
                     [&](const std::string& entry) { return detail::ends_path(path, entry); });
}

// True if the linear map at `path` gets an adapter.
[[nodiscard]] inline bool is_lora_target(const LoraConfig& c, const std::string& path) {
  for (const std::string& entry : c.exclude_modules)
    if (detail::ends_path(path, entry)) return false;
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

// What a list of targets must name: every entry something, or all of them together something.
enum class TargetCheck { every, some };

// The targets among `linears` (paths of linear maps); `modules` are all modules with weights. At least one.
[[nodiscard]] inline std::vector<std::string> lora_targets(const LoraConfig& c, const std::vector<std::string>& linears,
                                                           const std::vector<std::string>& modules, TargetCheck check) {
  const auto names_one = [](const std::vector<std::string>& paths, const std::string& entry) {
    return std::any_of(paths.begin(), paths.end(),
                       [&](const std::string& path) { return detail::ends_path(path, entry); });
  };
  const auto missing = [](const std::string& key, const std::string& found) {
    core::raise_usage("model", 23,
                      {.what = key + " names no module of the model",
                       .found = found,
                       .expected = "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, or a path "
                                   "like model.layers.0.self_attn.q_proj"});
  };
  for (const std::string& entry : c.target_modules) {
    if (names_one(linears, entry)) continue;
    if (names_one(modules, entry))
      core::raise_usage("model", 25,
                        {.what = "an adapter target is not a linear map",
                         .found = entry,
                         .remedy = "name it in modules_to_save: it is then trained whole"});
    if (check == TargetCheck::every) missing("target_modules", entry);
  }
  for (const std::string& entry : c.modules_to_save)
    if (!names_one(modules, entry)) missing("modules_to_save", entry);
  std::vector<std::string> targets;
  for (const std::string& path : linears)
    if (is_lora_target(c, path)) targets.push_back(path);
  if (targets.empty()) missing("target_modules", c.target_pattern.empty() ? std::string("nothing") : c.target_pattern);
  return targets;
}

}  // namespace rlalgo::model
