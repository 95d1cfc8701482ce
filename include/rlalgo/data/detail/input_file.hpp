// The bytes of a dataset file, plain, gzip or zstd (also several members or frames one after another), read in pieces.
//
// A leading byte-order mark is skipped. What a line, a run of empty lines, a document that is read whole and the
// expansion of a compressed file may amount to is bounded (InputLimits), so that no file makes reading endless.
// Errors: [rlalgo.data.2] the file cannot be read, or is no regular file; [rlalgo.data.6] its bytes are of a format that
// is not read (Parquet, xz …), or zstd without its library; [rlalgo.data.28] the compressed bytes are damaged or end too early; [rlalgo.data.30] it
// is beyond one of the limits.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/data/detail/zstd_stream.hpp>
#include <rlalgo/os/regular_file.hpp>

namespace rlalgo::data {

// What is read of a dataset file at most. Bytes are those after decompression.
struct InputLimits {
  std::uint64_t line = std::uint64_t{64} << 20U;            // of a line, or of one record of a CSV file
  std::uint64_t document = std::uint64_t{4} << 30U;         // of a file that is read whole: a JSON array
  std::uint64_t empty_lines = 1'000'000;                    // one after another
  std::uint64_t expansion = 200;                            // times the compressed bytes …
  std::uint64_t free_expansion = std::uint64_t{64} << 20U;  // … beyond the first 64 MiB
  std::size_t columns = 4096;                               // of a row
};

// Something at `where` is beyond a limit.
[[noreturn]] inline void raise_beyond_limit(const std::string& what, const std::string& found,
                                            const std::string& expected, const std::string& where,
                                            const std::string& remedy) {
  core::raise("data", 30, {.what = what, .found = found, .expected = expected, .where = where, .remedy = remedy});
}

[[noreturn]] inline void raise_unread_format(const std::string& format, const std::string& where) {
  std::string remedy = "write the rows as JSON lines, one object per line";
  if (format == "xz") remedy = "unpack it first: unxz -k '" + where + "'";
  if (format == "Parquet" || format == "Arrow")
    remedy =
        std::string("set ds_type: ") + (format == "Arrow" ? "arrow" : "parquet") + ", or give the file that extension";
  core::raise("data", 6,
              {.what = format + (format == "Parquet" || format == "Arrow" ? " where a file of text was expected"
                                                                          : " files are not read"),
               .expected = "JSON, JSON lines, CSV, TSV or text, also as .gz or .zst; Parquet or Arrow",
               .where = where,
               .remedy = remedy});
}

namespace detail {

class InputFile {
 public:
  explicit InputFile(std::filesystem::path path, const InputLimits& limits = {})
      : path_(std::move(path)), limits_(limits), buffer_(std::size_t{1} << 18, '\0') {
    os::RegularFile file(path_);
    if (!file.problem().empty()) fail(file.problem());
    file_.reset(::gzdopen(file.descriptor(), "rb"));
    if (!file_) fail(std::strerror(ENOMEM));
    (void)file.release();
    ::gzbuffer(file_.get(), 1U << 17);
    fill();
    if (view().starts_with("\x28\xb5\x2f\xfd")) unpack_zstd();
    refuse_other_formats();
    if (view().starts_with("\xef\xbb\xbf")) at_ = 3;
  }

  // The next line without its line feed; false at the end.
  bool read_line(std::string& line) {
    line.clear();
    ++lines_;
    for (bool any = false;; any = true) {
      if (at_ == end_ && !fill()) return any;
      const std::string_view rest = view();
      const std::size_t feed = rest.find('\n');
      line.append(rest.substr(0, feed));
      at_ += feed == std::string_view::npos ? rest.size() : feed + 1;
      if (line.size() > limits_.line) refuse_line(lines_);
      if (feed == std::string_view::npos) continue;
      count_empty(line);
      return true;
    }
  }

  // The first character that is no blank, without taking anything; 0 where there is none nearby.
  [[nodiscard]] char first_letter() const {
    const std::size_t at = view().find_first_not_of(" \t\r\n");
    return at == std::string_view::npos ? '\0' : view()[at];
  }

  std::string read_all() {
    std::string out;
    do {
      out.append(view());
      if (out.size() > limits_.document)
        raise_beyond_limit("a dataset file that is read whole is too large", "more than " + bytes(limits_.document),
                           "at most that", path_.string(), "write it as JSON lines, which are read one by one");
    } while ((at_ = end_, fill()));
    return out;
  }

  // A line, or a record that began there, is too long.
  [[noreturn]] void refuse_line(std::int64_t line) const {
    raise_beyond_limit("a line of the dataset is too long", "more than " + bytes(limits_.line), "one row per line",
                       path_.string() + ":" + std::to_string(line), "divide it, or check that a quote is closed");
  }

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const InputLimits& limits() const noexcept { return limits_; }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    core::raise("data", 2, {.what = "cannot read the dataset file", .found = reason, .where = path_.string()});
  }
  static std::string bytes(std::uint64_t number) { return std::to_string(number) + " bytes"; }

  void count_empty(std::string_view line) {
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      empty_ = 0;
    else if (++empty_ > limits_.empty_lines)
      raise_beyond_limit("the dataset has too many empty lines", "more than " + std::to_string(limits_.empty_lines),
                         "rows", path_.string() + ":" + std::to_string(lines_), "remove them");
  }
  [[nodiscard]] std::string_view view() const { return std::string_view(buffer_).substr(at_, end_ - at_); }

  bool fill() {
    at_ = 0;
    end_ = zstd_ ? read_zstd() : read_some(buffer_);
    expanded_ += end_;
    if (expanded_ > limits_.free_expansion && (zstd_ || ::gzdirect(file_.get()) == 0)) check_expansion();
    return end_ > 0;
  }

  // What the buffer holds is the beginning of what is unpacked from here on.
  void unpack_zstd() {
    zstd_ = std::make_unique<ZstdStream>(path_.string());
    packed_ = buffer_.substr(0, end_);
    packed_.resize(buffer_.size());
    packed_end_ = packed_read_ = end_;
    expanded_ = 0;
    fill();
  }

  std::size_t read_zstd() {
    while (true) {
      if (packed_at_ == packed_end_) {
        packed_at_ = 0;
        packed_end_ = read_some(packed_);
        packed_read_ += packed_end_;
      }
      // At the end of the file there may be output left in the stream.
      std::string problem;
      const std::size_t n =
          packed_end_ == 0 && zstd_->between_frames()
              ? 0
              : zstd_->read(packed_.data(), packed_end_, packed_at_, buffer_.data(), buffer_.size(), problem);
      if (!problem.empty()) raise_damaged(problem);
      if (n > 0) return n;
      if (packed_end_ > 0) continue;
      if (!zstd_->between_frames()) raise_damaged("the file ends too early");
      return 0;
    }
  }

  [[noreturn]] void raise_damaged(const std::string& found) const {
    core::raise(
        "data", 28,
        {.what = "a compressed dataset file is damaged",
         .found = found,
         .where = path_.string(),
         .remedy = std::string("fetch or compress it again; `") + (zstd_ ? "zstd" : "gzip") + " -t` checks it"});
  }

  // Of the file, gzip unpacked.
  std::size_t read_some(std::string& out) {
    errno = 0;
    const int n = ::gzread(file_.get(), out.data(), static_cast<unsigned>(out.size()));
    int code = Z_OK;
    (void)::gzerror(file_.get(), &code);
    if (code == Z_ERRNO) fail(std::strerror(errno != 0 ? errno : EIO));
    if (n < 0 || code == Z_BUF_ERROR || code == Z_DATA_ERROR)
      raise_damaged(code == Z_BUF_ERROR ? "the file ends too early" : "compressed data that does not fit together");
    return static_cast<std::size_t>(n);
  }

  void check_expansion() const {
    const auto packed = zstd_ ? std::max<std::uint64_t>(packed_read_, 1)
                              : static_cast<std::uint64_t>(std::max<z_off_t>(::gzoffset(file_.get()), 1));
    if (expanded_ / packed < limits_.expansion) return;
    raise_beyond_limit("a compressed dataset file expands too far", bytes(expanded_) + " out of " + bytes(packed),
                       "less than " + std::to_string(limits_.expansion) + " times as many", path_.string(),
                       std::string("if that is right, unpack it first: ") + (zstd_ ? "unzstd" : "gunzip") + " -k '" +
                           path_.string() + "'");
  }

  void refuse_other_formats() const {
    const std::string where = path_.string();
    if (view().starts_with("\xfd"
                           "7zXZ"))
      raise_unread_format("xz", where);
    if (view().starts_with("PAR1")) raise_unread_format("Parquet", where);
    if (view().starts_with("ARROW1")) raise_unread_format("Arrow", where);
  }

  std::filesystem::path path_;
  InputLimits limits_;
  std::string buffer_;
  std::size_t at_ = 0, end_ = 0;  // of buffer_, what is not read yet
  std::uint64_t expanded_ = 0;    // bytes so far
  std::int64_t lines_ = 0;        // read so far, with the one being read
  std::uint64_t empty_ = 0;       // lines at the end of those
  struct Close {
    void operator()(gzFile file) const { ::gzclose_r(file); }
  };
  std::unique_ptr<gzFile_s, Close> file_;
  std::unique_ptr<ZstdStream> zstd_;  // of a file that zstd has packed
  std::string packed_;
  std::size_t packed_at_ = 0, packed_end_ = 0;  // of packed_, what is not unpacked yet
  std::uint64_t packed_read_ = 0;               // bytes of the file so far
};

}  // namespace detail
}  // namespace rlalgo::data
