// The safetensors format, of files and of bytes in memory: a reader (files are mapped) that trusts nothing, and a writer
// that emits what the Python library emits, byte for byte.
//
//   u64 little-endian N · N bytes of JSON {name: {dtype, shape, data_offsets: [b, e]}, "__metadata__": {…}} · raw data
//
// Source: huggingface/safetensors (format README, and the order of its Rust serializer: widest dtype first, then name;
// the header padded with spaces so that the data starts at a multiple of 8). Offsets count from the start of the data.
// dtypes F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. Data is copied out of the mapping, or stays in it (map).
//
// Errors: [rlalgo.model.1] cannot open or map; [.2] truncated or bad header length; [.3] malformed header; [.4]
// unsupported dtype; [.5] offsets out of range, overlapping, or not matching the shape; [.6] tensor not in the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

using tensor::Tensor;
using NamedTensor = std::pair<std::string, Tensor>;

namespace detail {

struct SafetensorsDtype {
  std::string_view name;
  at::ScalarType type;
  int rank;  // position in the Rust enum: the writer lays wider types first
};

inline constexpr SafetensorsDtype safetensors_dtypes[] = {
    {"BOOL", at::ScalarType::Bool, 0}, {"U8", at::ScalarType::Byte, 1},   {"I8", at::ScalarType::Char, 2},
    {"I16", at::ScalarType::Short, 3}, {"F16", at::ScalarType::Half, 4},  {"BF16", at::ScalarType::BFloat16, 5},
    {"I32", at::ScalarType::Int, 6},   {"F32", at::ScalarType::Float, 7}, {"F64", at::ScalarType::Double, 8},
    {"I64", at::ScalarType::Long, 9},
};

const SafetensorsDtype* find_dtype(std::string_view name);

const SafetensorsDtype* find_dtype(at::ScalarType type);

// A private mapping of a whole file. Pages that are written to become the process's own; the file never changes.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();
  [[nodiscard]] std::span<const std::byte> bytes() const { return {data_, size_}; }
  [[nodiscard]] std::byte* data() const { return data_; }

  // Gives the memory of whole pages inside [begin, end) back; they are read again when needed. Advice only.
  void release(std::size_t begin, std::size_t end) const;

 private:
  [[noreturn]] static void fail(const char* what, const std::filesystem::path& path, const std::string& reason);
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace detail

// One open file. The header is checked completely on construction; tensors are copied out, or mapped, on demand.
class SafetensorsFile {
 public:
  struct Entry {
    at::ScalarType dtype;
    std::vector<std::int64_t> shape;
    std::size_t begin, end;  // bytes, from the start of the data
  };

  explicit SafetensorsFile(std::filesystem::path path);
  // The bytes of a file that came another way, `name` for messages. They outlive this object, not its tensors: map()
  // copies.
  SafetensorsFile(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::map<std::string, Entry>& entries() const { return entries_; }
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  // One tensor in its stored dtype, in the memory of the mapping: nothing is read before it is used. Writing to it
  // copies the pages written. The mapping lives as long as the tensor. A file that somebody truncates meanwhile ends
  // the program (SIGBUS); one that is replaced by renaming does not matter.
  [[nodiscard]] Tensor map(const std::string& name) const;

  // One tensor in another dtype; the pages that the conversion read are given back.
  [[nodiscard]] Tensor convert(const std::string& name, at::ScalarType dtype) const;

  // Copies one tensor into `out`, of its shape and any dtype; the pages that were read for it are given back.
  void fill(const std::string& name, const Tensor& out) const;

  // A copy of one tensor in its stored dtype.
  [[nodiscard]] Tensor read(const std::string& name) const;

 private:
  [[nodiscard]] const Entry& entry(const std::string& name) const;

  static constexpr std::uint64_t largest_header = 100'000'000;  // the limit of the Rust library

  [[noreturn]] void fail(int number, std::string what, std::string found, std::string expected,
                         const std::string& tensor = "") const;

  void parse(std::span<const std::byte> bytes);

  [[nodiscard]] Entry parse_entry(const std::string& name, const nlohmann::ordered_json& value) const;

  // The tensors tile the data: no overlap, no hole, nothing behind the last one.
  void check_layout() const;

  std::filesystem::path path_;
  std::shared_ptr<detail::MappedFile> file_;  // tensors that map() returned share it; nullptr: bytes of somebody else's
  std::span<const std::byte> data_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

// All tensors of one file, by name.
[[nodiscard]] std::map<std::string, Tensor> read_safetensors(const std::filesystem::path& path);

// Bytes a tensor takes in a file.
[[nodiscard]] std::uint64_t stored_bytes(const Tensor& tensor);

// A tensor that is made when its turn to be written comes.
struct PendingTensor {
  std::string name;
  at::ScalarType dtype;
  std::vector<std::int64_t> shape;
  std::function<Tensor()> make;  // of that dtype and shape, on the CPU, of any layout

  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t out = c10::elementSize(dtype);
    for (const std::int64_t extent : shape) out *= static_cast<std::uint64_t>(extent);
    return out;
  }
};

// Writes the tensors under `path`, whole or not at all, one in memory at a time; names must be unique.
void write_pending_safetensors(const std::filesystem::path& path, std::vector<PendingTensor> tensors,
                               const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The same for tensors that exist.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// The bytes that such a file would hold.
[[nodiscard]] std::string safetensors_bytes(const std::vector<NamedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace rlalgo::model

#ifndef RLALGO_COMPILED
#include <rlalgo/model/detail/safetensors_impl.hpp>
#endif
