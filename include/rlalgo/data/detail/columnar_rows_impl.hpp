// Definitions of columnar_rows.hpp.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/data/columnar_plugin.hpp>
#include <rlalgo/data/columnar_rows.hpp>
#include <rlalgo/data/detail/input_file.hpp>
#include <rlalgo/data/json_rows.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

namespace detail {

inline constexpr const char* columnar_plugin_file = "librlalgo_arrow.so";

inline std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

inline std::string last_load_error() {
  const char* said = ::dlerror();
  return said != nullptr ? said : "no reason given";
}

// Arrow's own libraries, from the folder that the user names: the plug-in then finds them loaded.
inline void load_arrow_from(const std::filesystem::path& root) {
  for (const std::string_view wanted : {"libarrow.so.", "libparquet.so."}) {
    std::error_code error;
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(root, error))
      if (entry.path().filename().string().starts_with(wanted)) files.push_back(entry.path().string());
    std::sort(files.begin(), files.end());  // the shortest name is the one that the plug-in asks for
    if (!files.empty()) (void)::dlopen(files.front().c_str(), RTLD_NOW | RTLD_LOCAL);
  }
}

RLALGO_INLINE std::string missing_arrow(const std::string& said) {
  for (const std::string_view name : {"libarrow.so.", "libparquet.so."})
    if (const std::size_t at = said.find(name); at != std::string::npos) {
      const std::string digits =
          said.substr(at + name.size(), said.find_first_not_of("0123456789", at + name.size()) - (at + name.size()));
      if (digits.size() > 2) return digits.substr(0, digits.size() - 2);
    }
  return {};
}

RLALGO_INLINE LoadedColumnarPlugin load_columnar_plugin() {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  if (const std::string named = environment_variable("RLALGO_ARROW_PLUGIN"); !named.empty()) {
    files = {named};
  } else {
    std::error_code error;
    const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
    for (const fs::path& place : {folder, folder.parent_path() / "lib" / "rlalgo", folder.parent_path() / "bin"})
      if (fs::exists(place / columnar_plugin_file, error)) files.push_back((place / columnar_plugin_file).string());
    files.emplace_back(columnar_plugin_file);
  }
  if (const std::string root = environment_variable("RLALGO_ARROW_ROOT"); !root.empty()) load_arrow_from(root);
  LoadedColumnarPlugin out;
  for (const std::string& file : files) {
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays for as long as the program runs
    if (library == nullptr) {
      const std::string said = last_load_error();
      if (!out.found.empty() && file == columnar_plugin_file) continue;  // the system's places say less
      out.found = said;
      const std::string version = missing_arrow(said);
      out.remedy = version.empty()
                       ? "build it (scripts/setup.sh fetches Arrow and builds " + std::string(columnar_plugin_file) +
                             " with the program), or convert the file to JSON lines"
                       : "pip install 'pyarrow==" + version +
                             ".*' (or set RLALGO_ARROW_ROOT to the folder pyarrow of a " + "Python that has it)";
      continue;
    }
    const auto function = reinterpret_cast<ColumnarPluginFunction>(::dlsym(library, columnar_plugin_symbol));
    const ColumnarPlugin* const plugin = function != nullptr ? function() : nullptr;
    if (plugin != nullptr && plugin->version == columnar_plugin_version) return {plugin, "", ""};
    out.found = plugin == nullptr ? file + " is no such plug-in"
                                  : file + " has version " + std::to_string(plugin->version) +
                                        " of the interface, not " + std::to_string(columnar_plugin_version);
    out.remedy = "install the plug-in that was built with this program";
  }
  return out;
}

// Loaded once; what fails is tried again, since the user may have installed Arrow meanwhile.
inline const ColumnarPlugin& columnar_plugin(const std::string& where) {
  static std::mutex mutex;
  static const ColumnarPlugin* known = nullptr;
  const std::lock_guard lock(mutex);
  if (known != nullptr) return *known;
  const LoadedColumnarPlugin loaded = load_columnar_plugin();
  if (loaded.plugin == nullptr)
    core::raise("data", 6,
                {.what = "Parquet and Arrow files cannot be read here: their reader does not load",
                 .found = loaded.found,
                 .where = where,
                 .remedy = loaded.remedy});
  return *(known = loaded.plugin);
}

}  // namespace detail

RLALGO_INLINE std::string columnar_library() { return detail::columnar_plugin("").library; }

RLALGO_INLINE ColumnarRows::ColumnarRows(const std::filesystem::path& path, const std::vector<std::string>& columns,
                                         std::function<void(const std::string&)> tell)
    : path_(path), name_(std::make_shared<const std::string>(path.string())), tell_(std::move(tell)) {
  if (const os::RegularFile file(path); !file.problem().empty())
    core::raise("data", 2, {.what = "cannot read the dataset file", .found = file.problem(), .where = path.string()});
  plugin_ = &detail::columnar_plugin(path.string());
  std::vector<const char*> names;
  for (const std::string& column : columns) names.push_back(column.c_str());
  const ColumnarRequest request{.path = name_->c_str(),
                                .columns = columns.empty() ? nullptr : names.data(),
                                .number_columns = static_cast<std::int64_t>(names.size()),
                                .row_limit = static_cast<std::int64_t>(InputLimits{}.line)};
  ColumnarProblem problem{};
  handle_ = {plugin_->open(&request, &problem), plugin_->close};
  if (handle_ == nullptr) fail(problem);
  tell_left_out();
}

RLALGO_INLINE bool ColumnarRows::next(Record& out) {
  ColumnarText text{};
  ColumnarProblem problem{};
  const int got = plugin_->next(handle_.get(), &text, &problem);
  if (got < 0) fail(problem);
  if (got == 0) {
    tell_left_out();
    return false;
  }
  out.value = nullptr;
  out.text.assign(text.begin, static_cast<std::size_t>(text.size));
  out.origin = {name_, 0, row_++};
  return true;
}

RLALGO_INLINE std::size_t ColumnarRows::skip(std::size_t rows) {
  ColumnarProblem problem{};
  constexpr std::size_t most = std::size_t{1} << 62;
  const std::int64_t passed = plugin_->skip(handle_.get(), static_cast<std::int64_t>(std::min(rows, most)), &problem);
  if (passed < 0) fail(problem);
  row_ += passed;
  return static_cast<std::size_t>(passed);
}

RLALGO_INLINE void ColumnarRows::tell_left_out() {
  const ColumnarText text = plugin_->left_out(handle_.get());
  const Json columns = Json::parse(std::string_view(text.begin, static_cast<std::size_t>(text.size)), nullptr, false);
  if (!columns.is_object()) return;  // a name that is no UTF-8: the row with it is an error
  for (const auto& [name, type] : columns.items()) {
    if (!told_.insert(name).second) continue;
    // Of a column that has a form in part (the path of a picture), the rows that have one are refused.
    if ((name == "image" || name == "images") && type != "NaN")
      core::raise("data", 37,
                  {.what = "the dataset has a column of images",
                   .found = name + " (" + type.get<std::string>() + ")",
                   .expected = "texts: no model here sees pictures",
                   .where = *name_,
                   .remedy = "remove or rename the column"});
    if (!tell_) continue;
    if (type == "NaN")
      tell_("warning: " + *name_ + ": column " + name +
            " has numbers that are not finite (NaN, infinity): they are null");
    else
      tell_("warning: " + *name_ + ": column " + name + " is left out: " + type.get<std::string>() +
            " has no form in JSON");
  }
}

RLALGO_INLINE void ColumnarRows::fail(const ColumnarProblem& problem) const {
  std::string where = *name_;
  if (problem.row >= 0) where += "[" + std::to_string(problem.row) + "]";
  if (problem.column[0] != '\0') where += ", column " + std::string(problem.column);
  const std::string found = problem.text;
  switch (problem.kind) {
    case columnar_unreadable:
      core::raise("data", 2, {.what = "cannot read the dataset file", .found = found, .where = where});
    case columnar_no_such_format:
      core::raise(
          "data", 38,
          {.what = "the file is neither Parquet nor Arrow",
           .found = found,
           .expected = "PAR1, ARROW1 or an Arrow stream at its beginning",
           .where = where,
           .remedy = "fetch it again, or set ds_type to what it is (a Git LFS pointer is a text of three lines)"});
    case columnar_encrypted:
      core::raise("data", 39,
                  {.what = "the Parquet file is encrypted",
                   .found = found,
                   .where = where,
                   .remedy = "write it without encryption"});
    case columnar_no_column:
      core::raise("data", 40, {.what = "no such column in the file", .found = found, .where = where});
    case columnar_too_large:
      raise_beyond_limit("a row, or a page, of the dataset file is too large", found,
                         "rows of at most " + std::to_string(InputLimits{}.line) + " bytes", where,
                         "divide such rows, or leave the column out");
    case columnar_bad_value:
      core::raise("data", 41,
                  {.what = "a value of the dataset cannot be used",
                   .found = found,
                   .expected = "texts in UTF-8, JSON in columns of that type, every name once",
                   .where = where,
                   .remedy = "mend the value, or write the column as bytes"});
    case columnar_unsupported:
      core::raise("data", 39,
                  {.what = "the file uses what is not read",
                   .found = found,
                   .where = where,
                   .remedy = "write it with other settings: snappy, zstd, gzip or lz4, no extension of others"});
    default:
      core::raise("data", 38,
                  {.what = "the Parquet or Arrow file is damaged",
                   .found = found,
                   .where = where,
                   .remedy = "fetch or write it again"});
  }
}

}  // namespace rlalgo::data
