// The `datasets` and `test_datasets` lists.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/config/detail/read_keys.hpp>
#include <rlalgo/config/run_config.hpp>
#include <rlalgo/config/supported.hpp>

namespace rlalgo::config::detail {

// Keys of an entry that shape conversations for supervised training or belong to other recipes.
// clang-format off
[[nodiscard]] inline std::span<const Reason> idle_dataset_keys() {
  static constexpr Reason reasons[] = {
    {"trust_remote_code", "no Python code of a dataset is run", "trust_remote"},
    {"train_on_split", "write split"},
    {"conversation message_field_training message_field_training_detail roles_to_train train_on_eos train_on_eot drop_system_message "
        "field_human field_model split_thinking template_thinking_key logprobs_field temperature input_format input_transform type_",
        "prompts come from type, or from the column prompt", "", "data/transform.hpp prompt"},
    {"step_separator max_completion_length train_on_last_step_only", "it concerns process reward models", "step_separator"},
    {"length sequence_length min_input_id max_input_id seed", "it concerns rows that axolotl makes up (type: _synthetic)", "_synthetic"},
    {"text_column skip", "it concerns pretraining_dataset", "pretraining_dataset"}};
  return reasons;
}
// clang-format on

// Where the messages of preference data are. `roles` replaces the default list.
inline void read_message_fields(Reader& reader, const std::string& key, data::MessageFields& out) {
  reader.read("field_messages", out.messages);
  reader.read("field_chosen", out.chosen);
  reader.read("field_rejected", out.rejected);
  reader.read("message_field_role", out.role);
  reader.read("message_field_content", out.content);
  reader.read("field_tools", out.tools);
  std::string thinking;
  reader.read("field_thinking", thinking);
  if (!thinking.empty() && thinking != "reasoning_content") out.properties["reasoning_content"] = thinking;
  if (const Node* node = reader.take("message_property_mappings"); node != nullptr) {
    Reader nested(*node, key + ".message_property_mappings.", reader.findings());
    nested.read("role", out.role);
    nested.read("content", out.content);
    for (const Member& member : node->members) {
      if (member.key == "role" || member.key == "content") continue;
      std::string source;
      nested.read(member.key, source);
      if (!source.empty()) out.properties[member.key] = source;
    }
    nested.finish();
  }
  if (const Node* node = reader.take("roles"); node != nullptr) {
    reader.judge("roles", [&] {
      if (node->kind != Kind::mapping) raise_type(key + ".roles", *node, "a section such as {user: [human]}");
      out.roles.clear();
      for (const Member& member : node->members) {
        std::vector<std::string> sources;
        convert(member.value, key + ".roles." + member.key, sources);
        for (const std::string& source : sources) out.roles[source] = member.key;
      }
    });
  }
}

// A file or pattern, a list of them, or a map from split to either.
inline void read_data_files(Reader& reader, const std::string& key, data::DatasetSource& out) {
  const Node* node = reader.take("data_files");
  if (node == nullptr || node->kind == Kind::null) return;
  const auto list = [](const Node& files, const std::string& name) {
    std::vector<std::string> names;
    if (files.kind == Kind::string)
      names = {files.text};
    else
      convert(files, name, names);
    return names;
  };
  if (node->kind != Kind::mapping) {
    out.data_files = list(*node, key);
    return;
  }
  for (const Member& member : node->members) {
    std::vector<std::string>& files = out.split_files[member.key];
    files = list(member.value, key + "." + member.key);
    if (files.empty()) raise_type(key + "." + member.key, member.value, "a file or pattern, or a list of them");
  }
  if (out.split_files.empty()) raise_type(key, *node, "a map from split to files, such as {train: a.jsonl}");
}

// Entries of `entry`: one, or one for each of preprocess_shards.
inline std::vector<DatasetConfig> read_shards(Reader& reader, const std::string& key, const DatasetConfig& entry) {
  std::int64_t shards = 0, pieces = 0;
  std::optional<std::int64_t> index;
  const auto count = [&](const char* name, std::int64_t& value) {
    if (reader.read(name, value) && value < 1) {
      reader.judge(name, [&] { raise_range(key + "." + name, *reader.section().find(name), "at least 1"); });
      value = 0;
    }
  };
  count("shards", shards);
  reader.read("shards_idx", index);
  count("preprocess_shards", pieces);
  const auto wrong = [&](const std::string& what, const std::string& remedy) {
    reader.refuse(8, {.what = what, .where = entry.where, .remedy = remedy});
  };
  if (index && shards == 0 && !reader.findings().refusals.distrusts(key + ".shards"))
    wrong(key + ".shards_idx without shards", "set shards, the number of parts");
  if (shards > 0 && pieces > 0)
    wrong(key + ".shards and preprocess_shards exclude each other", "remove preprocess_shards: one part is read");
  if (index && shards > 0 && (*index < 0 || *index >= shards))
    wrong(key + ".shards_idx is " + std::to_string(*index) + " of " + std::to_string(shards) + " shards",
          "the first is 0, the last shards - 1");
  std::vector<DatasetConfig> out(pieces > 0 ? static_cast<std::size_t>(pieces) : 1, entry);
  for (std::size_t k = 0; k < out.size(); ++k)
    out[k].shard =
        pieces > 0 ? data::Shard{pieces, static_cast<std::int64_t>(k)} : data::Shard{shards, index.value_or(0)};
  return out;
}

inline std::vector<DatasetConfig> read_dataset(const Node& node, const std::string& key, Findings& findings) {
  DatasetConfig out;
  out.where = node.place.text();
  Reader reader(node, key + ".", findings);
  reader.read("path", out.source.path);
  reader.judge("data_files", [&] { read_data_files(reader, key + ".data_files", out.source); });
  reader.read("split", out.source.split);
  reader.read_choice("ds_type", out.source.ds_type, dataset_formats());
  reader.read("name", out.source.name);
  reader.read("revision", out.source.revision);
  reader.read("field", out.source.field);
  if (const Node* type = reader.take("type"); type != nullptr) {
    reader.judge("type", [&] {
      if (type->kind != Kind::string && type->kind != Kind::mapping)
        raise_type(key + ".type", *type, "the name of a transform, or a mapping such as {field_prompt: question}");
      out.type = to_json(*type);
    });
  }
  read_message_fields(reader, key, out.fields);
  reader.read("chat_template", out.chat_template);
  reader.read("chat_template_jinja", out.chat_template_jinja);
  std::vector<DatasetConfig> entries = read_shards(reader, key, out);
  apply_idle(reader, idle_dataset_keys());
  reader.finish();
  const Refusals& refusals = findings.refusals;
  if (out.source.path.empty() && !out.source.has_data_files() && !refusals.distrusts(key + ".") &&
      !refusals.distrusts(key + ".path") && !refusals.distrusts(key + ".data_files"))
    reader.refuse(7, {.what = key + " names no data",
                      .expected = "path: a file, a directory, a pattern or a cached id, or json with data_files",
                      .where = node.place.text()});
  return entries;
}

inline void read_datasets(Reader& reader, const std::string& key, std::vector<DatasetConfig>& out) {
  const Node* node = reader.take(key);
  if (node == nullptr) return;
  reader.judge(key, [&] {
    if (node->kind != Kind::sequence) raise_type(key, *node, "a list, one item per line after a dash: - path: …");
  });
  for (std::size_t i = 0; i < node->items.size(); ++i)
    for (DatasetConfig& entry : read_dataset(node->items[i], key + "[" + std::to_string(i) + "]", reader.findings())) {
      entry.index = i;
      out.push_back(std::move(entry));
    }
}

}  // namespace rlalgo::config::detail
