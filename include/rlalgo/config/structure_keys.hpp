// Keys that say how the others are read: the method, sections and lists, and what is derived from several keys. Their readers are
// where their meaning is; the rows are for documentation, `rlalgo keys`, the schema and completions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/config/detail/read_trackers.hpp>
#include <rlalgo/config/key.hpp>
#include <rlalgo/config/methods.hpp>
#include <rlalgo/config/supported.hpp>

namespace rlalgo::config {

// clang-format off
// Of config/parse.hpp.
[[nodiscard]] inline Keys recipe_keys() {
  return {
    key("rl", "required: the method").one_of(names_of(recipes()).known),
    key("rl_beta", "β; `trl.beta` wins, then `rl_beta`, then `orpo_alpha`").by("number", nullptr).within(at_least(0))
        .shows("0, of preferences 0.1"),
    key("dpo_beta", "").old_name_of("rl_beta").by("number", nullptr),
    key("orpo_alpha", "β of `rl: orpo`").by("number", nullptr).within(above(0)),
    key("strict", "accepted: unknown keys are always errors").by("true, false", nullptr),
    key("allow_unsupported", "what this program lacks and changes no number is a warning, no refusal (ours)").by("true, false", nullptr)
        .shows("false"),
    key("sample_packing", "refused where it is on: sequences are laid out without padding anyway").by("true, false", nullptr),
    key("plugins", "axolotl's plugins, [below](#axolotls-own-files)").by("list of texts", nullptr),
  };
}

// Of config/detail/read_training.hpp.
[[nodiscard]] inline Keys refused_precision_keys() {
  return {
    key("fp16", "refused where it is on: nothing computes in float16, `bf16` is there").by("true, false, auto", nullptr),
    key("float16", "").same_as("fp16").by("true, false, auto", nullptr),
  };
}
[[nodiscard]] inline Keys file_format_keys() {
  return {key("save_safetensors", "accepted: weights are always saved so").by("true, false", nullptr)};
}

// Of config/detail/read_adapter.hpp.
[[nodiscard]] inline Keys adapter_choice_keys() {
  return {
    key("adapter", "`lora`: the base is frozen, in one copy for trainer, generation and reference; `output_dir` gets PEFT's "
        "`adapter_config.json` and `adapter_model.safetensors`, and no `config.json`: transformers opens it through the base that it names. "
        "`qlora`: with `load_in_4bit`, see below").by("lora, qlora", nullptr),
    key("bnb_config_kwargs", "a section with the keys `bnb_4bit_…`, which come after those, `blocksize` and `llm_int8_skip_modules`: names, ends of "
        "names or patterns of maps that stay whole. What else axolotl passes on there has no effect here, and is named").by("section", nullptr),
    key("lora_target_linear", "adds every linear map of the layers to the targets, routers and experts left out").by("true, false", nullptr)
        .shows("false"),
  };
}

// Of config/detail/read_optimizer.hpp, read_schedule.hpp and read_related.hpp.
[[nodiscard]] inline Keys arguments_keys() {
  return {
    key("batch_size", "`micro_batch_size` × `gradient_accumulation_steps`, in place of the second").by("whole number", nullptr)
        .within(count(1)),
    key("lr_scheduler_kwargs", "options of `lr_scheduler`, see below").by("section", nullptr),
    key("optim_args", "arguments of `muon`, `adafactor`, `sgd`, `adagrad` and `rmsprop`, as a section or as `\"name=value,name=value\"`; any other is refused by name")
        .by("section, text", nullptr),
  };
}

// Names in those sections that a reader of their own takes; of the others: schedule_keys(), optimizer_argument_keys().
[[nodiscard]] inline Keys nested_argument_keys() {
  return {
    key("lr_scheduler_kwargs.lr_end", "where `polynomial` ends, below `learning_rate`").by("number", nullptr).within(at_least(0)),
    key("lr_scheduler_kwargs.min_lr_rate", "where cosines end, as a share of the peak").by("number", nullptr).within(fraction),
    key("lr_scheduler_kwargs.min_lr", "where they, or a plateau's cuts, end, as a rate").by("number", nullptr).within(at_least(0)),
    key("optim_args.eps", "of `adafactor` two numbers, of `adagrad` and `rmsprop` one").by("list of numbers, number, text", nullptr),
  };
}

// Of config/detail/read_sharding.hpp.
[[nodiscard]] inline Keys other_layout_keys() {
  return {
    key("fsdp", "axolotl's older list of words").by("text, list of texts", nullptr),
    key("fsdp_version", "2, of `fsdp_config`").by("whole number", nullptr),
    key("fsdp_final_state_dict_type", "whether the saved model is in one file or in as many as ranks")
        .one_of({"FULL_STATE_DICT", "SHARDED_STATE_DICT"}),
    key("deepspeed", "a JSON file, or a section: `zero_optimization.stage` 0 to 3").by("text, section", nullptr),
  };
}

// Of config/detail/read_trackers.hpp: what their clients are given.
[[nodiscard]] inline Keys tracker_rows() {
  static const std::vector<std::string> sentences = [] {
    std::vector<std::string> out;
    for (const detail::TrackerKeys& tracker : detail::tracker_keys()) {
      out.push_back("metrics go to " + std::string(tracker.name) + ", too; so they do where `" + tracker.project + "` is set");
      for (const auto& [name, variable] : tracker.texts) out.push_back("`" + std::string(variable) + "` of its client");
    }
    return out;
  }();
  Keys out;
  std::size_t next = 0;
  for (const detail::TrackerKeys& tracker : detail::tracker_keys()) {
    out.push_back(key(tracker.use, sentences[next++]).by("true, false", nullptr));
    for (const auto& [name, variable] : tracker.texts) {
      out.push_back(key(name, sentences[next++]).by("text", nullptr));
      out.back().words.known = out.back().words.supported = detail::tracker_words(name);
    }
  }
  out.push_back(key("comet_online", "`COMET_START_ONLINE` of its client").by("true, false", nullptr));
  out.push_back(key("comet_experiment_config", "`name`, `tags` and `offline_directory` of its experiment").by("section", nullptr));
  return out;
}

// An entry of `datasets` or `test_datasets`, of config/detail/read_datasets.hpp.
[[nodiscard]] inline Keys entry_keys() {
  return {
    key("datasets[].path", "file, directory (of files, or as `save_to_disk` writes it), pattern (`dir/*.jsonl`, `dir/**/*.json`), id of a dataset "
        "in the cache, or `json`, `csv`, `text`, `parquet`, `arrow` with `data_files`; files of text may be packed with gzip or zstd. See [Files "
        "of data](#files-of-data)").by("text", nullptr),
    key("datasets[].data_files", "a file or pattern, a list of them, or a map from split to either (`{train: a.jsonl, test: [b.jsonl]}`); "
        "without `path`, files by themselves. Relative ones are looked for in the directory or dataset of `path`, then in the working directory").by("text, list of texts, section", nullptr),
    key("datasets[].split", "`train`, `train[:500]`, `train[-5%:]`, `train[:10]+test[:10%]`").by("text", nullptr).shows("train"),
    key("datasets[].ds_type", "`json` (also for JSON lines), `csv` (and TSV), `text`, `parquet` or `arrow`").one_of(dataset_formats()).shows("by extension"),
    key("datasets[].name", "configuration of a dataset (`configs:` of its card, or a folder)").by("text", nullptr),
    key("datasets[].revision", "revision of a cached dataset").by("text", nullptr),
    key("datasets[].field", "key of the rows inside one object").by("text", nullptr),
    key("datasets[].type", "how rows become prompts, or pairs: see below").by("text, section", nullptr),
    key("datasets[].field_messages", "column of the messages, for `chat_template.*`").by("text", nullptr).shows("messages"),
    key("datasets[].field_chosen", "column of the preferred answer").by("text", nullptr).shows("chosen"),
    key("datasets[].field_rejected", "column of the other").by("text", nullptr).shows("rejected"),
    key("datasets[].message_field_role", "of a message").by("text", nullptr).shows("role"),
    key("datasets[].message_field_content", "of a message").by("text", nullptr).shows("content"),
    key("datasets[].message_property_mappings", "field of a message → its name in the rows").by("section", nullptr),
    key("datasets[].field_tools", "column of the tools").by("text", nullptr).shows("tools"),
    key("datasets[].field_thinking", "field of a message that has its reasoning").by("text", nullptr),
    key("datasets[].roles", "role → its names in the rows").by("section", nullptr),
    key("datasets[].chat_template", "the chat template of these rows, by the rules of the keys of these names above, observations and tools of several turns "
        "included; not with rollout functions, a NeMo Gym, `ebft.mode: structured`").by("text", nullptr).shows("the run's"),
    key("datasets[].chat_template_jinja", "the same as a text or a path").by("text", nullptr),
    key("datasets[].shards", "of the rows, shuffled with `seed`, one of so many equal parts").by("whole number", nullptr).within(count(1)),
    key("datasets[].shards_idx", "which of them").by("whole number", nullptr).within(count(0)).shows("0"),
    key("datasets[].preprocess_shards", "so many entries, one for each part").by("whole number", nullptr).within(count(1)),
  };
}
// clang-format on

}  // namespace rlalgo::config
