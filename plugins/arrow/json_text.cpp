#include "json_text.hpp"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <type_traits>

#include <arrow/array.h>
#include <arrow/extension_type.h>
#include <arrow/util/decimal.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>
#include <nlohmann/json.hpp>

namespace rlalgo::plugin {

namespace {

using arrow::Type;

template <class Integer>
void append_integer(Integer value, std::string& out) {
  char digits[24];
  const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;
  out.append(digits, end);
}

// Days since 1970 as YYYY-MM-DD.
std::string date_text(std::int64_t days) {
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(days))};
  char text[48];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()));
  return text;
}

std::int64_t ticks_of(arrow::TimeUnit::type unit) {
  switch (unit) {
    case arrow::TimeUnit::SECOND:
      return 1;
    case arrow::TimeUnit::MILLI:
      return 1'000;
    case arrow::TimeUnit::MICRO:
      return 1'000'000;
    default:
      return 1'000'000'000;
  }
}

// A time of day as HH:MM:SS, with six digits where there is a fraction, nine where six do not hold it.
std::string time_text(std::int64_t ticks, std::int64_t per_second) {
  const std::int64_t seconds = ticks / per_second, nanos = ticks % per_second * (1'000'000'000 / per_second);
  char text[64];
  int size = std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld", static_cast<long long>(seconds / 3600),
                           static_cast<long long>(seconds / 60 % 60), static_cast<long long>(seconds % 60));
  std::string out(text, static_cast<std::size_t>(size));
  if (nanos == 0) return out;
  size = nanos % 1000 == 0 ? std::snprintf(text, sizeof text, ".%06lld", static_cast<long long>(nanos / 1000))
                           : std::snprintf(text, sizeof text, ".%09lld", static_cast<long long>(nanos));
  return out.append(text, static_cast<std::size_t>(size));
}

std::string timestamp_text(std::int64_t ticks, const arrow::TimestampType& type) {
  const std::int64_t per_second = ticks_of(type.unit()), per_day = 86'400 * per_second;
  std::int64_t days = ticks / per_day, rest = ticks % per_day;
  if (rest < 0) {
    --days;
    rest += per_day;
  }
  return date_text(days) + "T" + time_text(rest, per_second) + (type.timezone().empty() ? "" : "+00:00");
}

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

const arrow::DataType& value_type(const arrow::DataType& type) { return *type.field(0)->type(); }

// The run that holds the element: the first whose end lies behind it.
std::int64_t run_of(const arrow::Array& ends, std::int64_t element) {
  const auto end_of = [&](std::int64_t run) -> std::int64_t {
    if (ends.type_id() == Type::INT16) return as<arrow::Int16Array>(ends).Value(run);
    if (ends.type_id() == Type::INT32) return as<arrow::Int32Array>(ends).Value(run);
    return as<arrow::Int64Array>(ends).Value(run);
  };
  std::int64_t low = 0, high = ends.length() - 1;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (end_of(middle) > element)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

bool is_json(const arrow::DataType& type) {
  return type.id() == Type::EXTENSION &&
         static_cast<const arrow::ExtensionType&>(type).extension_name() == "arrow.json";
}

}  // namespace

bool has_json_form(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::BINARY:
    case Type::LARGE_BINARY:
    case Type::BINARY_VIEW:
    case Type::FIXED_SIZE_BINARY:
    case Type::DURATION:
    case Type::INTERVAL_MONTHS:
    case Type::INTERVAL_DAY_TIME:
    case Type::INTERVAL_MONTH_DAY_NANO:
      return false;
    case Type::EXTENSION:
      return has_json_form(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case Type::DICTIONARY:
      return has_json_form(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::RUN_END_ENCODED:
      return has_json_form(*static_cast<const arrow::RunEndEncodedType&>(type).value_type());
    case Type::LIST:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::LIST_VIEW:
    case Type::LARGE_LIST_VIEW:
      return has_json_form(value_type(type));
    case Type::MAP: {
      const auto& map = static_cast<const arrow::MapType&>(type);
      return has_json_form(*map.key_type()) && has_json_form(*map.item_type());
    }
    case Type::SPARSE_UNION:
    case Type::DENSE_UNION: {
      for (const auto& field : type.fields())
        if (!has_json_form(*field->type())) return false;
      return true;
    }
    case Type::STRUCT: {
      if (type.num_fields() == 0) return true;
      for (const auto& field : type.fields())
        if (has_json_form(*field->type())) return true;
      return false;
    }
    default:
      return true;
  }
}

void note_left_out(const std::string& name, const arrow::DataType& type, std::map<std::string, std::string>& out) {
  if (!has_json_form(type)) {
    out[name] = type.ToString();
    return;
  }
  if (type.id() == Type::EXTENSION)
    return note_left_out(name, *static_cast<const arrow::ExtensionType&>(type).storage_type(), out);
  if (type.id() == Type::STRUCT)
    for (const auto& field : type.fields()) note_left_out(name + "." + field->name(), *field->type(), out);
  if (type.id() == Type::LIST || type.id() == Type::LARGE_LIST || type.id() == Type::FIXED_SIZE_LIST ||
      type.id() == Type::LIST_VIEW || type.id() == Type::LARGE_LIST_VIEW)
    note_left_out(name, value_type(type), out);
}

void append_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

bool CellWriter::take_not_finite() { return std::exchange(not_finite_, false); }

void CellWriter::append_number(double value, std::string& out) {
  if (!std::isfinite(value)) {
    not_finite_ = true;
    out += "null";
    return;
  }
  char digits[40];
  const std::string_view text(
      digits, static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";  // a float of JSON stays one
}

void CellWriter::append_utf8(std::string_view text, std::string& out) {
  if (out.size() + text.size() > limit_) throw BadCell{BadCell::Kind::large, std::to_string(text.size()) + " bytes"};
  if (!arrow::util::ValidateUTF8(text)) throw BadCell{BadCell::Kind::text, "bytes that are no UTF-8"};
  append_text(out, text);
}

void CellWriter::append_list(const arrow::Array& values, std::int64_t begin, std::int64_t end, std::string& out) {
  out += '[';
  for (std::int64_t i = begin; i < end; ++i) {
    if (i > begin) out += ',';
    append(values, i, out);
  }
  out += ']';
}

void CellWriter::append(const arrow::Array& array, std::int64_t at, std::string& out) {
  if (out.size() > limit_) throw BadCell{BadCell::Kind::large, "more than that"};
  // A union and a run-end encoded array know of nulls below.
  if (array.IsNull(at)) {
    out += "null";
    return;
  }
  switch (array.type_id()) {
    case Type::NA:
      out += "null";
      return;
    case Type::BOOL:
      out += as<arrow::BooleanArray>(array).Value(at) ? "true" : "false";
      return;
    case Type::INT8:
      return append_integer(static_cast<int>(as<arrow::Int8Array>(array).Value(at)), out);
    case Type::INT16:
      return append_integer(as<arrow::Int16Array>(array).Value(at), out);
    case Type::INT32:
      return append_integer(as<arrow::Int32Array>(array).Value(at), out);
    case Type::INT64:
      return append_integer(as<arrow::Int64Array>(array).Value(at), out);
    case Type::UINT8:
      return append_integer(static_cast<unsigned>(as<arrow::UInt8Array>(array).Value(at)), out);
    case Type::UINT16:
      return append_integer(as<arrow::UInt16Array>(array).Value(at), out);
    case Type::UINT32:
      return append_integer(as<arrow::UInt32Array>(array).Value(at), out);
    case Type::UINT64:
      return append_integer(as<arrow::UInt64Array>(array).Value(at), out);
    case Type::HALF_FLOAT:
      return append_number(arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(at)).ToFloat(), out);
    case Type::FLOAT:
      return append_number(static_cast<double>(as<arrow::FloatArray>(array).Value(at)), out);
    case Type::DOUBLE:
      return append_number(as<arrow::DoubleArray>(array).Value(at), out);
    case Type::STRING:
      return append_utf8(as<arrow::StringArray>(array).GetView(at), out);
    case Type::LARGE_STRING:
      return append_utf8(as<arrow::LargeStringArray>(array).GetView(at), out);
    case Type::STRING_VIEW:
      return append_utf8(as<arrow::StringViewArray>(array).GetView(at), out);
    case Type::DATE32:
      return append_text(out, date_text(as<arrow::Date32Array>(array).Value(at)));
    case Type::DATE64: {
      const std::int64_t millis = as<arrow::Date64Array>(array).Value(at), day = 86'400'000;
      return append_text(out, date_text(millis / day - (millis % day < 0 ? 1 : 0)));
    }
    case Type::TIME32:
      return append_text(out, time_text(as<arrow::Time32Array>(array).Value(at),
                                        ticks_of(static_cast<const arrow::Time32Type&>(*array.type()).unit())));
    case Type::TIME64:
      return append_text(out, time_text(as<arrow::Time64Array>(array).Value(at),
                                        ticks_of(static_cast<const arrow::Time64Type&>(*array.type()).unit())));
    case Type::TIMESTAMP:
      return append_text(out, timestamp_text(as<arrow::TimestampArray>(array).Value(at),
                                             static_cast<const arrow::TimestampType&>(*array.type())));
    case Type::DECIMAL32:
      return append_text(out, as<arrow::Decimal32Array>(array).FormatValue(at));
    case Type::DECIMAL64:
      return append_text(out, as<arrow::Decimal64Array>(array).FormatValue(at));
    case Type::DECIMAL128:
      return append_text(out, as<arrow::Decimal128Array>(array).FormatValue(at));
    case Type::DECIMAL256:
      return append_text(out, as<arrow::Decimal256Array>(array).FormatValue(at));
    case Type::LIST: {
      const auto& list = as<arrow::ListArray>(array);
      return append_list(*list.values(), list.value_offset(at), list.value_offset(at + 1), out);
    }
    case Type::LARGE_LIST: {
      const auto& list = as<arrow::LargeListArray>(array);
      return append_list(*list.values(), list.value_offset(at), list.value_offset(at + 1), out);
    }
    case Type::LIST_VIEW: {
      const auto& list = as<arrow::ListViewArray>(array);
      return append_list(*list.values(), list.value_offset(at), list.value_offset(at) + list.value_length(at), out);
    }
    case Type::LARGE_LIST_VIEW: {
      const auto& list = as<arrow::LargeListViewArray>(array);
      return append_list(*list.values(), list.value_offset(at), list.value_offset(at) + list.value_length(at), out);
    }
    case Type::FIXED_SIZE_LIST: {
      const auto& list = as<arrow::FixedSizeListArray>(array);
      return append_list(*list.values(), list.value_offset(at), list.value_offset(at + 1), out);
    }
    case Type::MAP: {
      const auto& map = as<arrow::MapArray>(array);
      out += '[';
      for (std::int64_t i = map.value_offset(at); i < map.value_offset(at + 1); ++i) {
        out += i > map.value_offset(at) ? ",[" : "[";
        append(*map.keys(), i, out);
        out += ',';
        append(*map.items(), i, out);
        out += ']';
      }
      out += ']';
      return;
    }
    case Type::STRUCT: {
      const auto& object = as<arrow::StructArray>(array);
      const arrow::StructType& type = *object.struct_type();
      out += '{';
      bool any = false;
      for (int i = 0; i < type.num_fields(); ++i) {
        if (!has_json_form(*type.field(i)->type())) continue;
        if (any) out += ',';
        any = true;
        append_text(out, type.field(i)->name());
        out += ':';
        append(*object.field(i), at, out);
      }
      out += '}';
      return;
    }
    case Type::SPARSE_UNION: {
      const auto& choice = as<arrow::SparseUnionArray>(array);
      return append(*choice.field(choice.child_id(at)), at, out);
    }
    case Type::DENSE_UNION: {
      const auto& choice = as<arrow::DenseUnionArray>(array);
      return append(*choice.field(choice.child_id(at)), choice.value_offset(at), out);
    }
    case Type::DICTIONARY: {
      const auto& coded = as<arrow::DictionaryArray>(array);
      return append(*coded.dictionary(), coded.GetValueIndex(at), out);
    }
    case Type::RUN_END_ENCODED: {
      const auto& runs = as<arrow::RunEndEncodedArray>(array);
      return append(*runs.values(), run_of(*runs.run_ends(), array.offset() + at), out);
    }
    case Type::EXTENSION: {
      const auto& extension = as<arrow::ExtensionArray>(array);
      if (!is_json(*array.type())) return append(*extension.storage(), at, out);
      std::string text;
      append(*extension.storage(), at, text);
      std::string json = nlohmann::json::parse(text).get<std::string>();
      if (!nlohmann::json::accept(json)) throw BadCell{BadCell::Kind::json, json.substr(0, 60)};
      if (out.size() + json.size() > limit_)
        throw BadCell{BadCell::Kind::large, std::to_string(json.size()) + " bytes"};
      out += json;
      return;
    }
    default:
      throw BadCell{BadCell::Kind::text, "a value of type " + array.type()->ToString()};
  }
}

}  // namespace rlalgo::plugin
