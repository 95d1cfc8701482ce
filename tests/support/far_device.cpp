#include "far_device.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace rlalgo::support::far {

namespace {

constexpr auto type = c10::DeviceType::PrivateUse1;

struct State {
  struct Region {
    std::size_t bytes = 0;
    int open = 0;              // copies and kernels that are under way
    c10::StreamId stream = 0;  // that it was taken on
  };
  std::mutex mutex;
  std::map<void*, Region> regions;
  int kernels = 0;  // that are under way, on any thread
  Counts counts;
  std::atomic<bool> fail{false}, broken{false};
  std::size_t memory = 0, held = 0, peak = 0;  // bytes: that it says it has, taken, at most
  std::size_t counted_peak = 0;                // as LibTorch's statistics have it
  std::optional<Graph> graph;                  // that is recorded
  bool replays = false;
};
State& state() {
  static State* const one = new State;  // outlives the tensors of static objects
  return *one;
}

// As a GPU after a kernel has read an address that is not there: every call says so.
void check_alive() { TORCH_CHECK(!state().broken, "CUDA error: an illegal memory access was encountered"); }

thread_local bool in_fallback = false;  // its copies are not the program's

// What ends once, at a time.
class Point {
 public:
  using Clock = std::chrono::steady_clock;
  void pass() {
    const std::lock_guard lock(mutex_);
    at_ = Clock::now();
    passed_ = true;
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_; });
  }
  bool passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }
  Clock::time_point at() {
    const std::lock_guard lock(mutex_);
    return at_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool passed_ = false;
  Clock::time_point at_;
};
using Points = std::vector<std::shared_ptr<Point>>;

// Of a CUDA runtime; stream 0 is the device's own.
struct Streams {
  int (*create)(void**, unsigned int) = nullptr;
  int (*call)(void*, void (*)(void*), void*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  std::mutex mutex;
  std::vector<void*> made;
  Points before;  // what stream 0 does next
  std::atomic<bool> any_before{false};

  void* handle(c10::StreamId id) {
    const std::lock_guard lock(mutex);
    return id == 0 ? nullptr : made.at(static_cast<std::size_t>(id) - 1);
  }
  void give(c10::StreamId id, std::function<void()> task) {
    auto* const held = new std::function<void()>(std::move(task));
    call(
        handle(id),
        [](void* given) {
          const std::unique_ptr<std::function<void()>> task(static_cast<std::function<void()>*>(given));
          (*task)();
        },
        held);
  }
  void finish(c10::StreamId id) {
    if (id != 0) {
      (void)synchronize(handle(id));
      return;
    }
    if (!any_before) return;
    Points all;
    {
      const std::lock_guard lock(mutex);
      all = before;
    }
    for (const auto& one : all) one->wait();
    const std::lock_guard lock(mutex);
    std::erase_if(before, [](const auto& one) { return one->passed(); });
    any_before = !before.empty();
  }
};
Streams& streams() {
  static Streams* const one = new Streams;
  return *one;
}
thread_local c10::StreamId stream_here = 0;

// What the thread's stream was given comes before what follows.
void in_order() {
  if (!in_fallback) streams().finish(stream_here);
}

// Memory that was given back, until its stream has done what it was given before.
struct Left {
  void* memory = nullptr;
  Points points;
};
void give_up(std::vector<Left>& left) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  std::erase_if(left, [&](const Left& one) {
    if (std::any_of(one.points.begin(), one.points.end(), [](const auto& p) { return !p->passed(); })) return false;
    const auto region = s.regions.find(one.memory);
    ::munmap(one.memory, region->second.bytes);
    s.regions.erase(region);
    return true;
  });
}

void release(void* memory) {
  if (memory == nullptr) return;
  static std::mutex* const mutex = new std::mutex;
  static auto* const left = new std::vector<Left>;
  c10::StreamId stream = 0;
  {
    const std::lock_guard lock(state().mutex);
    const auto& region = state().regions.at(memory);
    state().held -= region.bytes;
    stream = region.stream;
  }
  Left one{memory, {}};
  if (stream != 0) {
    one.points.push_back(std::make_shared<Point>());
    streams().give(stream, [point = one.points.front()] { point->pass(); });
  } else if (streams().any_before) {
    const std::lock_guard lock(streams().mutex);
    one.points = streams().before;
  }
  const std::lock_guard lock(*mutex);
  left->push_back(std::move(one));
  give_up(*left);
}

class Memory final : public c10::DeviceAllocator {
 public:
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {
    const std::lock_guard lock(state().mutex);
    ++state().counts.given_back;
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    const std::lock_guard lock(state().mutex);
    c10::CachingDeviceAllocator::DeviceStats out;
    for (auto* const one : {&out.allocated_bytes, &out.active_bytes, &out.reserved_bytes}) {
      (*one)[0].current = static_cast<std::int64_t>(state().held);
      (*one)[0].peak = static_cast<std::int64_t>(state().counted_peak);
    }
    return out;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {
    const std::lock_guard lock(state().mutex);
    state().counted_peak = state().held;
  }
  std::pair<std::size_t, std::size_t> getMemoryInfo(c10::DeviceIndex) override {
    const std::lock_guard lock(state().mutex);
    const State& s = state();
    return {s.memory - std::min(s.memory, s.held), s.memory};
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    constexpr std::size_t page = 4096;
    void* memory = nullptr;
    if (bytes > 0) {
      check_alive();
      TORCH_CHECK(!state().graph, "memory is taken while a graph is recorded");
      if (state().fail.exchange(false))
        C10_THROW_ERROR(OutOfMemoryError, "FAR out of memory. Tried to allocate " + std::to_string(bytes) + " bytes");
      const std::size_t size = (bytes + page - 1) / page * page;
      const std::lock_guard lock(state().mutex);
      const int open = state().kernels;
      memory = ::mmap(nullptr, size, open > 0 ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      TORCH_CHECK(memory != MAP_FAILED, "no memory for the far device");
      state().regions[memory] = {size, open, stream_here};
      state().held += size;
      state().peak = std::max(state().peak, state().held);
      state().counted_peak = std::max(state().counted_peak, state().held);
      if (!in_fallback) ++state().counts.allocations;
    }
    return {memory, memory, &release, c10::Device(type, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "the far device clones by copy");
  }
};
Memory& memory() {
  static Memory one;
  return one;
}

// Lets the host reach a tensor's memory for the time of a copy.
class Opened {
 public:
  explicit Opened(const at::Tensor& tensor) {
    void* const data = tensor.storage().mutable_data();
    if (!tensor.is_privateuseone() || data == nullptr) return;
    const std::lock_guard lock(state().mutex);
    auto found = state().regions.upper_bound(
        data);  // behind the one that it lies in: shards place tensors within others' memory
    TORCH_CHECK(found-- != state().regions.begin(), "no memory of the far device");
    auto& region = found->second;
    data_ = found->first;
    TORCH_CHECK(data < static_cast<char*>(data_) + region.bytes, "no memory of the far device");
    if (region.open++ == 0) ::mprotect(data_, region.bytes, PROT_READ | PROT_WRITE);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (data_ == nullptr) return;
    const std::lock_guard lock(state().mutex);
    auto& region = state().regions.at(data_);
    if (--region.open == 0) ::mprotect(data_, region.bytes, PROT_NONE);
  }

 private:
  void* data_ = nullptr;
};

// The same memory as a tensor of the CPU, while it is opened.
at::Tensor on_host(const at::Tensor& tensor) {
  auto* const data = static_cast<char*>(tensor.storage().mutable_data());
  return at::from_blob(
      data == nullptr ? nullptr : data + tensor.storage_offset() * static_cast<std::int64_t>(tensor.itemsize()),
      tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.scalar_type()));
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  check_alive();
  if (!in_fallback && state().graph) {
    TORCH_CHECK(from.is_privateuseone() && to.is_privateuseone(),
                "the host is copied from or to while a graph is recorded");
    state().graph->nodes.emplace_back([from, to] { copy_from(from, to, false); });
    return to;
  }
  if (!in_fallback && !state().replays) {
    const std::lock_guard lock(state().mutex);
    Counts& c = state().counts;
    const auto bytes = static_cast<std::int64_t>(from.nbytes());
    if (!from.is_privateuseone())
      ++c.copies_in, c.bytes_in += bytes;
    else if (!to.is_privateuseone())
      ++c.copies_out, c.bytes_out += bytes;
    else
      ++c.operators, ++c.by_name["aten::copy_"];
  }
  in_order();
  at::Tensor source = from, target = to;
  if (from.is_privateuseone()) {
    const Opened open(from);
    source = on_host(from).clone();
  }
  const Opened open(to);
  if (to.is_privateuseone()) target = on_host(to);
  target.copy_(source);
  return to;
}

at::Tensor empty(c10::IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, &memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef sizes, c10::IntArrayRef strides, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(
      sizes, strides, &memory(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

const at::Tensor& resize_memory(const at::Tensor& tensor, c10::IntArrayRef sizes, std::optional<at::MemoryFormat>) {
  const std::size_t bytes = static_cast<std::size_t>(c10::multiply_integers(sizes)) * tensor.itemsize();
  if (bytes > tensor.storage().nbytes()) {
    auto* const storage = tensor.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(memory().allocate(bytes));
    storage->set_nbytes(bytes);
  }
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) resize_memory(to, from.sizes(), std::nullopt);
  return copy_from(from, to, false);
}

at::Tensor& set_storage(at::Tensor& tensor, c10::Storage storage, std::int64_t offset, c10::IntArrayRef sizes,
                        c10::IntArrayRef strides) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  impl->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Scalar item(const at::Tensor& tensor) {
  {
    const std::lock_guard lock(state().mutex);
    ++state().counts.scalars;
  }
  return tensor.to(at::kCPU).item();
}

// What an operator that writes to its arguments returns: those.
void record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const torch::jit::Stack inputs(stack->end() - static_cast<std::ptrdiff_t>(schema.arguments().size()), stack->end());
  torch::jit::Stack results;
  for (const c10::Argument& result : schema.returns()) {
    for (std::size_t i = 0; i < inputs.size() && result.alias_info() != nullptr; ++i)
      if (const c10::AliasInfo* const info = schema.arguments()[i].alias_info();
          info != nullptr && info->beforeSets() == result.alias_info()->beforeSets()) {
        results.push_back(inputs[i]);
        break;
      }
  }
  TORCH_CHECK(results.size() == schema.returns().size(), c10::toString(op.operator_name()),
              " gives new memory while a graph is recorded");
  state().graph->nodes.emplace_back([op, inputs] {
    torch::jit::Stack again = inputs;
    const bool before = std::exchange(in_fallback, true);
    at::native::cpu_fallback(op, &again);
    in_fallback = before;
  });
  torch::jit::drop(*stack, inputs.size());
  stack->insert(stack->end(), results.begin(), results.end());
}

// What CUDA refuses and the CPU, which computes here, would take: tensors of the host among those of the device (single numbers may be,
// and indices), products of whole numbers. And what costs it the memory of all that is written to: rows put into a tensor that is not
// contiguous, which LibTorch's deterministic forms copy, and copy back.
void check_as_a_gpu(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::size_t count = op.schema().arguments().size();
  std::vector<at::Tensor> tensors;
  for (auto at = stack.end() - static_cast<std::ptrdiff_t>(count); at != stack.end(); ++at) {
    if (at->isTensor()) tensors.push_back(at->toTensor());
    if (at->isTensorList())
      for (const at::Tensor& one : at->toTensorVector()) tensors.push_back(one);
  }
  const std::string name = op.schema().name();
  const bool product = name == "aten::mm" || name == "aten::addmm" || name == "aten::bmm" || name == "aten::baddbmm" ||
                       name == "aten::addmm_" || name == "aten::baddbmm_";
  const bool puts = name == "aten::index_put_" || name == "aten::index_copy_" || name == "aten::index_add_" ||
                    name == "aten::scatter_add_" || name == "aten::scatter_";
  TORCH_CHECK(!puts || tensors.front().is_contiguous(), c10::toString(op.operator_name()),
              ": copies all of a destination that is not contiguous, ", tensors.front().sizes());
  for (const at::Tensor& one : tensors) {
    if (!one.defined()) continue;
    TORCH_CHECK(one.is_privateuseone() || one.dim() == 0, c10::toString(op.operator_name()), ": a tensor of the host, ",
                one.sizes(), ", among those of the device");
    TORCH_CHECK(!product || one.is_floating_point(), c10::toString(op.operator_name()), ": no product on a GPU in ",
                c10::toString(one.scalar_type()));
  }
}

// The lock is held.
void count_product(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string name = op.schema().name();
  const bool adds = name == "aten::addmm" || name == "aten::addmm_";
  if (!adds && name != "aten::mm") return;
  const auto first = stack.end() - static_cast<std::ptrdiff_t>(op.schema().arguments().size()) + (adds ? 1 : 0);
  state().counts.rows[(first + 1)->toTensor().size(1)] += first->toTensor().size(0);
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_alive();
  if (!in_fallback) check_as_a_gpu(op, *stack);
  if (state().graph) return record(op, stack);
  if (!state().replays) {
    const std::lock_guard lock(state().mutex);
    ++state().counts.operators;
    ++state().counts.by_name[c10::toString(op.operator_name())];
    count_product(op, *stack);
  }
  in_order();
  struct Inside {
    bool before = std::exchange(in_fallback, true);
    ~Inside() { in_fallback = before; }
  } inside;
  at::native::cpu_fallback(op, stack);
}

// Products of bfloat16 and float16 into float32, which CUDA has and the CPU has not.
at::Tensor& product_into_wider(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, at::ScalarType wide,
                               const at::Scalar& beta, const at::Scalar& alpha, at::Tensor& out) {
  for (const at::Tensor* one : {&sum, &a, &b, static_cast<const at::Tensor*>(&out)})
    TORCH_CHECK(one->is_privateuseone(), "a product's tensor of the host, ", one->sizes());
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && wide == at::kFloat && out.scalar_type() == wide &&
                  (a.scalar_type() == at::kBFloat16 || a.scalar_type() == at::kHalf) &&
                  (sum.scalar_type() == wide || sum.scalar_type() == a.scalar_type()),
              "no such product on a GPU: ", c10::toString(a.scalar_type()), " and ", c10::toString(b.scalar_type()),
              " into ", c10::toString(out.scalar_type()));
  TORCH_CHECK(!state().graph, "this product is not recorded");
  {
    const std::lock_guard lock(state().mutex);
    ++state().counts.operators;
    ++state().counts.by_name[a.dim() == 2 ? "aten::addmm.dtype_out" : "aten::baddbmm.dtype_out"];
    if (a.dim() == 2) state().counts.rows[b.size(1)] += a.size(0);
  }
  in_order();
  const bool before = std::exchange(in_fallback, true);
  const auto near = [](const at::Tensor& x) { return x.to(at::kCPU).to(at::kFloat); };
  const bool adds = beta.toDouble() != 0.0;  // else what lies there does not count
  const at::Tensor product = at::matmul(near(a), near(b)).mul_(alpha);
  out.copy_(adds ? product.add_(near(sum), beta) : product);
  in_fallback = before;
  return out;
}

// What a stream has come to.
struct Event {
  Points points;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static c10::Stream stream_of(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(far::type, 0), id);
  }
  static Points& points_of(void* event) { return static_cast<Event*>(event)->points; }
  static void count_wait() {
    const std::lock_guard lock(state().mutex);
    ++state().counts.waits;
  }
  c10::DeviceType type() const override { return far::type; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  c10::Device getDevice() const override { return {far::type, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream_of(stream_here); }
  c10::Stream getDefaultStream(c10::Device) const override { return stream_of(0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(std::exchange(stream_here, stream.id()));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    Streams& s = streams();
    TORCH_CHECK(s.create != nullptr, "the far device has one stream");
    void* made = nullptr;
    (void)s.create(&made, 0);
    const std::lock_guard lock(s.mutex);
    s.made.push_back(made);
    return stream_of(static_cast<c10::StreamId>(s.made.size()));
  }
  void* getStreamNativeHandle(c10::Stream stream) const override { return streams().handle(stream.id()); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void synchronizeStream(const c10::Stream& stream) const override {
    count_wait();
    streams().finish(stream.id());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void record(void** event, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    const auto point = std::make_shared<Point>();
    if (stream.id() != 0) {
      streams().give(stream.id(), [point] { point->pass(); });
      points_of(*event) = {point};
      return;
    }
    point->pass();
    const std::lock_guard lock(streams().mutex);
    points_of(*event) = streams().before;
    points_of(*event).push_back(point);
  }
  void block(void* event, const c10::Stream& stream) const override {
    Streams& s = streams();
    for (const auto& point : points_of(event)) {
      if (point->passed()) continue;
      if (stream.id() != 0) {
        s.give(stream.id(), [point] { point->wait(); });
        continue;
      }
      const std::lock_guard lock(s.mutex);
      s.before.push_back(point);
      s.any_before = true;
    }
  }
  void synchronizeEvent(void* event) const override {
    count_wait();
    for (const auto& point : points_of(event)) point->wait();
  }
  bool queryEvent(void* event) const override {
    return std::all_of(points_of(event).begin(), points_of(event).end(), [](const auto& one) { return one->passed(); });
  }
  double elapsedTime(void* first, void* last, c10::DeviceIndex) const override {
    return std::chrono::duration<double, std::milli>(points_of(last).back()->at() - points_of(first).back()->at())
        .count();
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
};

}  // namespace

at::Device device() {
  static const bool registered = [] {
    static Hooks hooks;
    c10::register_privateuse1_backend("far");
    at::RegisterPrivateUse1HooksInterface(&hooks);
    c10::SetAllocator(type, &memory());
    return true;
  }();
  (void)registered;
  return {type, 0};
}

Counts counts() {
  const std::lock_guard lock(state().mutex);
  return state().counts;
}

Counts Counts::since(const Counts& before) const {
  Counts out = *this;
  out.operators -= before.operators;
  out.copies_in -= before.copies_in;
  out.copies_out -= before.copies_out;
  out.scalars -= before.scalars;
  out.allocations -= before.allocations;
  out.given_back -= before.given_back;
  out.waits -= before.waits;
  out.kernels -= before.kernels;
  out.replays -= before.replays;
  out.nodes -= before.nodes;
  out.bytes_in -= before.bytes_in;
  out.bytes_out -= before.bytes_out;
  for (const auto& [columns, count] : before.rows)
    if ((out.rows[columns] -= count) == 0) out.rows.erase(columns);
  for (const auto& [name, count] : before.by_name)
    if ((out.by_name[name] -= count) == 0) out.by_name.erase(name);
  return out;
}

void set_memory(std::size_t bytes) { state().memory = bytes; }
std::size_t held_bytes() {
  const std::lock_guard lock(state().mutex);
  return state().held;
}
std::size_t peak_bytes() {
  const std::lock_guard lock(state().mutex);
  return state().peak;
}
void reset_peak() {
  const std::lock_guard lock(state().mutex);
  state().peak = state().held;
}

void fail_allocation() { state().fail = true; }
void set_broken(bool broken) { state().broken = broken; }
bool broken() { return state().broken; }

void reach(const std::function<void()>& f) {
  State& s = state();
  const auto protect = [&](int change, int protection) {
    const std::lock_guard lock(s.mutex);
    s.kernels += change;
    for (auto& [memory, region] : s.regions) {
      const int before = std::exchange(region.open, region.open + change);
      if (before == 0 || region.open == 0) ::mprotect(memory, region.bytes, protection);
    }
  };
  protect(1, PROT_READ | PROT_WRITE);
  f();
  protect(-1, PROT_NONE);
}

void run_kernel(const std::function<void()>& f) {
  State& s = state();
  if (s.graph) {
    s.graph->nodes.emplace_back([f] { run_kernel(f); });
    return;
  }
  in_order();
  reach(f);
}

void use_streams(void* library) {
  Streams& s = streams();
  s.call = reinterpret_cast<decltype(s.call)>(::dlsym(library, "cudaLaunchHostFunc"));
  s.synchronize = reinterpret_cast<decltype(s.synchronize)>(::dlsym(library, "cudaStreamSynchronize"));
  s.create = reinterpret_cast<decltype(s.create)>(::dlsym(library, "cudaStreamCreateWithFlags"));
}

void count_kernels(std::int64_t launches) {
  if (!state().replays) state().counts.kernels += launches;
}

void begin_graph() { state().graph.emplace(); }
Graph end_graph() { return std::move(*std::exchange(state().graph, std::nullopt)); }
void replay(const Graph& graph) {
  State& s = state();
  ++s.counts.replays;
  s.counts.nodes += static_cast<std::int64_t>(graph.nodes.size());
  s.replays = true;
  for (const auto& node : graph.nodes) node();
  s.replays = false;
}

}  // namespace rlalgo::support::far

C10_REGISTER_GUARD_IMPL(PrivateUse1, rlalgo::support::far::Guard)

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&rlalgo::support::far::fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  namespace far = rlalgo::support::far;
  library.impl("empty.memory_format", TORCH_FN(far::empty));
  library.impl("empty_strided", TORCH_FN(far::empty_strided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("resize_", TORCH_FN(far::resize_memory));
  library.impl("_copy_from", TORCH_FN(far::copy_from));
  library.impl("_copy_from_and_resize", TORCH_FN(far::copy_from_and_resize));
  library.impl("addmm.dtype_out", TORCH_FN(far::product_into_wider));
  library.impl("baddbmm.dtype_out", TORCH_FN(far::product_into_wider));
  library.impl("_local_scalar_dense", TORCH_FN(far::item));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(far::set_storage));
}
