// What is called of NCCL and of the CUDA runtime, as their C interfaces have it; tests/cuda/nccl_headers_test.cpp holds it
// against their headers, where those are.
#pragma once

#include <cstddef>

namespace rlalgo::distributed::abi {

using Communicator = void*;
using Stream = void*;

constexpr std::size_t id_bytes = 128;
struct UniqueId {
  char bytes[id_bytes];
};

// Major · 10,000 + minor · 100 + patch. The first with communicators that do not block.
constexpr int first_version = 21400;

// ncclConfig_t as of that version; later libraries take what it lacks from their defaults.
struct Config {
  std::size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = first_version;
  int blocking = 0;
};

constexpr int success = 0;  // of both
constexpr int in_progress = 7;
// ncclResult_t of a connection that failed.
constexpr int system_error = 2;
constexpr int remote_error = 6;
constexpr int not_ready = 600;  // cudaErrorNotReady
constexpr int host_to_device = 1, device_to_host = 2;
constexpr unsigned int non_blocking_stream = 1;
constexpr int add = 0;  // ncclSum

// ncclDataType_t
constexpr int int8 = 0, uint8 = 1, int32 = 2, int64 = 4, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9;

// Within cudaDeviceProp; its size grows with the versions, up to this.
constexpr std::size_t uuid_offset = 256, uuid_bytes = 16, most_property_bytes = 8192;

struct Nccl {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(Communicator*, int size, UniqueId, int rank, Config*) = nullptr;
  int (*async_error)(Communicator, int*) = nullptr;
  int (*finalize)(Communicator) = nullptr;
  int (*destroy)(Communicator) = nullptr;
  int (*abort)(Communicator) = nullptr;
  int (*broadcast)(const void*, void*, std::size_t count, int type, int root, Communicator, Stream) = nullptr;
  int (*all_reduce)(const void*, void*, std::size_t count, int type, int operation, Communicator, Stream) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t count, int type, Communicator, Stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, std::size_t count, int type, int operation, Communicator, Stream) = nullptr;
  int (*send)(const void*, std::size_t count, int type, int peer, Communicator, Stream) = nullptr;
  int (*receive)(void*, std::size_t count, int type, int peer, Communicator, Stream) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(Communicator) = nullptr;
};

struct Cuda {
  int (*device_count)(int*) = nullptr;
  int (*set_device)(int) = nullptr;
  int (*device_properties)(void*, int) = nullptr;
  int (*allocate)(void**, std::size_t) = nullptr;
  int (*release)(void*) = nullptr;
  int (*copy)(void*, const void*, std::size_t, int kind, Stream) = nullptr;
  int (*create_stream)(Stream*, unsigned int flags) = nullptr;
  int (*destroy_stream)(Stream) = nullptr;
  int (*query_stream)(Stream) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

// Calls each(pointer, name) for every function of a table.
template <class F>
void each_function(Nccl& t, const F& each) {
  each(t.get_version, "ncclGetVersion");
  each(t.get_unique_id, "ncclGetUniqueId");
  each(t.init_rank, "ncclCommInitRankConfig");
  each(t.async_error, "ncclCommGetAsyncError");
  each(t.finalize, "ncclCommFinalize");
  each(t.destroy, "ncclCommDestroy");
  each(t.abort, "ncclCommAbort");
  each(t.broadcast, "ncclBroadcast");
  each(t.all_reduce, "ncclAllReduce");
  each(t.all_gather, "ncclAllGather");
  each(t.reduce_scatter, "ncclReduceScatter");
  each(t.send, "ncclSend");
  each(t.receive, "ncclRecv");
  each(t.group_start, "ncclGroupStart");
  each(t.group_end, "ncclGroupEnd");
  each(t.error_text, "ncclGetErrorString");
  each(t.last_error, "ncclGetLastError");
}
template <class F>
void each_function(Cuda& t, const F& each) {
  each(t.device_count, "cudaGetDeviceCount");
  each(t.set_device, "cudaSetDevice");
  each(t.device_properties, "cudaGetDeviceProperties");
  each(t.allocate, "cudaMalloc");
  each(t.release, "cudaFree");
  each(t.copy, "cudaMemcpyAsync");
  each(t.create_stream, "cudaStreamCreateWithFlags");
  each(t.destroy_stream, "cudaStreamDestroy");
  each(t.query_stream, "cudaStreamQuery");
  each(t.error_text, "cudaGetErrorString");
}

}  // namespace rlalgo::distributed::abi
