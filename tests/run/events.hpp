// A reader of event files that shares nothing with the writer: framing checked by checksum, protobuf walked field by field.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include <support/catch.hpp>

#include "run/files.hpp"

namespace fake {

inline std::uint64_t little_endian(const std::string& bytes, std::size_t at, int count) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes.at(at + static_cast<std::size_t>(i))))
             << (8 * i);
  return value;
}

struct Field {
  int number;
  std::uint64_t value;  // wire types 0, 1, 5
  std::string bytes;    // wire type 2
};

inline std::vector<Field> fields(const std::string& message) {
  std::vector<Field> out;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(message.at(at++));
      value |= static_cast<std::uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80U) return value;
    }
  };
  while (at < message.size()) {
    const std::uint64_t key = varint();
    Field field{static_cast<int>(key >> 3U), 0, ""};
    const int wire = static_cast<int>(key & 7U);
    if (wire == 0) field.value = varint();
    if (wire == 1) field.value = little_endian(message, at, 8), at += 8;
    if (wire == 5) field.value = little_endian(message, at, 4), at += 4;
    if (wire == 2) {
      const std::uint64_t size = varint();
      field.bytes = message.substr(at, size);
      at += size;
    }
    REQUIRE((wire == 0 || wire == 1 || wire == 2 || wire == 5));
    out.push_back(field);
  }
  return out;
}

// CRC-32C bit by bit, from its definition.
inline std::uint32_t masked(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

inline std::vector<std::string> events(const std::string& file) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < file.size();) {
    const std::uint64_t size = little_endian(file, at, 8);
    REQUIRE(little_endian(file, at + 8, 4) == masked(file.substr(at, 8)));
    out.push_back(file.substr(at + 12, size));
    REQUIRE(out.back().size() == size);
    REQUIRE(little_endian(file, at + 12 + size, 4) == masked(out.back()));
    at += size + 16;
  }
  return out;
}

struct Scalar {
  std::int64_t step;
  float value;
  bool operator==(const Scalar&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Scalar& s) { return out << s.value << " at " << s.step; }
};
using Scalars = std::map<std::string, std::vector<Scalar>>;

// tag → (step, value), and "version", "start" for the other kinds of event.
inline Scalars scalars(const std::string& file) {
  Scalars out;
  for (const std::string& event : events(file)) {
    std::int64_t step = 0;
    bool dated = false;
    for (const Field& f : fields(event)) {
      if (f.number == 1) dated = std::bit_cast<double>(f.value) > 1.7e9;
      if (f.number == 2) step = static_cast<std::int64_t>(f.value);
      if (f.number == 3) out["version " + f.bytes].push_back({step, 0});
      if (f.number == 7) out["start"].push_back({step, static_cast<float>(fields(f.bytes).at(0).value)});
      if (f.number != 5) continue;
      for (const Field& v : fields(f.bytes)) {
        const auto parts = fields(v.bytes);
        REQUIRE(parts.size() == 2);
        REQUIRE(parts[0].number == 1);
        REQUIRE(parts[1].number == 2);
        out[parts[0].bytes].push_back({step, std::bit_cast<float>(static_cast<std::uint32_t>(parts[1].value))});
      }
    }
    CHECK(dated);
  }
  return out;
}

// Those that are not empty.
inline std::vector<fs::path> event_files(const fs::path& output_dir) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(output_dir / "runs", error))
    if (entry.is_regular_file() && entry.file_size() > 0) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

// What the events of a run say, times excepted: the number of folders and files, then every tag with its steps and values.
inline std::string events_without_times(const fs::path& output_dir) {
  const std::vector<fs::path> files = event_files(output_dir);
  std::string out = std::to_string(files.size()) + " files\n";
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(output_dir / "runs", error))
    if (entry.is_directory()) out += "folder\n";
  for (const fs::path& file : files)
    for (const auto& [tag, values] : scalars(read(file)))
      if (!tag.starts_with("train/time/") && !tag.starts_with("train/memory/"))
        for (const Scalar& s : values)
          out +=
              tag + " " + std::to_string(s.step) + " " + std::to_string(std::bit_cast<std::uint32_t>(s.value)) + "\n";
  return out;
}

}  // namespace fake
