#include <rlalgo/run/tensorboard.hpp>

#include <algorithm>
#include <bit>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

// A reader of its own: framing checked by checksum, protobuf walked field by field.
std::uint64_t little_endian(const std::string& bytes, std::size_t at, int count) {
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

std::vector<Field> fields(const std::string& message) {
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
std::uint32_t masked(const std::string& bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xa282ead8U;
}

std::vector<std::string> events(const std::string& file) {
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
};

// tag → (step, value), and "version", "start" for the other kinds of event.
std::map<std::string, std::vector<Scalar>> scalars(const std::string& file) {
  std::map<std::string, std::vector<Scalar>> out;
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

std::vector<fs::path> event_files(const fs::path& output_dir) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::recursive_directory_iterator(output_dir / "runs"))
    if (entry.is_regular_file()) out.push_back(entry.path());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

TEST_CASE("the checksum is CRC-32C") {
  CHECK(crc32c("123456789") == 0xe3069283U);  // the check value of the catalogue of CRCs
  CHECK(crc32c("") == 0U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);  // RFC 3720, B.4
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("every finite value of a record is a scalar under the tag that transformers gives it") {
  const fake::TempDir dir;
  TensorBoard board;
  board.on_start({dir.path, "", 0, 10, 0});
  board.on_record({1, 0.25, {{"loss", 0.5}, {"rewards/accuracy/mean", -1.25}, {"kl", no_value}}});
  board.on_record({300, 0.5, {{"eval_reward", 0.75}, {"time/eval", 2.0}}});
  const auto files = event_files(dir.path);
  REQUIRE(files.size() == 1);
  CHECK(files[0] == board.path());
  CHECK(files[0].filename().string().starts_with("events.out.tfevents."));
  const auto found = scalars(fake::read(files[0]));
  CHECK(found.count("version brain.Event:2") == 1);
  CHECK(found.count("start") == 0);
  CHECK(found.count("train/kl") == 0);
  CHECK(found.at("train/loss").at(0).value == 0.5F);
  CHECK(found.at("train/loss").at(0).step == 1);
  CHECK(found.at("train/rewards/accuracy/mean").at(0).value == -1.25F);
  CHECK(found.at("eval/reward").at(0).value == 0.75F);
  CHECK(found.at("eval/reward").at(0).step == 300);
  CHECK(found.at("train/time/eval").at(0).value == 2.0F);
  CHECK(found.at("train/epoch").size() == 2);
}

TEST_CASE("a resumed run adds a file to the folder and tells readers to drop what lies beyond") {
  const fake::TempDir dir;
  LoopConfig config = fake::config(dir.path, 7);
  config.tensorboard = true;
  fake::Run run;
  Loop(config, run.callbacks()).run();
  config.resume_from_checkpoint = dir.path / "checkpoint-4";  // its newest record is that of step 3
  fake::Run resumed;
  Loop(config, resumed.callbacks()).run();
  const auto files = event_files(dir.path);
  REQUIRE(files.size() == 2);
  CHECK(files[0].parent_path() == files[1].parent_path());
  const auto first = scalars(fake::read(files[0]));
  CHECK(first.at("train/loss").size() == 4);
  CHECK(first.count("start") == 0);
  const auto second = scalars(fake::read(files[1]));
  CHECK(second.at("train/loss").size() == 2);
  REQUIRE(second.at("start").size() == 1);
  CHECK(second.at("start")[0].step == 4);
  CHECK(second.at("start")[0].value == 1.0F);  // SessionLog.START
}
