// One of the datasets that a run reads: its files, what its rows are made into, and how its messages are shown.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <rlalgo/data/chat_template_format.hpp>
#include <rlalgo/data/dataset_source.hpp>
#include <rlalgo/data/shard.hpp>

namespace rlalgo::data {

struct Dataset {
  DatasetSource source;  // path, data_files, split, ds_type, name, revision, field
  Json type = nullptr;   // null, the name of a transform, or a mapping
  MessageFields fields;  // field_messages, field_chosen, field_rejected, message_property_mappings, roles …
  Shard shard = {};      // the part of the rows that is read
  std::optional<std::string> chat_template, chat_template_jinja;  // of these rows; unset: the run's
  std::size_t index = 0;                                          // in its list, as the file has it
  std::string where = {};                                         // the place that named it, for error texts

  [[nodiscard]] bool has_template() const { return chat_template || chat_template_jinja; }
};

}  // namespace rlalgo::data
