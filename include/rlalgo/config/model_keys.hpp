// What is trained, in which numbers: model, tokenizer, precision.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <rlalgo/config/key.hpp>
#include <rlalgo/text/special_tokens.hpp>

namespace rlalgo::config {

struct ModelConfig {
  std::string base_model;  // required: directory, or id in the cache
  std::optional<std::string> model_revision, tokenizer_config;
  std::optional<std::string> chat_template, chat_template_jinja;
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;  // of special_tokens
  std::vector<std::string> additional_special_tokens;                     // of special_tokens
  std::vector<std::string> tokens;
  data::Json added_tokens_overrides = nullptr;
  std::vector<std::string> unfrozen_parameters;  // empty = all
  std::optional<std::string> lora_model_dir;     // an adapter to continue
  bool gradient_checkpointing = false;
  std::string activation_offloading = "none";  // none, host, disk
  std::string device = "cpu";                  // as chosen: cpu, cuda:N (config/device.hpp)
  std::optional<double> peak_tflops;           // unset: that of the device, where it is known
  bool bfloat16 = false;  // bf16 or bfloat16: weights and activations; the optimizer updates float32 masters
  bool float32 = false;   // a whole model is saved in float32, whatever the base's files are in

  // What these keys change of the tokenizer's tokens.
  [[nodiscard]] text::TokenChanges token_changes() const {
    text::TokenChanges out{.renamed = {}, .roles = {}, .tokens = tokens, .extra = additional_special_tokens};
    if (added_tokens_overrides.is_object())
      for (const auto& [id, name] : added_tokens_overrides.items()) out.renamed[std::stoll(id)] = name;
    const auto role = [&](const char* name, const std::optional<std::string>& token) {
      if (token) out.roles[name] = *token;
    };
    role("bos_token", bos_token);
    role("eos_token", eos_token);
    role("pad_token", pad_token);
    role("unk_token", unk_token);
    return out;
  }
};

namespace detail {

// axolotl's older words say where the inputs lie, too.
inline void read_checkpointing(const Node& node, bool& on, std::string& offloading) {
  const bool host = node.kind == Kind::string && lower_equal(node.text, "offload"),
             disk = node.kind == Kind::string && lower_equal(node.text, "offload_disk");
  if (!host && !disk) {
    const Target flag(on);
    return flag.read(flag.at, node, "gradient_checkpointing");
  }
  on = true;
  offloading = host ? "host" : "disk";
}

inline void read_overrides(const Node& names, data::Json& out) {
  static constexpr const char* form = "a section from ids to tokens, such as {128002: \"<think>\"}";
  if (names.kind != Kind::mapping) raise_type("added_tokens_overrides", names, form);
  for (const Member& member : names.members) {
    const bool id = !member.key.empty() && member.key.size() < 10 && all_of(member.key, "0123456789");
    if (!id || member.value.kind != Kind::string || member.value.text.empty())
      raise_type("added_tokens_overrides." + member.key, member.value, form);
    out[member.key] = member.value.text;
  }
}

}  // namespace detail

// clang-format off
[[nodiscard]] inline Keys token_keys(ModelConfig& m) {
  const auto token = [](std::string_view name, std::optional<std::string>& to, std::string_view says) {
    return key(name, to, says).by("text", [&to, name](const Node& node) {
      std::string text;
      detail::convert(node, std::string(name), text);
      if (text.empty()) detail::raise_type(std::string(name), node, "a token, such as \"<|im_end|>\"");
      to = text;
    }).only_if_written();
  };
  return {
    token("special_tokens.bos_token", m.bos_token, "the token that has the role, instead of the tokenizer's, in prompts, templates and "
        "the files that are saved"),
    token("special_tokens.eos_token", m.eos_token, "the same, and the end of completions (beside the ends of the model's "
        "`generation_config.json`, where it comes first) and of preferred answers"),
    token("special_tokens.pad_token", m.pad_token, "the same; nothing is padded"),
    token("special_tokens.unk_token", m.unk_token, "the same"),
    key("special_tokens.additional_special_tokens", m.additional_special_tokens, "special tokens without a role, instead of the "
        "tokenizer's").only_if_written(),
  };
}

[[nodiscard]] inline Keys model_keys(ModelConfig& m) {
  return {
    key("base_model", m.base_model, "required: directory, or id in the cache (`HF_HUB_CACHE`, `HF_HOME`), where [`rlalgo fetch`](#fetching) puts it; nothing else downloads").a_path()
        .free(resume::place),
    key("model_revision", m.model_revision, "revision of a cached id").free(resume::place),
    key("revision_of_model", m.model_revision, "").same_as("model_revision").free(resume::place),
    key("tokenizer_config", m.tokenizer_config, "directory or id of the tokenizer, whose files are read as transformers 5.23 reads them "
        "([departures](departures.md))").shows("`base_model`").a_path().free(resume::place),
    key("chat_template", m.chat_template, "`tokenizer_default`, a bundled name, `tokenizer_default_fallback_<name>`, or `jinja`"),
    key("chat_template_jinja", m.chat_template_jinja, "a template, or the path of one; alone it means `chat_template: jinja`"),
    key("tokens", m.tokens, "texts that become tokens of their own. A token that the vocabulary lacks gets the next id: it needs a free "
        "row of the embedding, which is not enlarged (`config.47`; a `pad_token` without one is left out, with a note, for nothing is "
        "padded); with an adapter a new role needs `lora_modules_to_save: [embed_tokens, lm_head]`, as in axolotl").only_if_written(),
    key("added_tokens_overrides", m.added_tokens_overrides, "`{128002: \"<think>\"}`: another text for an added token, in all files; "
        "roles that name it follow").by("section", [&m](const Node& node) { detail::read_overrides(node, m.added_tokens_overrides); })
        .only_if_written(),
    key("gradient_checkpointing", m.gradient_checkpointing, "keep only the inputs of layers and compute each layer again in the backward "
        "pass: same gradients, less memory. `offload` and `offload_disk` are axolotl's older words for it with `activation_offloading: true` and `disk`")
        .by("true, false, offload, offload_disk", [&m](const Node& node) { detail::read_checkpointing(node, m.gradient_checkpointing, m.activation_offloading); })
        .free({"the same gradients"}),
    key("activation_offloading", m.activation_offloading, "where those inputs lie until the backward pass: `true` (axolotl's `legacy` and "
        "`hidden_states` are the same here): in the memory of the host, copied beside the computation; `disk`: in a file without a name in TMPDIR. "
        "The same gradients. Needs `gradient_checkpointing`").one_of({"none", "host", "disk"}).meaning("true", "host").meaning("false", "none").meaning("legacy", "host")
        .meaning("hidden_states", "host").meaning("offload_disk", "disk")
        .free({"the same gradients"}),
    key("peak_tflops", m.peak_tflops, "what the device of a rank can multiply, in TFLOP/s: the denominator of `train/mfu`. Unless it is set, "
        "of GPUs that are known the dense bfloat16 of their data sheets; of a CPU there is none, and no `train/mfu` "
        "([GPUs](gpu.md#how-much-of-the-card))").within(above(0)).free(resume::place),
    key("unfrozen_parameters", m.unfrozen_parameters, "patterns of the only weights to train, matched from the start of names like "
        "`model.layers.0.mlp.up_proj.weight`; a dot is a dot"),
    key("lora_model_dir", m.lora_model_dir, "a PEFT directory to continue; its `adapter_config.json` replaces the keys of the adapter, and "
        "it is the reference of a KL penalty").a_path().free(resume::place),
    key("float32", m.float32, "a whole model is saved in float32. Without it `output_dir` has each tensor in the dtype of the base's file "
        "(a base in bfloat16, trained in float32, is saved in bfloat16), never wider than what was computed with; checkpoints to go on "
        "from are exact always. No effect beside `bf16: true` (a warning)").only_if_written().free(resume::output),
  };
}

// Read by config/device.hpp and config/detail/read_training.hpp.
[[nodiscard]] inline Keys machine_keys(ModelConfig& m) {
  return {
    key("device", m.device, "where weights lie and are computed with: `cpu`, `cuda` (the GPU of this rank), `cuda:N`, or `auto`: a GPU "
        "where a driver shows one and LibTorch's CUDA half can be loaded, said in one line, else the CPU. What a GPU cannot do yet is "
        "refused by its key (8-bit moments, generation in 8 bits). A resume goes on on the kind of device that it was begun on "
        "([GPUs](gpu.md))").shows("auto"),
    key("bf16", m.bfloat16, "`true`: weights and activations in bfloat16, saved so; the optimizer updates float32 master weights (in the "
        "checkpoint as `<name>.master`). Adapters stay float32. `auto` is that on a GPU, and on a CPU that multiplies bfloat16 (AVX-512 "
        "BF16, AMX), with a line that says so, and float32 on any other; without the key it is float32. `fp16`, `float16`: refused").by(
        "true, false, auto", nullptr),
    key("bfloat16", "").same_as("bf16"),
  };
}
// clang-format on

}  // namespace rlalgo::config
