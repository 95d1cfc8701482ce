// The cells of Arrow arrays as JSON text.
//
// Texts must be UTF-8. Numbers keep their value: a float is written with the digits of the double that equals it, and with
// a point. What JSON has no form for: numbers that are not finite become null and are noted; dates, times and timestamps
// become ISO 8601 texts (a timestamp with a zone in UTC), decimals their digits as a text; binary values, durations and
// intervals have no form. A map is a list of [key, value], a union its value, a dictionary what it stands for. The extension
// type arrow.json is the JSON that its text holds; any other extension is what it is stored as.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include <arrow/api.h>

namespace rlalgo::plugin {

// Why a value cannot be written.
struct BadCell {
  enum class Kind { text, json, large } kind;
  std::string found;
};

// Whether values of the type have a JSON form; a struct has one if any of its members has.
[[nodiscard]] bool has_json_form(const arrow::DataType& type);

// Adds the parts of `field` without a JSON form, "images.bytes" → "binary".
void note_left_out(const std::string& name, const arrow::DataType& type, std::map<std::string, std::string>& out);

void append_text(std::string& out, std::string_view text);

class CellWriter {
 public:
  explicit CellWriter(std::int64_t limit) : limit_(static_cast<std::size_t>(limit)) {}

  // Adds the cell to `out`, of at most `limit` bytes then; throws BadCell.
  void append(const arrow::Array& array, std::int64_t at, std::string& out);

  // Whether a number that is not finite was written as null since the last call.
  [[nodiscard]] bool take_not_finite();

 private:
  void append_list(const arrow::Array& values, std::int64_t begin, std::int64_t end, std::string& out);
  void append_number(double value, std::string& out);
  void append_utf8(std::string_view text, std::string& out);

  std::size_t limit_;
  bool not_finite_ = false;
};

}  // namespace rlalgo::plugin
