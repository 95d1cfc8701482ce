// Definitions of tensorboard.hpp.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/detail/durable.hpp>
#include <rlalgo/run/observer.hpp>
#include <rlalgo/run/step.hpp>
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

inline double wall_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// An event is its wall time, 9 bytes of it, and the rest: what does not depend on when it was written.
inline std::string rest_of_event(std::int64_t step, std::string_view what) {
  return field_varint(2, static_cast<std::uint64_t>(step)) + std::string(what);
}
inline std::string rest_of_event(const Record& record) {
  std::string summary;
  const auto scalar = [&](const std::string& tag, double value) {
    summary += field_bytes(1, field_bytes(1, tag) + field_float(2, static_cast<float>(value)));
  };
  for (const auto& [name, value] : record.values)
    if (std::isfinite(value)) scalar(name.starts_with("eval_") ? "eval/" + name.substr(5) : "train/" + name, value);
  scalar("train/epoch", record.epoch);
  return rest_of_event(record.step, field_bytes(5, summary));
}
inline std::string event(double wall, std::string_view rest) {
  return framed(field_double(1, wall) + std::string(rest));
}

using WallTimes = std::map<std::string, double, std::less<>>;  // by the rest of the event

// Adds the wall times of the whole events in a file of ours; a torn or damaged end is left out.
inline void read_wall_times(const std::filesystem::path& path, WallTimes& out) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const auto number = [&](std::size_t at, std::size_t count) {
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  constexpr std::size_t head = 12, tail = 4, wall = 9;
  for (std::size_t at = 0; bytes.size() - at >= head + tail;) {
    const std::uint64_t size = number(at, 8);
    if (size < wall || size > bytes.size() - at - head - tail) return;
    const std::string_view body = std::string_view(bytes).substr(at + head, size);
    if (number(at + head + size, 4) != masked_crc(body)) return;
    out.try_emplace(std::string(body.substr(wall)), std::bit_cast<double>(number(at + head + 1, 8)));
    at += head + size + tail;
  }
}

// What a file of events begins with: the version, a start that makes readers drop all they have, the records.
inline std::string first_events(const std::vector<Record>& history, const WallTimes& known) {
  constexpr std::uint64_t session_start = 1;
  const double now = wall_now();
  std::string out;
  const auto add = [&](const std::string& rest) {
    const auto found = known.find(rest);
    out += event(found == known.end() ? now : found->second, rest);
  };
  add(rest_of_event(0, field_bytes(3, "brain.Event:2")));
  add(rest_of_event(0, field_bytes(7, field_varint(1, session_start))));
  for (const Record& record : history) add(rest_of_event(record));
  return out;
}

constexpr std::string_view event_prefix = "events.out.tfevents.", building_name = ".events.building";

// The folders that runs made in `runs`, <date>-<time>, oldest first.
inline std::vector<std::filesystem::path> event_folders(const std::filesystem::path& runs) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(runs, error)) {
    std::string shape = entry.path().filename().string();
    for (char& c : shape) c = c >= '0' && c <= '9' ? '0' : c;
    if (shape == "00000000-000000" && entry.is_directory() && !entry.is_symlink()) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The files that runs wrote in such a folder, those that a killed one had begun among them, in the order of their names.
inline std::vector<std::filesystem::path> event_files(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with(event_prefix) || name.starts_with(building_name);
    if (ours && entry.is_regular_file()) out.push_back(entry.path());
  }
  std::sort(out.begin(), out.end());
  return out;
}

inline std::string folder_name(double wall) {
  const auto time = static_cast<std::time_t>(wall);
  std::tm parts{};
  ::localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

// Names in the order of time, whatever the process ids.
inline std::string event_file_name(double wall) {
  char host[256] = "localhost";
  if (::gethostname(host, sizeof host - 1) != 0) std::snprintf(host, sizeof host, "localhost");
  char stamp[48];
  std::snprintf(stamp, sizeof stamp, "%017.6f", wall);
  return std::string(event_prefix) + stamp + "." + host + "." + std::to_string(::getpid());
}

}  // namespace detail

RLALGO_INLINE TensorBoard::TensorBoard() = default;
RLALGO_INLINE TensorBoard::~TensorBoard() = default;

// In an order that a kill may end anywhere: the new file is whole before a former one goes. Of the run's own folder a
// former file is emptied only, until the next start: a TensorBoard that is reading it goes on to the next file, but does
// not get over one that is gone.
RLALGO_INLINE void TensorBoard::on_start(const RunStart& start) {
  const std::filesystem::path runs = start.output_dir / "runs";
  const double now = detail::wall_now();
  std::vector<std::filesystem::path> folders = detail::event_folders(runs);
  const bool resumed = start.first_step > 0;
  const std::filesystem::path folder = resumed && !folders.empty() ? folders.back() : runs / detail::folder_name(now);
  detail::make_directory(folder);
  detail::WallTimes known;
  if (resumed)
    for (const auto& file : detail::event_files(folder)) detail::read_wall_times(file, known);
  const std::filesystem::path building = folder / detail::building_name, path = folder / detail::event_file_name(now);
  os::write_file(building, detail::first_events(start.history, known));
  std::error_code error;
  std::filesystem::rename(building, path, error);
  if (error) os::raise_file_error("cannot rename the file", path, error.value());
  file_ = std::make_unique<detail::ByteFile>(path);

  if (std::find(folders.begin(), folders.end(), folder) == folders.end()) folders.push_back(folder);
  for (const auto& each : folders) {
    for (const auto& file : detail::event_files(each)) {
      if (file == path) continue;
      if (each == folder && file.filename().string().starts_with(detail::event_prefix) &&
          std::filesystem::file_size(file, error) > 0 && !error) {
        std::filesystem::resize_file(file, 0, error);
        if (error) os::raise_file_error("cannot cut the file", file, error.value());
      } else {
        detail::remove_file(file);
      }
    }
    if (std::filesystem::is_empty(each, error)) detail::remove_file(each);
  }
}

RLALGO_INLINE void TensorBoard::on_record(const Record& record) {
  file_->append(detail::event(detail::wall_now(), detail::rest_of_event(record)));
}

RLALGO_INLINE std::filesystem::path TensorBoard::path() const {
  return file_ ? file_->path() : std::filesystem::path();
}

}  // namespace rlalgo::run
