// Stands for CUDA's runtime library under LibTorch's own CUDA half, where there is no GPU: what LibTorch does on the host runs as it would,
// and what it launches computes nothing. So it shows what a program asks of CUDA, and what CUDA would refuse: memory that is not there, a
// copy or a wait while a stream is recorded, a launch for another device or of an impossible size, a host that reads the device's memory
// (which ends the program). tests/cli/cuda_host_test.py compiles it and stubs for the other libraries, and starts the program on them.
//
// RLALGO_FAKE_CUDA_GPUS    how many there are, 1
// RLALGO_FAKE_CUDA_CALLS   a file for one line each: `refused WHY`, `wait`, `copy in|out pinned|pageable`, `memory BYTES`, `kernel NAME`
#include <cuda_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace {

constexpr std::size_t total = 80'000'000'000, page = 4096;

struct Region {
  std::size_t bytes = 0;
  char* there = nullptr;  // where this library reaches it; the program cannot
};
struct Recording {
  std::thread::id thread;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool spoilt = false;
};
struct State {
  std::recursive_mutex mutex;
  std::map<std::uintptr_t, Region> device;
  std::map<std::uintptr_t, std::size_t> pinned;
  std::map<const void*, std::string> kernels;  // by their functions on the host
  std::set<const void*> launched;
  std::map<cudaStream_t, Recording> recorded;
  std::map<cudaStream_t, int> devices;  // of streams
  std::size_t used = 0;
  std::FILE* calls = nullptr;
  int gpus = 1;
};
State& state() {
  static State* const one = [] {
    auto* const made = new State;
    if (const char* const file = std::getenv("RLALGO_FAKE_CUDA_CALLS")) made->calls = std::fopen(file, "w");
    if (const char* const gpus = std::getenv("RLALGO_FAKE_CUDA_GPUS")) made->gpus = std::atoi(gpus);
    return made;
  }();
  return *one;
}
thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;
thread_local cudaStreamCaptureMode own_mode = cudaStreamCaptureModeGlobal;

void say(const std::string& line) {
  if (state().calls == nullptr) return;
  std::fputs((line + "\n").c_str(), state().calls);
  std::fflush(state().calls);
}
cudaError_t refuse(cudaError_t error, const std::string& why) {
  say("refused " + why);
  return last = error;
}
// What CUDA refuses while a stream is recorded: to the thread that records, and to all where the recording is a global one.
cudaError_t unless_recording(const char* call) {
  for (auto& [stream, recording] : state().recorded) {
    const bool own = recording.thread == std::this_thread::get_id();
    if (recording.mode == cudaStreamCaptureModeRelaxed || own_mode == cudaStreamCaptureModeRelaxed) continue;
    if (!own && recording.mode != cudaStreamCaptureModeGlobal) continue;
    recording.spoilt = true;
    return refuse(cudaErrorStreamCaptureUnsupported, std::string(call) + " while a stream is recorded");
  }
  return cudaSuccess;
}
bool is_recorded(cudaStream_t stream) { return state().recorded.count(stream) > 0; }

template <class Map>
auto found(Map& map, const void* address) {
  auto next = map.upper_bound(reinterpret_cast<std::uintptr_t>(address));
  return next == map.begin() ? map.end() : --next;
}
const std::pair<const std::uintptr_t, Region>* region_of(const void* address) {
  const auto at = found(state().device, address);
  if (at == state().device.end() || reinterpret_cast<std::uintptr_t>(address) >= at->first + at->second.bytes)
    return nullptr;
  return &*at;
}
bool is_pinned(const void* address) {
  const auto at = found(state().pinned, address);
  return at != state().pinned.end() && reinterpret_cast<std::uintptr_t>(address) < at->first + at->second;
}
char* reached(const void* address, std::size_t bytes) {
  const auto* const region = region_of(address);
  if (region == nullptr) return static_cast<char*>(const_cast<void*>(address));
  const std::size_t at = reinterpret_cast<std::uintptr_t>(address) - region->first;
  if (at + bytes > region->second.bytes) std::abort();
  return region->second.there + at;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream, bool waits) {
  const bool to_device = region_of(to) != nullptr, from_device = region_of(from) != nullptr;
  if (to_device != from_device) {
    const bool pinned = is_pinned(to_device ? from : to);
    say(std::string("copy ") + (to_device ? "in " : "out ") + (pinned ? "pinned" : "pageable"));
    if (!waits && is_recorded(stream) && !pinned) {
      state().recorded[stream].spoilt = true;
      return refuse(cudaErrorStreamCaptureUnsupported,
                    "a copy of memory that is not pinned while a stream is recorded");
    }
  }
  if (!is_recorded(stream)) std::memmove(reached(to, bytes), reached(from, bytes), bytes);
  return cudaSuccess;
}
void fill(void* memory, int value, std::size_t bytes) {
  const auto* const region = region_of(memory);
  char* const to = reached(memory, bytes);
  if (region == nullptr || value != 0 || bytes < 64 * page) {
    std::memset(to, value, bytes);
    return;
  }
  // Zeros of whole pages are given back, so that memory of a card's size can be.
  char* const first = region->second.there + (to - region->second.there + page - 1) / page * page;
  char* const end = region->second.there + (to + bytes - region->second.there) / page * page;
  std::memset(to, 0, first - to);
  ::madvise(first, end - first, MADV_REMOVE);
  std::memset(end, 0, to + bytes - end);
}

cudaError_t launch(const void* function, dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  State& s = state();
  const std::string& name = s.kernels[function];
  if (s.launched.insert(function).second) say("kernel " + name);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || grid.x > 2147483647U ||
      block.x == 0 || block.x * block.y * block.z > 1024 || shared > 232448)
    return refuse(cudaErrorInvalidConfiguration, "the grid of " + name);
  if (const auto at = s.devices.find(stream); at != s.devices.end() && at->second != current)
    return refuse(cudaErrorInvalidResourceHandle, "a stream of another device for " + name);
  return cudaSuccess;
}

struct Event {
  bool of_recording = false;
};

}  // namespace

extern "C" {

// For the stubs of other libraries.
void fake_cuda_say(const char* line) {
  const std::lock_guard lock(state().mutex);
  say(line);
}

cudaError_t cudaMalloc(void** out, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaMalloc")) return error;
  const std::size_t size = (bytes + page - 1) / page * page;
  if (state().used + size > total) return last = cudaErrorMemoryAllocation;
  const int file = ::memfd_create("cuda", 0);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(size)) != 0) std::abort();
  *out = ::mmap(nullptr, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  void* const there = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  ::close(file);
  if (*out == MAP_FAILED || there == MAP_FAILED) std::abort();
  state().device[reinterpret_cast<std::uintptr_t>(*out)] = {size, static_cast<char*>(there)};
  state().used += size;
  say("memory " + std::to_string(bytes));
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  const std::lock_guard lock(state().mutex);
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t error = unless_recording("cudaFree")) return error;
  const auto at = state().device.find(reinterpret_cast<std::uintptr_t>(memory));
  if (at == state().device.end()) return refuse(cudaErrorInvalidValue, "cudaFree");
  ::munmap(memory, at->second.bytes);
  ::munmap(at->second.there, at->second.bytes);
  state().used -= at->second.bytes;
  state().device.erase(at);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** out, std::size_t bytes, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaHostAlloc")) return error;
  *out = std::aligned_alloc(page, (bytes + page - 1) / page * page);
  state().pinned[reinterpret_cast<std::uintptr_t>(*out)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaFreeHost")) return error;
  state().pinned.erase(reinterpret_cast<std::uintptr_t>(memory));
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* all) {
  const std::lock_guard lock(state().mutex);
  *free = total - state().used;
  *all = total;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* memory) {
  const std::lock_guard lock(state().mutex);
  *out = {};
  out->type = region_of(memory) != nullptr ? cudaMemoryTypeDevice
              : is_pinned(memory)          ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaMemcpy")) return error;
  say("wait");
  return copy(to, from, bytes, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  return copy(to, from, bytes, stream, false);
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  const std::lock_guard lock(state().mutex);
  fill(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  if (!is_recorded(stream)) fill(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* out) {
  *out = current;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device >= state().gpus) return refuse(cudaErrorInvalidDevice, "cudaSetDevice");
  current = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* out) {
  *out = state().gpus;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* out) {
  *out = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* out) {
  *out = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* out, int, int) {
  *out = 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = 0;
  *most = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* out, int size, int device) {
  std::snprintf(out, static_cast<std::size_t>(size), "0000:0%d:00.0", device);
  return cudaSuccess;
}
// A card of capability 9.0.
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {};
  std::strcpy(out->name, "a GPU");
  out->totalGlobalMem = total;
  out->sharedMemPerBlock = 49152;
  out->sharedMemPerBlockOptin = 232448;
  out->sharedMemPerMultiprocessor = 233472;
  out->regsPerBlock = out->regsPerMultiprocessor = 65536;
  out->warpSize = 32;
  out->maxThreadsPerBlock = out->maxThreadsDim[0] = out->maxThreadsDim[1] = 1024;
  out->maxThreadsDim[2] = 64;
  out->maxGridSize[0] = 2147483647;
  out->maxGridSize[1] = out->maxGridSize[2] = 65535;
  out->major = 9;
  out->multiProcessorCount = 132;
  out->maxThreadsPerMultiProcessor = 2048;
  out->maxBlocksPerMultiProcessor = 32;
  out->l2CacheSize = 50 << 20;
  out->unifiedAddressing = out->canMapHostMemory = out->concurrentKernels = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* out, cudaDeviceAttr which, int) {
  cudaDeviceProp card{};
  (void)cudaGetDeviceProperties(&card, 0);
  switch (which) {
    case cudaDevAttrComputeCapabilityMajor:
      *out = card.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *out = card.minor;
      break;
    case cudaDevAttrMultiProcessorCount:
      *out = card.multiProcessorCount;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *out = static_cast<int>(card.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *out = static_cast<int>(card.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *out = static_cast<int>(card.sharedMemPerMultiprocessor);
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *out = card.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *out = card.maxThreadsPerBlock;
      break;
    case cudaDevAttrWarpSize:
      *out = card.warpSize;
      break;
    case cudaDevAttrMaxGridDimX:
      *out = card.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *out = card.maxGridSize[1];
      break;
    default:
      *out = 1;
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaStreamCreate")) return error;
  *out = static_cast<cudaStream_t>(std::malloc(1));
  state().devices[*out] = current;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  const std::lock_guard lock(state().mutex);
  if (const cudaError_t error = unless_recording("cudaStreamSynchronize")) return error;
  say("wait");
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaStreamQuery(cudaStream_t) {
  const std::lock_guard lock(state().mutex);
  return unless_recording("cudaStreamQuery");
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(state().mutex);
  if (!is_recorded(stream) || reinterpret_cast<Event*>(event)->of_recording) return cudaSuccess;
  state().recorded[stream].spoilt = true;
  return refuse(cudaErrorStreamCaptureIsolation, "a recorded stream waits for one that is not");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(state().mutex);
  reinterpret_cast<Event*>(event)->of_recording = is_recorded(stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  const std::lock_guard lock(state().mutex);
  return unless_recording("cudaEventQuery");
}
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaStreamSynchronize(nullptr); }
cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t, cudaEvent_t) {
  *out = 1.0F;
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const std::lock_guard lock(state().mutex);
  if (stream == nullptr) return refuse(cudaErrorStreamCaptureUnsupported, "the stream that all wait for is recorded");
  state().recorded[stream] = {std::this_thread::get_id(), mode};
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  const std::lock_guard lock(state().mutex);
  const auto at = state().recorded.find(stream);
  *out = nullptr;
  if (at == state().recorded.end()) return refuse(cudaErrorIllegalState, "a stream that is not recorded");
  const bool spoilt = at->second.spoilt;
  state().recorded.erase(at);
  if (spoilt) return last = cudaErrorStreamCaptureInvalidated;
  *out = static_cast<cudaGraph_t>(std::malloc(1));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* out) {
  const std::lock_guard lock(state().mutex);
  *out = is_recorded(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* out, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  if (id != nullptr) *id = 1;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return cudaStreamIsCapturing(stream, out);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(own_mode, *mode);
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t) { return "an error"; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "out of memory" : "refused";
}
cudaError_t cudaGetLastError() { return std::exchange(last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last; }

cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** out, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *out = nullptr;
  if (result != nullptr) *result = cudaDriverEntryPointSymbolNotFound;
  return cudaErrorSymbolNotFound;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void*) {
  *out = {};
  out->binaryVersion = out->ptxVersion = 90;
  out->maxThreadsPerBlock = 1024;
  out->numRegs = 32;
  out->maxDynamicSharedSizeBytes = 49152;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* out, const void*, int, std::size_t, unsigned) {
  *out = 2;
  return cudaSuccess;
}
cudaError_t cudaGetSymbolAddress(void** out, const void*) {
  static void* memory = nullptr;
  if (memory == nullptr) (void)cudaMalloc(&memory, page);
  *out = memory;
  return cudaSuccess;
}

// What nvcc's code for the host calls: kernels are made known when a library is loaded, and launched by their functions there.
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, void*, void*, void*, void*,
                            int*) {
  const std::lock_guard lock(state().mutex);
  state().kernels[function] = name;
}
cudaError_t __cudaGetKernel(const void** kernel, const void* function) {
  *kernel = function;
  return cudaSuccess;
}
thread_local struct {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
} configured;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configured = {grid, block, shared, stream};
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = configured.grid;
  *block = configured.block;
  *shared = configured.shared;
  *static_cast<cudaStream_t*>(stream) = configured.stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void**, std::size_t shared,
                               cudaStream_t stream) {
  return launch(kernel, grid, block, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void**) {
  return launch(kernel, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
}

}  // extern "C"
