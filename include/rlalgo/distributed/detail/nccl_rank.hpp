// One rank's communicator of NCCL, with a stream of its own and room on the GPU for tensors of the CPU: what a group
// (nccl_group.hpp) and the ranks of a team (nccl_peers.hpp) stand on.
//
// Communicators are non-blocking ones: what fails or is not done in time is aborted, and the communicator is good for nothing
// more. Copies come before an operation or after its end: none waits behind one that may never end.
// Errors: [rlalgo.distributed.4] an operation failed, or was not done in time; [.18] a call of NCCL or of the CUDA runtime
// failed.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/group_failure.hpp>
#include <rlalgo/distributed/nccl_library.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/streams.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed::detail {

inline int nccl_type(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return abi::int8;
    case at::kByte:
      return abi::uint8;
    case at::kInt:
      return abi::int32;
    case at::kLong:
      return abi::int64;
    case at::kHalf:
      return abi::float16;
    case at::kFloat:
      return abi::float32;
    case at::kDouble:
      return abi::float64;
    case at::kBFloat16:
      return abi::bfloat16;
    default:
      core::raise("distributed", 18,
                  {.what = "NCCL cannot send tensors of this type", .found = std::string(c10::toString(type))});
  }
}

class NcclRank {
 public:
  NcclRank(std::shared_ptr<const NcclLibrary> library, int rank, int size, int device)
      : library_(std::move(library)), rank_(rank), size_(size), device_(device) {}
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;
  ~NcclRank() {
    (void)cuda().set_device(device_);
    if (communicator_ != nullptr) end(true);
    if (!clean_) return;  // what the GPU may still use stays where it is
    if (stream_ != nullptr) (void)cuda().destroy_stream(stream_);
    if (buffer_ != nullptr) (void)cuda().release(buffer_);  // waits for what the stream still does with it
  }

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const abi::Nccl& nccl() const { return library_->nccl(); }
  [[nodiscard]] abi::Communicator communicator() const { return communicator_; }
  [[nodiscard]] abi::Stream stream() const { return stream_; }

  void open_stream() {
    enter();
    checked_cuda(cuda().create_stream(&stream_, abi::non_blocking_stream), "cudaStreamCreateWithFlags");
  }
  // Of rank 0, for all.
  [[nodiscard]] std::string new_id() const {
    abi::UniqueId id{};
    checked(nccl().get_unique_id(&id), "ncclGetUniqueId");
    return {id.bytes, abi::id_bytes};
  }
  void join(const std::string& bytes, double seconds) {
    abi::UniqueId id{};
    std::memcpy(id.bytes, bytes.data(), std::min(bytes.size(), abi::id_bytes));
    abi::Config config;
    const int begun = nccl().init_rank(&communicator_, size_, id, rank_, &config);
    if (begun != abi::in_progress) checked(begun, "ncclCommInitRankConfig");
    wait("ncclCommInitRank", seconds, true);
  }

  void begin(const char* operation, double seconds) const {
    if (communicator_ == nullptr || stopped_) group_failed(operation, "the group has failed before", seconds);
    enter();
  }

  // Where NCCL finds tensors on the GPU: in their own places, when the calling thread's stream has written and read them, or in the
  // buffer, whose old contents are lost. The device's other streams are not waited for: other communicators' operations may be on
  // them, which wait for a rank that waits for this one.
  [[nodiscard]] std::vector<void*> places_of(const std::vector<tensor::Tensor>& tensors) {
    constexpr std::size_t step = 256;
    std::vector<void*> out;
    std::size_t bytes = 0;
    for (const tensor::Tensor& one : tensors)
      if (one.is_cpu()) bytes += (one.nbytes() + step - 1) / step * step;
    if (bytes > room_) {
      if (buffer_ != nullptr) checked_cuda(cuda().release(std::exchange(buffer_, nullptr)), "cudaFree");
      room_ = 0;
      checked_cuda(cuda().allocate(&buffer_, bytes), "cudaMalloc");
      room_ = bytes;
    }
    const auto on_gpu = std::find_if(tensors.begin(), tensors.end(), [](const auto& one) { return !one.is_cpu(); });
    if (on_gpu != tensors.end()) tensor::finish_stream(on_gpu->device());
    std::size_t at = 0;
    for (const tensor::Tensor& one : tensors) {
      out.push_back(one.is_cpu() ? static_cast<char*>(buffer_) + at : one.mutable_data_ptr());
      if (one.is_cpu()) at += (one.nbytes() + step - 1) / step * step;
    }
    return out;
  }
  void upload(const tensor::Tensor& tensor, void* place) const {
    if (tensor.is_cpu())
      checked_cuda(cuda().copy(place, tensor.const_data_ptr(), tensor.nbytes(), abi::host_to_device, stream_),
                   "cudaMemcpyAsync");
  }
  // To be waited for.
  void download(const tensor::Tensor& tensor, const void* place) const {
    if (tensor.is_cpu())
      checked_cuda(cuda().copy(tensor.mutable_data_ptr(), place, tensor.nbytes(), abi::device_to_host, stream_),
                   "cudaMemcpyAsync");
  }

  // Of an operation that NCCL has been given: returns when it is done.
  void finish(int result, const char* operation, double seconds) {
    if (result != abi::success && result != abi::in_progress) {
      const std::string why = words_of(result);
      end(false);
      group_failed(operation, why, seconds);
    }
    wait(operation, seconds);
  }

  // Until NCCL and the stream are done. `joining`: a communicator that does not block begins in the background, and only here tells what
  // it refuses (two ranks on one GPU, say).
  void wait(const char* operation, double seconds, bool joining = false) {
    const os::Stopwatch waited;
    auto pause = std::chrono::microseconds(20);
    bool refused = false;
    for (std::string why;;) {
      int state = abi::success;
      const int asked = nccl().async_error(communicator_, &state);
      if (asked != abi::success && asked != abi::in_progress) state = asked;
      if (state == abi::success) {
        const int query = cuda().query_stream(stream_);
        if (query == abi::success) return;
        if (query != abi::not_ready) why = cuda().error_text(query);
      } else if (state != abi::in_progress) {
        why = words_of(state);
        refused = joining && state != abi::system_error && state != abi::remote_error;
      }
      if (why.empty() && stopped_) why = "it was given up";
      if (why.empty() && waited.seconds() >= seconds) why = "not done in time";
      if (!why.empty()) {
        end(false);
        if (refused) call_failed(operation, why);
        group_failed(operation, why, seconds);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }
  // Ends another thread's wait.
  void stop() noexcept { stopped_ = true; }

  // call() gives NCCL an operation for a stream; returns when the stream has it, which may take the other ranks' doing the first time. No
  // deadline but abort().
  template <class F>
  void give(const char* operation, F&& call) {
    const std::lock_guard lock(calls_);
    begin(operation, unbounded);
    int state = call();
    for (auto pause = std::chrono::microseconds(0); state == abi::in_progress && !stopped_;) {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause + std::chrono::microseconds(1), std::chrono::microseconds(200));
      if (const int asked = nccl().async_error(communicator_, &state); asked != abi::success) state = asked;
    }
    if (state == abi::success) return;
    const std::string why = stopped_ ? "it was given up" : words_of(state);
    end(false);
    group_failed(operation, why, unbounded);
  }
  // What went wrong with what streams have been given, or empty; any thread.
  [[nodiscard]] std::string trouble() {
    const std::unique_lock lock(calls_, std::try_to_lock);
    if (!lock || communicator_ == nullptr) return {};
    int state = abi::success;
    if (const int asked = nccl().async_error(communicator_, &state); asked != abi::success) state = asked;
    return state == abi::success || state == abi::in_progress ? std::string() : words_of(state);
  }
  // Ends what is under way, on the GPU, too; any thread.
  void abort() noexcept {
    stopped_ = true;
    const std::lock_guard lock(calls_);
    if (communicator_ != nullptr) end(false);
  }

  void checked(int result, const char* call) const {
    if (result == abi::success) return;
    call_failed(call, words_of(result));
  }

 private:
  [[nodiscard]] const abi::Cuda& cuda() const { return library_->cuda(); }

  // An error's name, and what NCCL last wrote about one.
  [[nodiscard]] std::string words_of(int result) const {
    const char* const detail = nccl().last_error(nullptr);
    return std::string(nccl().error_text(result)) +
           (detail != nullptr && *detail != '\0' ? std::string(": ") + detail : std::string());
  }

  // The device is a thread's.
  void enter() const { checked_cuda(cuda().set_device(device_), "cudaSetDevice"); }

  [[noreturn]] void call_failed(const char* call, const std::string& why) const {
    core::raise("distributed", 18,
                {.what = "a call of NCCL failed",
                 .found = why,
                 .where = std::string(call) + ", rank " + std::to_string(rank_) + " of " + std::to_string(size_),
                 .remedy = "NCCL_DEBUG=INFO says more; each rank needs a GPU of its own"});
  }
  void checked_cuda(int result, const char* call) const {
    if (result != abi::success) call_failed(call, cuda().error_text(result));
  }

  // Until the network has what was sent, which may be later than the end of the operation; false: it will not.
  static bool flush(const abi::Nccl& nccl, abi::Communicator communicator) {
    const os::Stopwatch waited;
    int state = nccl.finalize(communicator);
    while (state == abi::in_progress && waited.seconds() < 3.0) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      if (const int asked = nccl.async_error(communicator, &state); asked != abi::success) state = asked;
    }
    return state == abi::success;
  }
  // Ends the communicator: after a flush, or with what is under way. Where that itself does not end it is left to its thread, and the
  // GPU's memory to what uses it.
  void end(bool flushing) noexcept {
    try {
      const auto done = std::make_shared<std::promise<void>>();
      std::thread([library = library_, device = device_, done, flushing,
                   communicator = std::exchange(communicator_, nullptr)] {
        (void)library->cuda().set_device(device);
        const abi::Nccl& nccl = library->nccl();
        (void)(flushing && flush(nccl, communicator) ? nccl.destroy : nccl.abort)(communicator);
        done->set_value();
      }).detach();
      clean_ = done->get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    } catch (const std::exception&) {  // no thread to be had
      clean_ = false;
    }
  }

  std::shared_ptr<const NcclLibrary> library_;
  std::mutex calls_;  // of give() and abort()
  int rank_, size_, device_;
  abi::Communicator communicator_ = nullptr;
  abi::Stream stream_ = nullptr;
  void* buffer_ = nullptr;
  std::size_t room_ = 0;  // of the buffer, bytes
  bool clean_ = true;     // the GPU uses nothing of this any more
  std::atomic<bool> stopped_ = false;
};

}  // namespace rlalgo::distributed::detail
