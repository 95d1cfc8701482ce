// What distributed/nccl_abi.hpp says of NCCL and of the CUDA runtime is what their headers say. Nothing of them is
// called: that this file compiles is the test.
#include <cstddef>
#include <cstdio>
#include <type_traits>

#include <cuda_runtime_api.h>

#include <rlalgo/distributed/nccl_abi.hpp>

namespace abi = rlalgo::distributed::abi;

namespace {

// Handed over in the same way: pointers, integers of one size, structures of one size.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  else if constexpr (std::is_class_v<Ours> || std::is_class_v<Theirs>)
    return std::is_class_v<Ours> && std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs);
  else
    return (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>)&&sizeof(Ours) == sizeof(Theirs);
}

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<same_value<R, S>() && (same_value<A, B>() && ...)> {
};

}  // namespace

#define SAME(table, member, function) \
  static_assert(SameCall<decltype(abi::table::member), decltype(&function)>::value, #function)

using Malloc = cudaError_t (*)(void**, std::size_t);  // of several in C++
static_assert(SameCall<decltype(abi::Cuda::allocate), Malloc>::value);
SAME(Cuda, device_count, cudaGetDeviceCount);
SAME(Cuda, set_device, cudaSetDevice);
SAME(Cuda, device_properties, cudaGetDeviceProperties);
SAME(Cuda, release, cudaFree);
SAME(Cuda, copy, cudaMemcpyAsync);
SAME(Cuda, create_stream, cudaStreamCreateWithFlags);
SAME(Cuda, destroy_stream, cudaStreamDestroy);
SAME(Cuda, query_stream, cudaStreamQuery);
SAME(Cuda, error_text, cudaGetErrorString);
static_assert(cudaSuccess == abi::success && cudaErrorNotReady == abi::not_ready);
static_assert(cudaMemcpyHostToDevice == abi::host_to_device && cudaMemcpyDeviceToHost == abi::device_to_host);
static_assert(cudaStreamNonBlocking == abi::non_blocking_stream);
static_assert(offsetof(cudaDeviceProp, uuid) == abi::uuid_offset && sizeof(cudaUUID_t) == abi::uuid_bytes);
static_assert(sizeof(cudaDeviceProp) <= abi::most_property_bytes);

#if __has_include(<nccl.h>)
#include <nccl.h>

SAME(Nccl, get_version, ncclGetVersion);
SAME(Nccl, get_unique_id, ncclGetUniqueId);
SAME(Nccl, init_rank, ncclCommInitRankConfig);
SAME(Nccl, async_error, ncclCommGetAsyncError);
SAME(Nccl, finalize, ncclCommFinalize);
SAME(Nccl, destroy, ncclCommDestroy);
SAME(Nccl, abort, ncclCommAbort);
SAME(Nccl, broadcast, ncclBroadcast);
SAME(Nccl, all_reduce, ncclAllReduce);
SAME(Nccl, send, ncclSend);
SAME(Nccl, receive, ncclRecv);
SAME(Nccl, group_start, ncclGroupStart);
SAME(Nccl, group_end, ncclGroupEnd);
SAME(Nccl, error_text, ncclGetErrorString);
SAME(Nccl, last_error, ncclGetLastError);
static_assert(NCCL_UNIQUE_ID_BYTES == abi::id_bytes && sizeof(ncclUniqueId) == sizeof(abi::UniqueId));
static_assert(ncclSuccess == abi::success && ncclInProgress == abi::in_progress && ncclSum == abi::add);
static_assert(ncclInt8 == abi::int8 && ncclUint8 == abi::uint8 && ncclInt32 == abi::int32 && ncclInt64 == abi::int64);
static_assert(ncclFloat16 == abi::float16 && ncclFloat32 == abi::float32 && ncclFloat64 == abi::float64);
static_assert(ncclBfloat16 == abi::bfloat16);
static_assert(offsetof(ncclConfig_t, size) == offsetof(abi::Config, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(abi::Config, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(abi::Config, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(abi::Config, blocking));
static_assert(NCCL_VERSION_CODE >= abi::first_version && NCCL_VERSION(2, 14, 0) == abi::first_version);
constexpr const char* held_against = "NCCL and CUDA";
#else
constexpr const char* held_against = "CUDA; there is no nccl.h here";
#endif

int main() {
#if __has_include(<nccl.h>)
  constexpr ncclConfig_t usual = NCCL_CONFIG_INITIALIZER;
  if (usual.magic != abi::Config().magic) {
    std::printf("FAIL nccl: another magic number\n");
    return 1;
  }
#endif
  std::printf("ok nccl_headers: %s\n", held_against);
}
