// What a plug-in that reads columnar files (Parquet, Arrow) offers: a table of C functions.
//
// The program loads such a plug-in while it runs (data/columnar_rows.hpp), so that neither the library nor the program
// needs Arrow, and an Arrow of another compiler is no matter: nothing but C types cross. A row crosses as the JSON text of
// one object, which is parsed like the line of a JSON file, under the same limits. plugins/arrow/ is ours.
#pragma once

#include <cstdint>

namespace rlalgo::data {

extern "C" {

// What kept a call from doing its work. `text` and `column` end with 0.
struct ColumnarProblem {
  std::int32_t kind;  // a ColumnarProblemKind
  std::int64_t row;   // of the file, from 0; −1: of no row
  char column[256];   // "" = of no column
  char text[1024];    // what was found
};

struct ColumnarText {
  const char* begin;  // valid until the next call with the same handle
  std::int64_t size;  // bytes
};

struct ColumnarRequest {
  const char* path;             // of a regular file
  const char* const* columns;   // those that are read; null: all
  std::int64_t number_columns;  // of columns
  std::int64_t row_limit;       // bytes of a row's text at most
};

struct ColumnarPlugin {
  std::int32_t version;  // columnar_plugin_version of the header that it was compiled with
  const char* library;   // what reads: "Arrow 26.0.1"
  // A handle; null: `problem` says why.
  void* (*open)(const ColumnarRequest* request, ColumnarProblem* problem);
  // 1: the text of the next row. 0: there is no further row. −1: `problem`.
  int (*next)(void* handle, ColumnarText* row, ColumnarProblem* problem);
  // How many of `rows` further rows were passed over: fewer at the end. −1: `problem`.
  std::int64_t (*skip)(void* handle, std::int64_t rows, ColumnarProblem* problem);
  // A JSON object: the columns, and members of columns, that have no JSON form and are left out, with their types; and
  // those in which a number that is not finite was met, with "NaN".
  ColumnarText (*left_out)(void* handle);
  void (*close)(void* handle);
};

}  // extern "C"

enum ColumnarProblemKind : std::int32_t {
  columnar_unreadable = 1,      // the file cannot be opened or read
  columnar_no_such_format = 2,  // its first bytes are of none of the plug-in's formats
  columnar_damaged = 3,         // it ends too early, its checksums differ …
  columnar_encrypted = 4,
  columnar_no_column = 5,    // a column that was asked for is not in it
  columnar_too_large = 6,    // a row is beyond row_limit, a page beyond memory
  columnar_bad_value = 7,    // a text that is no UTF-8, a JSON text that is no JSON
  columnar_unsupported = 8,  // a feature of the format that is not read
};

inline constexpr std::int32_t columnar_plugin_version = 1;
// The symbol that a plug-in exports: const ColumnarPlugin* rlalgo_columnar_plugin().
inline constexpr const char* columnar_plugin_symbol = "rlalgo_columnar_plugin";
using ColumnarPluginFunction = const ColumnarPlugin* (*)();

}  // namespace rlalgo::data
