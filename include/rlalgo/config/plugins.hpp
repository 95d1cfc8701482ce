// axolotl's plugins, with the keys that belong to each: what a file that names them asks for.
//
// A plugin and its keys are judged together, by the plugin's name: used here by other means (NeMo Gym), without effect, with one
// warning, or refused (config.10), where it would be another training. A key of `acts` asks for that when it is on; where
// `acts_by_name` is set, naming the plugin does. Plugins that nobody knows are Python code, and a warning says that they are not loaded.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace rlalgo::config {

struct Plugin {
  std::string_view package;                 // axolotl.integrations.<package>
  std::string_view class_name;              // with or without a module in between
  std::string_view reason;                  // why it has no effect, or what to do instead
  std::vector<std::string_view> keys = {};  // a name, or the beginning of names where it ends in _
  std::vector<std::string_view> acts = {};
  bool acts_by_name = false;
  bool used = false;  // its keys are read elsewhere
};

// clang-format off
[[nodiscard]] inline std::span<const Plugin> plugins() {
  static const std::vector<Plugin> all = {
    {.package = "nemo_gym", .class_name = "NemoGymPlugin", .reason = "nemo_gym_enabled is not true", .used = true},
    {.package = "swanlab", .class_name = "SwanLabPlugin", .reason = "metrics go to metrics.jsonl and TensorBoard, completions to "
        "samples.jsonl and report.html", .keys = {"use_swanlab", "swanlab_"}},
    {.package = "kernels", .class_name = "KernelsPlugin", .reason = "kernels are chosen by the program, and weights "
        "are not quantized", .keys = {"expert_backend", "moe_grouped_backend", "moe_dequant_chunk_size", "moe_bnb_fast",
        "use_scattermoe", "use_sonicmoe", "use_dsv4_kernels", "use_glm_dsa_kernels", "dsv4_", "gemma4_fp8_nonexpert",
        "gemma4_nf4_nonexpert", "nvfp4_merge_aware", "nvfp4_merge_aware_", "nonexpert_quantization"}, .acts = {"nonexpert_quantization"}},
    {.package = "liger", .class_name = "LigerPlugin", .reason = "kernels are chosen by the program", .keys = {"liger_"}},
    {.package = "cut_cross_entropy", .class_name = "CutCrossEntropyPlugin", .reason = "logits are never materialised", .keys = {
        "cut_cross_entropy"}},
    {.package = "spectrum", .class_name = "SpectrumPlugin", .reason = "it chooses the weights that are trained: name them in "
        "unfrozen_parameters", .keys = {"spectrum_"}, .acts_by_name = true},
    {.package = "grokfast", .class_name = "GrokfastPlugin", .reason = "gradients are not filtered; remove the plugin", .keys = {"grokfast_"},
        .acts_by_name = true},
    {.package = "kd", .class_name = "KDPlugin", .reason = "there is no distillation; remove the plugin", .keys = {"kd_"}, .acts = {
        "kd_trainer"}},
    {.package = "diffusion", .class_name = "DiffusionPlugin", .reason = "there are no diffusion models; remove the plugin", .keys = {
        "diffusion"}, .acts_by_name = true},
    {.package = "densemixer", .class_name = "DenseMixerPlugin", .reason = "the gradient of a router is that of the experts it chose; remove the key",
        .keys = {"dense_mixer"}, .acts = {"dense_mixer"}},
    {.package = "llm_compressor", .class_name = "LLMCompressorPlugin", .reason = "weights are not pruned; remove the section", .keys = {
        "llmcompressor"}, .acts = {"llmcompressor"}},
    {.package = "mora", .class_name = "MoraPlugin", .reason = "use adapter: lora", .keys = {"mora"}, .acts = {"mora"}},
    {.package = "hatchery", .class_name = "HatcheryPlugin", .reason = "training is done by this program, not by a service; remove the "
        "plugin", .keys = {"hatchery"}, .acts_by_name = true},
    {.package = "lm_eval", .class_name = "LMEvalPlugin", .reason = "no benchmark is run: give lm_eval the output_dir afterwards", .keys = {
        "lm_eval_"}},
    {.package = "expert_parallel", .class_name = "ExpertParallelPlugin", .reason = "expert_parallel_size alone divides experts "
        "among ranks, over the ranks' own connections, and drops no token", .keys = {
        "expert_parallel_backend", "expert_parallel_num_nvl_bytes", "expert_parallel_num_rdma_bytes", "expert_parallel_token_capacity",
        "expert_parallel_fallback_on_unsupported"}},
  };
  return all;
}
// clang-format on

// Whether `name`, as `plugins` lists it, is that plugin.
[[nodiscard]] inline bool is_plugin(std::string_view name, const Plugin& plugin) {
  constexpr std::string_view room = "axolotl.integrations.";
  if (!name.starts_with(room)) return false;
  name.remove_prefix(room.size());
  if (!name.starts_with(plugin.package)) return false;
  name.remove_prefix(plugin.package.size());
  return name.starts_with(".") && name.substr(name.rfind('.') + 1) == plugin.class_name;
}

// Whether `key` is one of the plugin's.
[[nodiscard]] inline bool is_key_of(std::string_view key, const Plugin& plugin) {
  for (const std::string_view own : plugin.keys)
    if (own == key || (own.ends_with('_') && key.starts_with(own))) return true;
  return false;
}

}  // namespace rlalgo::config
