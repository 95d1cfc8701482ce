// Definitions of safetensors.hpp.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <nlohmann/json.hpp>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/os/memory_stretch.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

RLALGO_INLINE const SafetensorsDtype* find_dtype(std::string_view name) {
  for (const auto& entry : safetensors_dtypes)
    if (entry.name == name) return &entry;
  return nullptr;
}

RLALGO_INLINE const SafetensorsDtype* find_dtype(at::ScalarType type) {
  for (const auto& entry : safetensors_dtypes)
    if (entry.type == type) return &entry;
  return nullptr;
}

RLALGO_INLINE MappedFile::MappedFile(const std::filesystem::path& path) {
  const os::RegularFile file(path);
  if (!file.problem().empty()) fail("cannot open the weights file", path, file.problem());
  if (file.size() == 0) return;
  void* address = ::mmap(nullptr, file.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, file.descriptor(), 0);
  if (address == MAP_FAILED) fail("cannot map the weights file", path, std::strerror(errno));
  data_ = static_cast<std::byte*>(address);
  size_ = file.size();
}

RLALGO_INLINE MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

RLALGO_INLINE void MappedFile::release(std::size_t begin, std::size_t end) const {
  if (begin < end) os::release_pages(data_ + begin, end - begin);
}

RLALGO_INLINE void MappedFile::fail(const char* what, const std::filesystem::path& path, const std::string& reason) {
  core::raise("model", 1,
              {.what = what, .found = reason, .where = path.string(), .remedy = "check the path and its permissions"});
}

}  // namespace detail

RLALGO_INLINE std::map<std::string, Tensor> read_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::map<std::string, Tensor> out;
  for (const auto& [name, entry] : file.entries()) out.emplace(name, file.read(name));
  return out;
}

RLALGO_INLINE std::uint64_t stored_bytes(const Tensor& tensor) {
  return static_cast<std::uint64_t>(tensor.numel()) * tensor.element_size();
}

namespace detail {

// Puts the tensors into the order of a file and returns what comes before their data. `where`: for messages.
RLALGO_INLINE std::string begin_safetensors(std::vector<PendingTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata,
                                            const std::string& where) {
  const auto dtype_of = [&](const PendingTensor& entry) -> const SafetensorsDtype& {
    const SafetensorsDtype* known = find_dtype(entry.dtype);
    if (known == nullptr) {
      core::raise("model", 4,
                  {.what = "unsupported tensor dtype",
                   .found = c10::toString(entry.dtype),
                   .where = where + ", tensor " + entry.name});
    }
    return *known;
  };
  std::sort(tensors.begin(), tensors.end(), [&](const PendingTensor& a, const PendingTensor& b) {
    const int rank_a = dtype_of(a).rank, rank_b = dtype_of(b).rank;
    return rank_a != rank_b ? rank_a > rank_b : a.name < b.name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const auto& entry : tensors) {
    if (header.contains(entry.name)) {
      core::raise("model", 3, {.what = "a tensor is described twice", .found = entry.name, .where = where});
    }
    const std::uint64_t bytes = entry.bytes();
    header[entry.name] = {
        {"dtype", dtype_of(entry).name}, {"shape", entry.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string out;
  for (unsigned i = 0; i < 8; ++i) out += static_cast<char>(text.size() >> (8 * i));
  return out + text;
}

RLALGO_INLINE std::vector<PendingTensor> pending(const std::vector<NamedTensor>& tensors) {
  std::vector<PendingTensor> out;
  for (const auto& [name, value] : tensors)
    out.push_back({name, value.scalar_type(), value.sizes().vec(), [value = value] { return value; }});
  return out;
}

}  // namespace detail

RLALGO_INLINE void write_pending_safetensors(const std::filesystem::path& path, std::vector<PendingTensor> tensors,
                                             const std::map<std::string, std::string>& metadata) {
  const std::string begin = detail::begin_safetensors(tensors, metadata, path.string());
  os::AtomicFile file(path);
  file.write(begin);
  for (const auto& entry : tensors) {
    const Tensor contiguous = entry.make().detach().to(at::Device(at::kCPU)).contiguous();
    file.write(contiguous.const_data_ptr(), stored_bytes(contiguous));
  }
  file.commit();
}

RLALGO_INLINE void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  write_pending_safetensors(path, detail::pending(tensors), metadata);
}

RLALGO_INLINE std::string safetensors_bytes(const std::vector<NamedTensor>& tensors,
                                            const std::map<std::string, std::string>& metadata) {
  std::vector<PendingTensor> pending = detail::pending(tensors);
  std::string out = detail::begin_safetensors(pending, metadata, "safetensors");
  std::size_t size = out.size();
  for (const auto& [name, value] : tensors) size += stored_bytes(value);
  out.reserve(size);
  for (const auto& entry : pending) {
    const Tensor contiguous = entry.make().detach().to(at::Device(at::kCPU)).contiguous();
    out.append(static_cast<const char*>(contiguous.const_data_ptr()), stored_bytes(contiguous));
  }
  return out;
}

RLALGO_INLINE SafetensorsFile::SafetensorsFile(std::filesystem::path path)
    : path_(std::move(path)), file_(std::make_shared<detail::MappedFile>(path_)) {
  parse(file_->bytes());
}

RLALGO_INLINE SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string name)
    : path_(std::move(name)) {
  parse(bytes);
}

RLALGO_INLINE Tensor SafetensorsFile::map(const std::string& name) const {
  const Entry& entry = this->entry(name);
  if (file_ == nullptr) return read(name);
  std::byte* const data = file_->data() + (data_.data() - file_->data()) + entry.begin;
  if (entry.end == entry.begin || reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(entry.dtype) != 0)
    return read(name);
  return at::from_blob(
      data, entry.shape, [file = file_](void*) {}, at::TensorOptions().dtype(entry.dtype));
}

RLALGO_INLINE Tensor SafetensorsFile::convert(const std::string& name, at::ScalarType dtype) const {
  const Entry& entry = this->entry(name);
  if (entry.dtype == dtype) return map(name);
  Tensor out = tensor::empty(entry.shape, at::TensorOptions().dtype(dtype));
  fill(name, out);
  return out;
}

RLALGO_INLINE void SafetensorsFile::fill(const std::string& name, const Tensor& out) const {
  const Entry& entry = this->entry(name);
  out.copy_(map(name));
  if (file_ == nullptr) return;
  const auto start = static_cast<std::size_t>(data_.data() - file_->data());
  file_->release(start + entry.begin, start + entry.end);
}

RLALGO_INLINE Tensor SafetensorsFile::read(const std::string& name) const {
  const Entry& entry = this->entry(name);
  Tensor out = tensor::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
  if (entry.end > entry.begin) std::memcpy(out.mutable_data_ptr(), data_.data() + entry.begin, entry.end - entry.begin);
  return out;
}

RLALGO_INLINE const SafetensorsFile::Entry& SafetensorsFile::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    core::raise("model", 6, {.what = "the file has no such tensor", .found = name, .where = path_.string()});
  return found->second;
}

RLALGO_INLINE void SafetensorsFile::fail(int number, std::string what, std::string found, std::string expected,
                                         const std::string& tensor) const {
  core::raise("model", number,
              {.what = std::move(what),
               .found = std::move(found),
               .expected = std::move(expected),
               .where = path_.string() + (tensor.empty() ? "" : ", tensor " + tensor),
               .remedy = "the file is damaged or incomplete: fetch or write it again"});
}

RLALGO_INLINE void SafetensorsFile::parse(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) {
    fail(2, "the safetensors file is too short", std::to_string(bytes.size()) + " bytes", "at least 8");
  }
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8U | std::to_integer<std::uint64_t>(bytes[static_cast<std::size_t>(i)]);
  if (length < 2 || length > largest_header || length > bytes.size() - 8) {
    fail(2, "the header length of the safetensors file is impossible", std::to_string(length) + " bytes",
         "2 to " + std::to_string(std::min<std::uint64_t>(largest_header, bytes.size() - 8)));
  }
  data_ = bytes.subspan(8 + length);
  const std::string_view header_text(reinterpret_cast<const char*>(bytes.data() + 8), length);
  if (const core::JsonProblem excess = core::json_excess(header_text); !excess.text.empty())
    fail(3, "the safetensors header is beyond what is read", excess.text, "");
  nlohmann::ordered_json header;
  try {
    std::set<std::string> names;
    // The parser would let a later duplicate of a key win in silence.
    const auto unique = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::ordered_json& parsed) {
      if (depth == 1 && event == nlohmann::json::parse_event_t::key &&
          !names.insert(parsed.get<std::string>()).second) {
        fail(3, "a tensor is described twice", parsed.get<std::string>(), "one description");
      }
      return true;
    };
    header = nlohmann::ordered_json::parse(header_text, unique);
  } catch (const nlohmann::json::exception& error) {
    fail(3, "the safetensors header is not JSON", core::json_reason(error.what()), "");
  }
  if (!header.is_object()) fail(3, "the safetensors header is not a JSON object", header.type_name(), "object");
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      if (!value.is_object()) fail(3, "__metadata__ is not an object", value.type_name(), "object");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) fail(3, "a metadata value is not a string", text.type_name(), "string", key);
        metadata_[key] = text.get<std::string>();
      }
    } else {
      entries_.emplace(name, parse_entry(name, value));
    }
  }
  check_layout();
}

RLALGO_INLINE SafetensorsFile::Entry SafetensorsFile::parse_entry(const std::string& name,
                                                                  const nlohmann::ordered_json& value) const {
  const auto is_count = [](const nlohmann::ordered_json& v) {
    return v.is_number_unsigned() && v.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  };
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string() || !value.contains("shape") ||
      !value["shape"].is_array() || !std::all_of(value["shape"].begin(), value["shape"].end(), is_count) ||
      !value.contains("data_offsets") || !value["data_offsets"].is_array() || value["data_offsets"].size() != 2 ||
      !std::all_of(value["data_offsets"].begin(), value["data_offsets"].end(), is_count)) {
    fail(3, "a tensor's description is malformed", value.dump(), "{dtype, shape, data_offsets: [begin, end]}", name);
  }
  const auto dtype = value["dtype"].get<std::string>();
  const detail::SafetensorsDtype* known = detail::find_dtype(dtype);
  if (known == nullptr) {
    core::raise("model", 4,
                {.what = "unsupported tensor dtype",
                 .found = dtype,
                 .expected = "F64, F32, F16, BF16, I64, I32, I16, I8, U8 or BOOL",
                 .where = path_.string() + ", tensor " + name,
                 .remedy = "convert the checkpoint to bf16 or f32"});
  }
  Entry entry{
      known->type, {}, value["data_offsets"][0].get<std::size_t>(), value["data_offsets"][1].get<std::size_t>()};
  if (entry.begin > entry.end || entry.end > data_.size()) {
    fail(5, "a tensor's offsets lie outside the file",
         "[" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")",
         "within the " + std::to_string(data_.size()) + " bytes of data", name);
  }
  // The product stays below the data size at every step, so it cannot overflow.
  std::uint64_t elements = 1;
  bool fits = true;
  for (const auto& extent : value["shape"]) {
    const auto n = extent.get<std::uint64_t>();
    if (n > static_cast<std::uint64_t>(INT64_MAX)) fits = false;
    entry.shape.push_back(static_cast<std::int64_t>(n));
    if (n != 0 && elements > data_.size() / n) fits = false;
    elements = fits ? elements * n : elements;
  }
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end())
    elements = 0;
  else if (!fits)
    elements = UINT64_MAX / 8;
  if (elements * c10::elementSize(entry.dtype) != entry.end - entry.begin) {
    fail(5, "a tensor's offsets do not match its shape and dtype", std::to_string(entry.end - entry.begin) + " bytes",
         value["shape"].dump() + " × " + std::to_string(c10::elementSize(entry.dtype)) + " bytes", name);
  }
  return entry;
}

RLALGO_INLINE void SafetensorsFile::check_layout() const {
  std::vector<std::pair<const std::string*, const Entry*>> order;
  for (const auto& [name, entry] : entries_) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::size_t reached = 0;
  for (const auto& [name, entry] : order) {
    if (entry->begin < reached) {
      fail(5, "two tensors overlap", "begin " + std::to_string(entry->begin), "at least " + std::to_string(reached),
           *name);
    }
    if (entry->begin > reached) {
      fail(5, "bytes before this tensor belong to no tensor", "begin " + std::to_string(entry->begin),
           std::to_string(reached), *name);
    }
    reached = entry->end;
  }
  if (reached != data_.size()) {
    fail(5, "bytes after the last tensor belong to no tensor", std::to_string(data_.size()) + " bytes of data",
         std::to_string(reached));
  }
}

}  // namespace rlalgo::model
