// TensorBoard event files: every record of metrics.jsonl as scalars, under output_dir/runs/<start of the run>/.
//
//   record = length (u64) · crc(length) · Event · crc(Event),   all little-endian,
//   crc(x) = rotate_right(crc32c(x), 15) + 0xa282ead8
//   Event  = {1: wall_time (double), 2: step (int64), 3: file_version | 5: Summary | 7: SessionLog}   (protobuf)
//
// Source: tensorflow's event.proto, summary.proto and record_writer.cc (the wire format is three field types, written
// here by hand). Tags are those of transformers: eval_x → eval/x, others → train/x. Values are float32 in this format;
// NaN and infinities are left out. A resumed run writes a new file into the same folder, headed by a SessionLog START
// that makes TensorBoard drop the records beyond the resumed step.
//
// Errors: [rlalgo.core.1] the file cannot be written.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/run/observer.hpp>

namespace rlalgo::run {

namespace detail {
class ByteFile;
}

// CRC-32C (Castagnoli), reflected polynomial 0x82f63b78.
[[nodiscard]] constexpr std::uint32_t crc32c(std::string_view data) {
  constexpr auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c & 1U) != 0 ? 0x82f63b78U ^ (c >> 1U) : c >> 1U;
      t[i] = c;
    }
    return t;
  }();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : data) crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (crc >> 8U);
  return crc ^ 0xffffffffU;
}

class TensorBoard : public Observer {
 public:
  TensorBoard();
  RLALGO_INLINE ~TensorBoard() override;
  RLALGO_INLINE void on_start(const RunStart& start) override;

  RLALGO_INLINE void on_record(const Record& record) override;

  // Where this process writes; empty before on_start.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  void write(std::int64_t step, const std::string& what);
  static std::string date(long long seconds);
  static std::filesystem::path newest_folder(const std::filesystem::path& runs);
  std::unique_ptr<detail::ByteFile> file_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/tensorboard_impl.hpp>
#endif
