// The settings of a low-rank adapter, and which modules of a decoder they name, with PEFT's rules.
//
//   target list   an entry is a module's path or what follows a dot in it: "q_proj", "self_attn.q_proj"
//   target text   a regular expression that covers the path; "all-linear" = every linear map but lm_head
//   pattern keys  regular expressions for the end of a path; the first that fits gives rank or alpha
//   parameters    an entry is the path of a parameter of all experts or what follows a dot in it: "experts.down_proj"
//   to save       an entry names every module whose path ends with its letters, with all that is in it: "norm" is every
//                 norm of the model, "model.norm" the last one, "mlp" the three maps of every layer
//
// Source: PEFT 0.19 and 0.21 (tuners/tuners_utils.py, check_target_module_exists; utils/other.py, get_pattern_key,
// _set_trainable). What a whole component of a module to save names is never a target.
// Of a model whose experts PEFT knows as parameters of all of a layer (Qwen3-MoE, Qwen3-Next, Mixtral), the names of an expert's maps in
// the target list stand for those, as in PEFT (utils/transformers_weight_conversion.py): gate_proj and up_proj together for gate_up_proj with
// twice the rank and alpha, down_proj for down_proj, and for no map of a shared expert or of a layer without experts.
// Departures: an entry that names nothing is an error; PEFT trains without it in silence. A path, a pattern or a router's name that PEFT
// would take for all experts, or for a parameter of the router, is an error.
//
// Errors (usage): [rlalgo.model.23] a target or module to save that does not exist; [.24] a setting out of range; [.25]
// a target that is no linear map; [.26] see detail/module_pattern.hpp; [.36] a module to save that PEFT cannot have a copy
// of: the list of layers, an attention, one that gets the adapter, one inside another; [.40] experts or their router are to
// carry an adapter by a path or a pattern, or one half of gate_up_proj is; [.43] a setting that PEFT does not have for the parameters of experts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

inline constexpr std::int64_t largest_rank = 16384;  // the smaller side of the largest matrix of known models

struct LoraConfig {
  std::int64_t r = 8;
  double alpha = 8.0;
  double dropout = 0.0;
  std::vector<std::string> target_modules{};
  std::string target_pattern{};                // used when the list is empty
  bool every_linear = false;                   // all linear maps of the layers, too: with_every_linear() names them
  std::vector<std::string> exclude_modules{};  // as target_modules
  std::string exclude_pattern{};               // a regular expression that covers a path; used when the list is empty
  std::vector<std::string>
      target_parameters;  // of experts: the ends of paths like model.layers.0.mlp.experts.down_proj
  std::vector<std::string> modules_to_save{};       // trained whole, in copies of their own
  std::vector<std::int64_t> layers_to_transform{};  // empty: all; only with a list of targets
  std::vector<std::string> layers_pattern{};  // names of the list of layers in a path; empty: any; only with layers
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern{};
  std::vector<std::pair<std::string, double>> alpha_pattern{};
  bool use_rslora = false;  // scale α/√r instead of α/r
  bool use_dora = false;    // a trained magnitude per output row
  LoraInit init = LoraInit::standard;
};

// `config` with the names of all linear maps but lm_head among its targets, where it asks for every one of them; those of `modules`, too,
// that PEFT takes for experts.
[[nodiscard]] LoraConfig with_every_linear(LoraConfig config, const std::vector<std::string>& linears,
                                           const std::vector<std::string>& modules);

// `config` with the parameters of all experts in the place of their maps' names, where PEFT does so.
[[nodiscard]] LoraConfig with_expert_parameters(LoraConfig config, const std::vector<std::string>& linears,
                                                const std::vector<std::string>& modules);

// Rank and scale of one module.
struct LoraShape {
  std::int64_t r;
  double scale;
};

namespace detail {

[[nodiscard]] bool ends_path(std::string_view path, std::string_view entry);

// Whether an entry of the modules to save keeps a path from being a target: it stands for whole components there
// (re.match(r"(^|.*\.)entry($|\..*)")).
[[nodiscard]] bool inside_path(const std::string& path, const std::string& entry);

// Of the module at `path` and those that it lies in, the ones that an entry of the modules to save names.
[[nodiscard]] std::vector<std::string> modules_around(const std::string& entry, std::string_view path);

void check_saved_modules(const LoraConfig& c, const std::vector<std::string>& linears,
                         const std::vector<std::string>& modules);

template <class Value>
[[nodiscard]] Value pattern_value(const std::vector<std::pair<std::string, Value>>& patterns, const std::string& path,
                                  Value fallback) {
  for (const auto& [key, value] : patterns)
    if (ModulePattern("(.*\\.)?(" + key + ")$", false).matches(path)) return value;
  return fallback;
}

[[noreturn]] void raise_lora_setting(const std::string& name, const std::string& found, const std::string& expected);

}  // namespace detail

void check_lora(const LoraConfig& c);

[[nodiscard]] LoraShape lora_shape(const LoraConfig& c, const std::string& path);

// True if the parameter of all experts at `path` gets an adapter.
[[nodiscard]] bool is_target_parameter(const LoraConfig& c, const std::string& path);

// Every entry of target_parameters names one of `parameters`, and the settings are such that experts can have an adapter.
void check_target_parameters(const LoraConfig& c, const std::vector<std::string>& parameters);

// True if the weights of the module at `path` are trained whole, in a copy.
[[nodiscard]] bool is_saved_module(const LoraConfig& c, const std::string& path);

// True if the linear map at `path` gets an adapter.
[[nodiscard]] bool is_lora_target(const LoraConfig& c, const std::string& path);

// What a list of targets must name: every entry something, or all of them together something.
enum class TargetCheck { every, some };

// The targets among `linears` (paths of linear maps); `modules` are all modules with weights. At least one.
[[nodiscard]] std::vector<std::string> lora_targets(const LoraConfig& c, const std::vector<std::string>& linears,
                                                    const std::vector<std::string>& modules, TargetCheck check);

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/lora_config_impl.hpp>
#endif
