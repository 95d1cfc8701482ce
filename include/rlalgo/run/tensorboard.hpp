// TensorBoard event files: every record of metrics.jsonl as scalars, under output_dir/runs/<start of the run>/.
//
//   record = length (u64) · crc(length) · Event · crc(Event),   all little-endian,
//   crc(x) = rotate_right(crc32c(x), 15) + 0xa282ead8
//   Event  = {1: wall_time (double), 2: step (int64), 3: file_version | 5: Summary | 7: SessionLog}   (protobuf)
//
// The run has one file: a version, a SessionLog START of step 0, the records. A resumed run writes it anew, from the
// records of its checkpoint and with the wall times that its predecessor gave them, under a later name, and empties the
// former one: whatever the run went through, its events are those of a run that was never interrupted, wall times
// excepted. The START makes a TensorBoard that has read the former file start over. Event folders of other attempts and
// earlier runs in the same output_dir go when a run starts, as their metrics.jsonl does; files of other names stay.
//
// Source: tensorflow's event.proto, summary.proto and record_writer.cc (the wire format is three field types, written
// here by hand). Tags are those of transformers: eval_x → eval/x, others → train/x. Values are float32 in this format;
// NaN and infinities are left out.
//
// Errors: [rlalgo.os.1] the file cannot be written, or a former one not be removed.
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

  // The file of events; empty before on_start.
  [[nodiscard]] std::filesystem::path path() const;

 private:
  std::unique_ptr<detail::ByteFile> file_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/tensorboard_impl.hpp>
#endif
