// fsdp, fsdp_version, fsdp_config, deepspeed, dp_shard_size and dp_replicate_size: read into one ShardingConfig.
//
//   fsdp_config (version 2)   ZeRO 3; reshard_after_forward: false keeps layers whole until their backward pass
//   fsdp, version 1           full_shard and hybrid_shard: ZeRO 3; shard_grad_op: the same without resharding; no_shard: nothing
//   deepspeed                 a JSON file or a section: zero_optimization.stage 0 to 3
//
// What is no layout is honoured where this program has it, named in one line where it has no effect, and refused where it would
// be another run. Numbers of a deepspeed file must be those of the configuration; "auto" is any.
//
// Errors (usage): [rlalgo.config.4] an unknown key of fsdp_config; [.6] a word or a stage that is not known; [.8] keys that
// exclude each other, or disagree; [.10] what this build lacks; [.14] a size without a layout.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/document.hpp>
#include <rlalgo/config/reader.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/home_path.hpp>

namespace rlalgo::config::detail {

class ShardingReader {
 public:
  ShardingReader(Reader& reader, RunConfig& config) : reader_(reader), config_(config), out_(config.sharding) {}

  void read() {
    std::optional<std::int64_t> version;
    reader_.read("fsdp_version", version);
    reader_.judge("fsdp", [&] { read_fsdp(); });
    if (const Node* node = reader_.take("fsdp_config"); node != nullptr && is_on(*node))
      reader_.judge("fsdp_config", [&] {
        if (node->kind != Kind::mapping) raise_type("fsdp_config", *node, "a section of key: value lines");
        if (!node->members.empty()) read_fsdp_config(*node);
      });
    std::string type;
    reader_.read("fsdp_final_state_dict_type", type);
    if (!type.empty())
      reader_.judge("fsdp_final_state_dict_type", [&] { state_dict("fsdp_final_state_dict_type", type); });
    if (const Node* node = reader_.take("deepspeed"); node != nullptr && is_on(*node)) read_deepspeed(*node);
    read_sizes();
    if (version && out_.key.empty())
      reader_.findings().warnings.push_back("fsdp_version has no effect: there is no fsdp_config");
    reader_.record("fsdp_config", out_.layout);
    if (!out_.on()) return;
    out_.layout = "ZeRO " + std::to_string(out_.stage);
    if (!out_.reshard_after_forward) *out_.layout += ", layers whole until their backward pass";
    if (out_.shard_size) *out_.layout += ", of " + std::to_string(*out_.shard_size) + " ranks";
  }

 private:
  template <class F>
  void judge(const std::string& key, F&& judgement) {
    if (!reader_.findings().refusals.judge_own(judgement)) reader_.findings().refusals.distrust(key);
  }
  void say_idle(const std::string& key, const std::string& reason) {
    reader_.findings().warnings.push_back(key + " has no effect: " + reason);
  }
  static std::string listed(std::span<const std::string_view> words) {
    std::string out;
    for (const std::string_view word : words) out += (out.empty() ? "" : ", ") + std::string(word);
    return out;
  }
  template <std::size_t n>
  static std::string word_of(const std::string& key, const Node& value, const std::array<std::string_view, n>& known) {
    if (value.scalar() && std::find(known.begin(), known.end(), value.text) != known.end()) return value.text;
    core::raise_usage("config", 6,
                      {.what = "the value of " + key + " is not known",
                       .found = describe(value),
                       .expected = "one of " + listed(known),
                       .where = value.place.text()});
  }
  // Not here; another layout has the same numbers, another precision has not.
  void refuse(const std::string& key, const Node& value, const std::string& remedy, bool computes = false) {
    if (!computes && reader_.findings().allow_unsupported)
      return say_idle(key + " (" + value.place.text() + ")", "it is not here (--allow-unsupported): " + remedy);
    core::raise_usage("config", 10,
                      {.what = "this build has no such " + key,
                       .found = describe(value),
                       .where = value.place.text(),
                       .remedy = remedy + (computes ? "" : ", or leave it out with --allow-unsupported")});
  }
  static bool flag(const std::string& key, const Node& value) {
    bool on = false;
    convert(value, key, on);
    return on;
  }
  void state_dict(const std::string& key, const std::string& type) {
    out_.file_of_each = type == "SHARDED_STATE_DICT";
    if (out_.file_of_each || type == "FULL_STATE_DICT") return;
    core::raise_usage("config", 6,
                      {.what = "the value of " + key + " is not known",
                       .found = type,
                       .expected = "FULL_STATE_DICT or SHARDED_STATE_DICT",
                       .where = config_.place(key)});
  }
  void ask_for(const std::string& key, std::int64_t stage) {
    if (!out_.key.empty() && (key == "deepspeed" || out_.key == "deepspeed"))
      reader_.refuse(8, {.what = out_.key + " and deepspeed are both set",
                         .where = reader_.section().find("deepspeed")->place.text(),
                         .remedy = "remove one"});
    out_.key = key;
    out_.stage = stage;
  }

  // The old list of words.
  void read_fsdp() {
    const Node* node = reader_.take("fsdp");
    if (node == nullptr || !is_on(*node)) return;
    std::vector<std::string> words;
    if (node->kind == Kind::string)
      words = {node->text};
    else if (node->kind != Kind::boolean)
      convert(*node, "fsdp", words);
    else
      words = {"full_shard"};
    if (words.empty()) return;
    ask_for("fsdp", 3);
    for (const std::string& word : words) {
      if (word == "shard_grad_op") out_.reshard_after_forward = false;
      if (word == "no_shard") out_.stage = 0;
      if (word == "offload") say_idle("fsdp: offload", in_memory);
      if (word != "shard_grad_op" && word != "no_shard" && word != "offload" && word != "full_shard" &&
          word != "hybrid_shard" && word != "auto_wrap")
        core::raise_usage("config", 6,
                          {.what = "a word of fsdp is not known",
                           .found = word,
                           .expected = "full_shard, shard_grad_op, hybrid_shard, no_shard, auto_wrap or offload",
                           .where = node->place.text(),
                           .remedy = "or set fsdp_config"});
    }
  }

  void read_fsdp_config(const Node& section) {
    if (out_.key.empty()) ask_for("fsdp_config", 3);
    std::string always;
    for (const Member& member : section.members) {
      std::string name = member.key;
      if (name.starts_with("fsdp_") && name != "fsdp_version") name.erase(0, 5);
      const std::string key = "fsdp_config." + name;
      const Node& value = member.value;
      if (value.kind == Kind::null) continue;
      reader_.findings().given[key] = value.place;
      judge(key, [&] {
        if (name == "fsdp_version" || name == "version") {
          std::int64_t version = 0;
          convert(value, key, version);
        } else if (name == "reshard_after_forward" && value.kind != Kind::string) {
          out_.reshard_after_forward = flag(key, value);
        } else if (name == "sharding_strategy" || name == "reshard_after_forward") {
          const std::string word = word_of(key, value, strategies);
          out_.reshard_after_forward = word != "SHARD_GRAD_OP" && word != "2";
          if (word == "NO_SHARD" || word == "3") out_.stage = 0;
        } else if (name == "activation_checkpointing") {
          config_.gradient_checkpointing = flag(key, value) || config_.gradient_checkpointing;
        } else if (name == "offload_params" || name == "cpu_offload_pin_memory") {
          if (flag(key, value)) say_idle(key, in_memory);
        } else if (name == "auto_wrap_policy") {
          if (word_of(key, value, wraps) != "TRANSFORMER_BASED_WRAP")
            refuse(key, value, "TRANSFORMER_BASED_WRAP: a layer of the decoder is gathered at a time");
        } else if (name == "state_dict_type") {
          if (section.find("final_state_dict_type") == nullptr && section.find("fsdp_final_state_dict_type") == nullptr)
            state_dict(key, value.text);
        } else if (name == "final_state_dict_type") {
          state_dict(key, value.text);
        } else if (name == "mixed_precision_policy") {
          const std::string word = word_of(key, value, precisions);
          if (word == "fp16") refuse(key, value, "bf16: true, or nothing for float32", true);
          take_precision(key, value, word == "bf16");
        } else if (std::find(done_anyway.begin(), done_anyway.end(), name) != done_anyway.end()) {
          always += (always.empty() ? "" : ", ") + name;
        } else {
          core::raise_usage("config", 4, {.what = "unknown key " + key, .where = member.place.text()});
        }
      });
    }
    if (!always.empty())
      say_idle("fsdp_config: " + always,
               "a layer is gathered ahead and given up behind, and every rank reads its shards from the files");
  }

  void disagree(const std::string& key, const Node& value, const std::string& expected) const {
    core::raise_usage("config", 8,
                      {.what = key + " disagrees with the configuration",
                       .found = describe(value),
                       .expected = expected,
                       .where = value.place.text(),
                       .remedy = "say it in one place, or write \"auto\""});
  }
  static bool automatic(const Node& value) { return value.kind == Kind::null || value.text == "auto"; }
  void same_number(const std::string& key, const Node* value, double expected) const {
    if (value == nullptr || automatic(*value)) return;
    double number = 0.0;
    convert(*value, key, number);
    if (number != expected) disagree(key, *value, data::Json(expected).dump());
  }
  static const Node* enabled_in(const Node& section) {
    const Node* value = section.kind == Kind::mapping ? section.find("enabled") : nullptr;
    return value == nullptr || automatic(*value) ? nullptr : value;
  }
  // bf16 is axolotl's `auto` unless it is said: then the layout decides, as a GPU would.
  void take_precision(const std::string& key, const Node& value, bool bfloat16) {
    if (bfloat16 == config_.bfloat16) return;
    for (const char* spelling : {"bf16", "bfloat16"})
      if (const Node* said = reader_.section().find(spelling);
          said != nullptr && said->kind != Kind::null && said->text != "auto")
        disagree(key, value, config_.bfloat16 ? "bf16: true" : "float32, as bf16 says");
    config_.bfloat16 = bfloat16;
    reader_.findings().warnings.push_back(key + " (" + value.place.text() +
                                          ") decides, as bf16 does not: the model computes in " +
                                          (bfloat16 ? "bfloat16, the optimizer in float32" : "float32"));
  }

  void read_deepspeed(const Node& given) {
    Document file;
    const Node* section = &given;
    if (given.kind != Kind::mapping) {
      const bool read = reader_.judge("deepspeed", [&] {
        std::string path;
        convert(given, "deepspeed", path);
        path = os::expand_home(path, given.place.text());
        file = load_document(path);
      });
      if (!read) return;
      section = &file.root;
    }
    std::int64_t stage = 0;
    std::string idle;
    for (const Member& member : section->members) {
      const std::string key = "deepspeed." + member.key;
      const Node& value = member.value;
      judge(key, [&] {
        if (member.key == "zero_optimization") {
          stage = read_zero(value, idle);
        } else if (member.key == "gradient_accumulation_steps") {
          same_number(key, &value, static_cast<double>(config_.gradient_accumulation_steps));
        } else if (member.key == "train_micro_batch_size_per_gpu") {
          same_number(key, &value, static_cast<double>(config_.micro_batch_size));
        } else if (member.key == "gradient_clipping") {
          same_number(key, &value, config_.max_grad_norm);
        } else if (member.key == "bf16") {
          if (const Node* on = enabled_in(value)) take_precision(key + ".enabled", *on, flag(key + ".enabled", *on));
        } else if (member.key == "fp16") {
          if (const Node* on = enabled_in(value); on != nullptr && flag(key + ".enabled", *on))
            disagree(key + ".enabled", *on, "false");
        } else if (member.key == "optimizer" && value.kind == Kind::mapping) {
          const Node* rate = value.find("params");
          if (rate != nullptr && rate->kind == Kind::mapping) {
            same_number(key + ".params.lr", rate->find("lr"), config_.learning_rate);
            same_number(key + ".params.weight_decay", rate->find("weight_decay"), config_.weight_decay);
            same_number(key + ".params.eps", rate->find("eps"), config_.adam_epsilon);
          }
        } else if (member.key != "train_batch_size" || !automatic(value)) {
          idle += (idle.empty() ? "" : ", ") + member.key;
        }
      });
    }
    ask_for("deepspeed", stage);
    if (!idle.empty()) say_idle("deepspeed: " + idle, "buckets, schedules and kernels are this program's own");
  }

  std::int64_t read_zero(const Node& section, std::string& idle) {
    if (section.kind != Kind::mapping) raise_type("deepspeed.zero_optimization", section, "a section");
    std::int64_t stage = 0;
    for (const Member& member : section.members) {
      const std::string key = "deepspeed.zero_optimization." + member.key;
      judge(key, [&] {
        if (member.key == "stage") {
          convert(member.value, key, stage);
          if (stage < 0 || stage > 3) raise_range(key, member.value, "0, 1, 2 or 3");
        } else if (member.key == "offload_optimizer" || member.key == "offload_param") {
          const Node* device = member.value.kind == Kind::mapping ? member.value.find("device") : nullptr;
          if (device != nullptr && device->text == "nvme") refuse(key, *device, "device: cpu, or none");
          if (device != nullptr && device->text == "cpu") say_idle(key, in_memory);
        } else if (!automatic(member.value)) {
          idle += (idle.empty() ? "" : ", ") + member.key;
        }
      });
    }
    return stage;
  }

  void read_sizes() {
    const auto size = [&](const char* key, std::optional<std::int64_t>& out) {
      reader_.read(key, out);
      if (!out || *out >= 1) return;
      reader_.judge(key, [&] { raise_range(key, *reader_.section().find(key), "1 or more"); });
      out.reset();
    };
    size("dp_shard_size", out_.shard_size);
    size("dp_replicate_size", out_.replicate_size);
    if (out_.shard_size.value_or(1) > 1 && !out_.on())
      reader_.refuse(14, {.what = "dp_shard_size is set, but nothing is sharded",
                          .where = reader_.section().find("dp_shard_size")->place.text(),
                          .remedy = "set fsdp_config: {reshard_after_forward: true}, or remove it"});
  }

  static constexpr const char* in_memory = "ranks compute on the CPU, and shards lie in its memory already";
  static constexpr std::array<std::string_view, 8> strategies = {
      "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "1", "2", "3", "4"};
  static constexpr std::array<std::string_view, 3> wraps = {"TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"};
  static constexpr std::array<std::string_view, 4> precisions = {"bf16", "no", "fp32", "fp16"};
  static constexpr std::array<std::string_view, 8> done_anyway = {"transformer_layer_cls_to_wrap",
                                                                  "cpu_ram_efficient_loading",
                                                                  "sync_module_states",
                                                                  "use_orig_params",
                                                                  "limit_all_gathers",
                                                                  "forward_prefetch",
                                                                  "backward_prefetch",
                                                                  "min_num_params"};

  Reader& reader_;
  RunConfig& config_;
  ShardingConfig& out_;
};

}  // namespace rlalgo::config::detail
