// Definitions of unread_columns.hpp.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/preference_row.hpp>
#include <rlalgo/data/prompt.hpp>
#include <rlalgo/data/unread_columns.hpp>

namespace rlalgo::data {

namespace detail {

inline bool says_something(const Json& value) {
  return !value.is_null() && !(value.is_string() && value.get_ref<const std::string&>().empty()) &&
         !(value.is_structured() && value.empty());
}

}  // namespace detail

RLALGO_INLINE void require_no_images(const Json& row, const std::string& where) {
  for (const char* column : {"image", "images"})
    if (const auto cell = row.find(column); cell != row.end() && detail::says_something(*cell))
      core::raise("data", 37,
                  {.what = "a row has images, and the model sees none",
                   .found = "the column " + std::string(column) + ": " + detail::excerpt(*cell),
                   .where = where,
                   .remedy = "remove the column, or rename it if it is no picture for the model"});
}

RLALGO_INLINE UnreadColumns::UnreadColumns(RowTransform transform, PreferenceFamily family, std::string tools_column)
    : transform_(std::move(transform)), family_(family), tools_column_(std::move(tools_column)) {}

RLALGO_INLINE RowChunks UnreadColumns::watch(RowChunks rows) {
  return [this, rows = std::move(rows)](std::size_t limit, std::vector<Record>& out) {
    const bool more = rows(limit, out);
    for (std::size_t i = 0; more && i < out.size() && rows_ < looked_at; ++i, ++rows_) {
      const Record& record = out[i];
      const Json row = record.text.empty() ? record.value : core::read_json<Json>(record.text).value;
      if (row.is_object()) look(row, record.origin.text());
    }
    return more;
  };
}

RLALGO_INLINE Json UnreadColumns::said_by(Json row, const std::string& where) const {
  transform_(row, where);
  Json out = Json::object();
  std::vector<std::string> read = {"prompt", "chosen", "rejected", "chat_template_kwargs", tools_column_};
  if (family_ == PreferenceFamily::unpaired) {
    read.emplace_back("label");
    read.emplace_back("completion");
    if (const auto answer = row.find("completion"); answer != row.end() && !answer->is_null())
      read = {"prompt", "completion", "label", "chat_template_kwargs", tools_column_};
  }
  for (const std::string& name : read)
    if (const auto cell = row.find(name); cell != row.end() && !cell->is_null()) out[name] = *cell;
  return out;
}

RLALGO_INLINE void UnreadColumns::look(const Json& row, const std::string& where) {
  require_no_images(row, where);
  try {
    const Json whole = said_by(row, where);
    for (const auto& [name, value] : row.items()) {
      if (!detail::says_something(value)) continue;
      const auto [at, first] = columns_.try_emplace(name, Seen{where});
      if (first) order_.push_back(name);
      if (at->second.read) continue;
      Json without = row;
      without.erase(name);
      try {
        at->second.read = said_by(std::move(without), where) != whole;
      } catch (const std::exception&) {
        at->second.read = true;
      }
    }
  } catch (const std::exception&) {
    return;
  }
}

RLALGO_INLINE std::string UnreadColumns::found() const {
  std::string out;
  for (const std::string& name : order_)
    if (const Seen& seen = columns_.at(name); !seen.read)
      out += (out.empty() ? "" : ", ") + name + " (" + seen.where + ")";
  return out;
}

}  // namespace rlalgo::data
