// Definitions of nccl_group.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <rlalgo/core/clock.hpp>
#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/group_failure.hpp>
#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/pickle.hpp>
#include <rlalgo/distributed/stateless_group.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

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

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(StatelessGroup meeting, std::shared_ptr<const NcclLibrary> library, double seconds, int device)
      : NcclGroup(std::move(meeting), std::move(library), device) {
    enter();
    checked_cuda(cuda().create_stream(&stream_, abi::non_blocking_stream), "cudaStreamCreateWithFlags");
    abi::UniqueId id{};
    if (rank() == 0) checked(nccl().get_unique_id(&id), "ncclGetUniqueId");
    const std::string bytes(id.bytes, abi::id_bytes);
    const std::string told = meeting_.broadcast(rank() == 0 ? pickled_nccl_id(bytes) : std::string(), 0, seconds);
    if (rank() != 0) std::memcpy(id.bytes, nccl_id_in(told).data(), abi::id_bytes);
    abi::Config config;
    const int begun = nccl().init_rank(&communicator_, size(), id, rank(), &config);
    if (begun != abi::in_progress) checked(begun, "ncclCommInitRankConfig");
    wait("ncclCommInitRank", seconds);
    tensor::Tensor one = tensor::zeros({1}, at::TensorOptions().dtype(at::kFloat));
    sum(one, seconds);
  }

  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // As vLLM leaves: ncclCommDestroy would wait for the others.
  ~NcclGroup() override {
    (void)cuda().set_device(device_);
    if (communicator_ != nullptr) (void)abort();
    if (!clean_) return;  // what the GPU may still use stays where it is
    if (buffer_ != nullptr) (void)cuda().release(buffer_);
    if (stream_ != nullptr) (void)cuda().destroy_stream(stream_);
  }

  [[nodiscard]] int rank() const override { return meeting_.rank(); }
  [[nodiscard]] int size() const override { return meeting_.size(); }

  void broadcast(tensor::Tensor& tensor, int root, double seconds) override {
    begin("broadcast", seconds);
    const int type = nccl_type(tensor.scalar_type());
    const auto count = static_cast<std::size_t>(tensor.numel());
    void* const place = place_of(tensor);
    if (root == rank()) upload(tensor, place);
    enqueued(nccl().broadcast(place, place, count, type, root, communicator_, stream_), "broadcast", seconds);
    if (root != rank()) download(tensor, place, "broadcast", seconds);
  }

  void receive(tensor::Tensor& tensor, std::size_t /*most_bytes*/, double seconds) override {
    broadcast(tensor, 1 - rank(), seconds);
  }

  void sum(tensor::Tensor& tensor, double seconds) override {
    begin("sum", seconds);
    void* const place = place_of(tensor);
    upload(tensor, place);
    enqueued(nccl().all_reduce(place, place, static_cast<std::size_t>(tensor.numel()), nccl_type(tensor.scalar_type()),
                               abi::add, communicator_, stream_),
             "sum", seconds);
    download(tensor, place, "sum", seconds);
  }

  void barrier(double seconds) override {
    begin("barrier", seconds);
    meeting_.barrier(seconds);
  }

  void stop() noexcept override {
    stopped_ = true;
    meeting_.stop();
  }

 private:
  // Alone it lets the destructor clean up what the other constructor does not finish.
  NcclGroup(StatelessGroup meeting, std::shared_ptr<const NcclLibrary> library, int device)
      : meeting_(std::move(meeting)), library_(std::move(library)), device_(device) {}

  [[nodiscard]] const abi::Nccl& nccl() const { return library_->nccl(); }
  [[nodiscard]] const abi::Cuda& cuda() const { return library_->cuda(); }

  // The device is a thread's.
  void enter() const { checked_cuda(cuda().set_device(device_), "cudaSetDevice"); }

  void begin(const char* operation, double seconds) const {
    if (communicator_ == nullptr || stopped_) group_failed(operation, "the group has failed before", seconds);
    enter();
  }

  [[noreturn]] void call_failed(const char* call, const std::string& why) const {
    core::raise("distributed", 18,
                {.what = "a call of NCCL failed",
                 .found = why,
                 .where = std::string(call) + ", rank " + std::to_string(rank()) + " of " + std::to_string(size()),
                 .remedy = "NCCL_DEBUG=INFO says more; each rank needs a GPU of its own"});
  }
  void checked(int result, const char* call) const {
    if (result == abi::success) return;
    const char* const detail = nccl().last_error(nullptr);
    call_failed(call, std::string(nccl().error_text(result)) +
                          (detail != nullptr && *detail != '\0' ? std::string(": ") + detail : std::string()));
  }
  void checked_cuda(int result, const char* call) const {
    if (result != abi::success) call_failed(call, cuda().error_text(result));
  }

  // Where NCCL finds the tensor on the GPU: its own place, or a buffer.
  void* place_of(tensor::Tensor& tensor) {
    if (!tensor.is_cpu()) return tensor.mutable_data_ptr();
    const std::size_t bytes = std::max<std::size_t>(tensor.nbytes(), 1);
    if (bytes > room_) {
      if (buffer_ != nullptr) checked_cuda(cuda().release(std::exchange(buffer_, nullptr)), "cudaFree");
      room_ = 0;
      checked_cuda(cuda().allocate(&buffer_, bytes), "cudaMalloc");
      room_ = bytes;
    }
    return buffer_;
  }
  // Copies come before a collective operation or after its end: none waits behind one that may never end.
  void upload(const tensor::Tensor& tensor, void* place) const {
    if (!tensor.is_cpu()) {
      checked_cuda(cuda().synchronize(), "cudaDeviceSynchronize");  // what writes the tensor is on another stream
      return;
    }
    checked_cuda(cuda().copy(place, tensor.const_data_ptr(), tensor.nbytes(), abi::host_to_device, stream_),
                 "cudaMemcpyAsync");
  }
  void download(tensor::Tensor& tensor, const void* place, const char* operation, double seconds) {
    if (!tensor.is_cpu()) return;
    checked_cuda(cuda().copy(tensor.mutable_data_ptr(), place, tensor.nbytes(), abi::device_to_host, stream_),
                 "cudaMemcpyAsync");
    wait(operation, seconds);
  }

  void enqueued(int result, const char* operation, double seconds) {
    if (result != abi::success && result != abi::in_progress) {
      const std::string why = nccl().error_text(result);
      (void)abort();
      group_failed(operation, why, seconds);
    }
    wait(operation, seconds);
  }

  // Until NCCL and the stream are done.
  void wait(const char* operation, double seconds) {
    const core::Stopwatch waited;
    auto pause = std::chrono::microseconds(20);
    for (std::string why;;) {
      int state = abi::success;
      const int asked = nccl().async_error(communicator_, &state);
      if (asked != abi::success && asked != abi::in_progress) state = asked;
      if (state == abi::success) {
        const int query = cuda().query_stream(stream_);
        if (query == abi::success) return;
        if (query != abi::not_ready) why = cuda().error_text(query);
      } else if (state != abi::in_progress) {
        why = nccl().error_text(state);
      }
      if (why.empty() && stopped_) why = "it was given up";
      if (why.empty() && waited.seconds() >= seconds) why = "not done in time";
      if (!why.empty()) {
        (void)abort();
        group_failed(operation, why, seconds);
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(1000));
    }
  }

  // Ends the communicator; false where that itself does not end, and is left to its thread.
  bool abort() noexcept {
    try {
      const auto done = std::make_shared<std::promise<void>>();
      std::thread([library = library_, device = device_, done, communicator = std::exchange(communicator_, nullptr)] {
        (void)library->cuda().set_device(device);
        (void)library->nccl().abort(communicator);
        done->set_value();
      }).detach();
      clean_ = done->get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready;
    } catch (const std::exception&) {  // no thread to be had
      clean_ = false;
    }
    return clean_;
  }

  StatelessGroup meeting_;
  std::shared_ptr<const NcclLibrary> library_;
  int device_ = 0;
  abi::Communicator communicator_ = nullptr;
  abi::Stream stream_ = nullptr;
  void* buffer_ = nullptr;
  std::size_t room_ = 0;  // of the buffer, bytes
  bool clean_ = true;     // the GPU uses nothing of this any more
  std::atomic<bool> stopped_ = false;
};

}  // namespace detail

RLALGO_INLINE std::unique_ptr<ProcessGroup> join_nccl(const Store& store, std::shared_ptr<const NcclLibrary> library,
                                                      int rank, int size, double seconds, int device) {
  try {
    return std::make_unique<detail::NcclGroup>(StatelessGroup(store, rank, size), std::move(library), seconds, device);
  } catch (const core::Error& error) {
    if (error.number() != 4) throw;
    core::raise("distributed", 3, {.what = "not all processes of a group came", .found = error.what()});
  }
}

}  // namespace rlalgo::distributed
