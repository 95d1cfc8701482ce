// Definitions of checkpoint_store.hpp.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/model/checkpoint_store.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

namespace detail {

[[noreturn]] inline void refuse_checkpoint_file(const std::string& what, const std::filesystem::path& directory,
                                                int error) {
  core::raise(
      "model", 51,
      {.what = "the inputs of layers cannot be " + what,
       .found = std::strerror(error),
       .where = "a file without a name in " + directory.string(),
       .remedy = "make room there, set TMPDIR to another place, or set activation_offloading: true (memory) or false"});
}

}  // namespace detail

RLALGO_INLINE CheckpointStore::~CheckpointStore() {
  if (file_ >= 0) ::close(file_);
}

RLALGO_INLINE void CheckpointStore::push(const Tensor& x) {
  Kept& kept = kept_.emplace_back();
  if (place_.memory == CheckpointMemory::disk) {
    write(kept, x);
  } else if (place_.memory == CheckpointMemory::device || device_.is_cpu()) {
    kept.value = x;
  } else {
    auto options = x.options().device(at::kCPU);
    if (device_.is_cuda()) options = options.pinned_memory(true);
    kept.value = tensor::empty(x.sizes(), options);
    kept.copied = side_.launch([&] { kept.value.copy_(x, /*non_blocking=*/device_.is_cuda()); });
    if (side_.stream()) x.record_stream(*side_.stream());  // its memory is not used again before it was read
  }
}

RLALGO_INLINE Tensor CheckpointStore::pop() {
  Kept kept = std::move(kept_.back());
  kept_.pop_back();
  if (place_.memory == CheckpointMemory::disk) return read(kept).to(device_);
  if (place_.memory == CheckpointMemory::device || device_.is_cpu()) return kept.value;
  if (!kept.back.defined()) bring(kept);
  if (!kept_.empty()) bring(kept_.back());
  if (kept.brought) {
    tensor::SideStream::wait_for(*kept.brought, device_);
    kept.back.record_stream(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  return kept.back;
}

RLALGO_INLINE void CheckpointStore::bring(Kept& kept) {
  if (kept.back.defined()) return;
  // Made where it is used, so that the memory is that stream's; copied on the side stream.
  kept.back = tensor::empty(kept.value.sizes(), kept.value.options().device(device_).pinned_memory(false));
  kept.brought = side_.launch([&] { kept.back.copy_(kept.value, /*non_blocking=*/device_.is_cuda()); });
}

RLALGO_INLINE void CheckpointStore::write(Kept& kept, const Tensor& x) {
  if (file_ < 0) {
    if (place_.directory.empty()) {
      const char* const chosen = std::getenv("TMPDIR");
      place_.directory = chosen == nullptr || *chosen == 0 ? "/tmp" : chosen;
    }
    std::string name = (place_.directory / "rlalgo-activations-XXXXXX").string();
    file_ = ::mkstemp(name.data());
    if (file_ < 0) detail::refuse_checkpoint_file("kept: a file cannot be made", place_.directory, errno);
    ::unlink(name.c_str());
  }
  const Tensor host = x.to(at::kCPU).contiguous();
  kept.sizes.assign(x.sizes().begin(), x.sizes().end());
  kept.type = x.scalar_type();
  kept.bytes = host.nbytes();
  kept.offset = end_;
  const auto* const from = static_cast<const char*>(host.const_data_ptr());
  for (std::size_t done = 0; done < kept.bytes;) {
    const ssize_t n = ::pwrite(file_, from + done, kept.bytes - done, static_cast<off_t>(kept.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) detail::refuse_checkpoint_file("written", place_.directory, n < 0 ? errno : ENOSPC);
    done += static_cast<std::size_t>(n);
  }
  end_ += kept.bytes;
}

RLALGO_INLINE Tensor CheckpointStore::read(const Kept& kept) const {
  const Tensor out = tensor::empty(kept.sizes, at::TensorOptions().dtype(kept.type));
  auto* const to = static_cast<char*>(out.mutable_data_ptr());
  for (std::size_t done = 0; done < kept.bytes;) {
    const ssize_t n = ::pread(file_, to + done, kept.bytes - done, static_cast<off_t>(kept.offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) detail::refuse_checkpoint_file("read", place_.directory, n < 0 ? errno : EIO);
    done += static_cast<std::size_t>(n);
  }
  return out;
}

}  // namespace rlalgo::model
