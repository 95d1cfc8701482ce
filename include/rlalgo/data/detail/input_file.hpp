// The bytes of a dataset file, plain or gzip (also several gzip members one after another), read in pieces.
//
// A leading byte-order mark is skipped.
// Errors: [rlalgo.data.2] the file cannot be read; [rlalgo.data.6] its bytes are of a format that is not read (Parquet,
// zstd …); [rlalgo.data.28] the compressed bytes are damaged or end too early.
#pragma once

#include <zlib.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>

namespace rlalgo::data {

[[noreturn]] inline void raise_unread_format(const std::string& format, const std::string& where) {
  std::string remedy = "write the rows as JSON lines, one object per line";
  if (format == "zstd" || format == "xz")
    remedy = "unpack it first: " + std::string(format == "xz" ? "unxz" : "unzstd") + " -k '" + where + "'";
  if (format == "Parquet" || format == "Arrow")
    remedy = "convert it once: python3 -c \"import datasets; datasets.load_dataset('" +
             std::string(format == "Arrow" ? "arrow" : "parquet") + "', data_files='" + where +
             "')['train'].to_json('rows.jsonl')\"";
  core::raise("data", 6,
              {.what = format + " files are not read",
               .expected = "JSON, JSON lines, CSV, TSV or text, also as .gz",
               .where = where,
               .remedy = remedy});
}

namespace detail {

class InputFile {
 public:
  explicit InputFile(std::filesystem::path path) : path_(std::move(path)), buffer_(std::size_t{1} << 18, '\0') {
    if (std::filesystem::is_directory(path_)) fail(EISDIR);
    errno = 0;
    file_.reset(::gzopen(path_.c_str(), "rb"));
    if (!file_) fail(errno != 0 ? errno : EIO);
    ::gzbuffer(file_.get(), 1U << 17);
    fill();
    refuse_other_formats();
    if (view().starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  // The next line without its line feed; false at the end.
  bool read_line(std::string& line) {
    line.clear();
    for (bool any = false;; any = true) {
      if (at_ == end_ && !fill()) return any;
      const std::string_view rest = view();
      const std::size_t feed = rest.find('\n');
      line.append(rest.substr(0, feed));
      at_ += feed == std::string_view::npos ? rest.size() : feed + 1;
      if (feed != std::string_view::npos) return true;
    }
  }

  std::string read_all() {
    std::string out;
    do out.append(view());
    while ((at_ = end_, fill()));
    return out;
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  [[noreturn]] void fail(int error) const {
    core::raise("data", 2,
                {.what = "cannot read the dataset file", .found = std::strerror(error), .where = path_.string()});
  }
  [[nodiscard]] std::string_view view() const { return std::string_view(buffer_).substr(at_, end_ - at_); }

  bool fill() {
    errno = 0;
    const int n = ::gzread(file_.get(), buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int code = Z_OK;
    const char* reason = ::gzerror(file_.get(), &code);
    if (code == Z_ERRNO) fail(errno != 0 ? errno : EIO);
    if (n < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR)
      core::raise("data", 28,
                  {.what = "a compressed dataset file is damaged",
                   .found = code == Z_BUF_ERROR ? "the file ends too early" : reason,
                   .where = path_.string(),
                   .remedy = "fetch or compress it again; `gzip -t` checks it"});
    at_ = 0;
    end_ = static_cast<std::size_t>(n);
    return n > 0;
  }

  void refuse_other_formats() const {
    const std::string where = path_.string();
    if (view().starts_with("\x28\xb5\x2f\xfd")) raise_unread_format("zstd", where);
    if (view().starts_with("\xfd"
                           "7zXZ"))
      raise_unread_format("xz", where);
    if (view().starts_with("PAR1")) raise_unread_format("Parquet", where);
    if (view().starts_with("ARROW1")) raise_unread_format("Arrow", where);
  }

  std::filesystem::path path_;
  std::string buffer_;
  std::size_t at_ = 0, end_ = 0;  // of buffer_, what is not read yet
  struct Close {
    void operator()(gzFile file) const { ::gzclose_r(file); }
  };
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace detail
}  // namespace rlalgo::data
