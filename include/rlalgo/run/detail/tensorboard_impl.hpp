// Definitions of tensorboard.hpp.
#pragma once

#include <unistd.h>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/tensorboard.hpp>

namespace rlalgo::run {

namespace detail {

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xffU);
  return out;
}
inline std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80U; value >>= 7U) out += static_cast<char>((value & 0x7fU) | 0x80U);
  return out + static_cast<char>(value);
}
// Protobuf fields by wire type: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
inline std::string field_varint(int number, std::uint64_t value) {
  return varint(static_cast<unsigned>(number) << 3U) + varint(value);
}
inline std::string field_double(int number, double value) {
  return varint(static_cast<unsigned>(number) << 3U | 1U) + little_endian(std::bit_cast<std::uint64_t>(value), 8);
}
inline std::string field_bytes(int number, std::string_view value) {
  return varint(static_cast<unsigned>(number) << 3U | 2U) + varint(value.size()) + std::string(value);
}
inline std::string field_float(int number, float value) {
  return varint(static_cast<unsigned>(number) << 3U | 5U) + little_endian(std::bit_cast<std::uint32_t>(value), 4);
}

inline std::uint32_t masked_crc(std::string_view data) { return std::rotr(crc32c(data), 15) + 0xa282ead8U; }
inline std::string framed(std::string_view event) {
  const std::string length = little_endian(event.size(), 8);
  return length + little_endian(masked_crc(length), 4) + std::string(event) + little_endian(masked_crc(event), 4);
}

}  // namespace detail

RLALGO_INLINE TensorBoard::TensorBoard() = default;
RLALGO_INLINE TensorBoard::~TensorBoard() = default;

RLALGO_INLINE void TensorBoard::on_start(const RunStart& start) {
  using namespace std::chrono;
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::snprintf(host, sizeof host, "localhost");
  char stamp[32];  // orders the files of a resumed run by time, whatever the process ids
  std::snprintf(stamp, sizeof stamp, "%010lld.%06lld", static_cast<long long>(now / 1000000),
                static_cast<long long>(now % 1000000));
  const std::filesystem::path folder =
      start.first_step > 0 ? newest_folder(start.output_dir / "runs") : std::filesystem::path();
  const std::filesystem::path runs = folder.empty() ? start.output_dir / "runs" / date(now / 1000000) : folder;
  detail::make_directory(runs);
  file_ = std::make_unique<detail::ByteFile>(
      runs / (std::string("events.out.tfevents.") + stamp + "." + host + "." + std::to_string(::getpid())));
  write(0, detail::field_bytes(3, "brain.Event:2"));
  constexpr std::uint64_t session_start = 1;
  if (start.first_step > 0)
    write(start.last_record + 1, detail::field_bytes(7, detail::field_varint(1, session_start)));
}

RLALGO_INLINE void TensorBoard::on_record(const Record& record) {
  std::string summary;
  for (const auto& [name, value] : record.values) {
    if (!std::isfinite(value)) continue;
    const std::string tag = name.starts_with("eval_") ? "eval/" + name.substr(5) : "train/" + name;
    summary += detail::field_bytes(1, detail::field_bytes(1, tag) + detail::field_float(2, static_cast<float>(value)));
  }
  summary += detail::field_bytes(
      1, detail::field_bytes(1, "train/epoch") + detail::field_float(2, static_cast<float>(record.epoch)));
  write(record.step, detail::field_bytes(5, summary));
}

RLALGO_INLINE std::filesystem::path TensorBoard::path() const {
  return file_ ? file_->path() : std::filesystem::path();
}

RLALGO_INLINE void TensorBoard::write(std::int64_t step, const std::string& what) {
  const double wall = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  file_->append(
      detail::framed(detail::field_double(1, wall) + detail::field_varint(2, static_cast<std::uint64_t>(step)) + what));
}

RLALGO_INLINE std::string TensorBoard::date(long long seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

RLALGO_INLINE std::filesystem::path TensorBoard::newest_folder(const std::filesystem::path& runs) {
  std::filesystem::path newest;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runs, error))
    if (entry.is_directory() && entry.path() > newest) newest = entry.path();
  return newest;
}

}  // namespace rlalgo::run
