// libnccl.so.2 and libcudart in one file, for machines without a GPU: what rlalgo and vLLM's pynccl call of them, in host
// memory. Ranks, of one process or several, meet at Unix sockets that the unique id names; what is sent to one rank goes to it,
// what concerns all of them by way of rank 0.
// Built as a module that is loaded as either library.
//
// As in the real ones: operations are queued on a stream and done by its thread; a non-blocking communicator begins in
// the background; sends and receives of a group go on at once; abort ends what waits. Unlike there, operations of different sizes
// are an error of both ranks, a send or a receive outside of a group is an error, and memory that is given back while a
// stream uses it ends the program. Host memory is copied before a copy from it returns, and after the end of one to it.
//
// Faults, from the environment when a function is called: FAKE_NCCL_VERSION (22800), FAKE_CUDA_DEVICES (1), FAKE_CUDA_CARD (LOCAL_RANK; in the UUID),
// FAKE_NCCL_INIT_ERROR (of ncclCommInitRank…, at once), FAKE_NCCL_JOIN_ERROR (the same while a non-blocking communicator
// begins, where the real one finds two ranks on one GPU), FAKE_NCCL_ABORT_SECONDS (that an abort takes),
// FAKE_CUDA_COPY_SECONDS (that a copy to the GPU takes), FAKE_NCCL_FINALIZE_ERROR; FAKE_NCCL_LEFT names a file to which is
// appended how communicators end.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/distributed/nccl_abi.hpp>

namespace {

namespace abi = rlalgo::distributed::abi;
constexpr int invalid_argument = 4, invalid_usage = 5;
using abi::system_error, abi::remote_error;
constexpr int no_device = 100, invalid_value = 1;

// What reaches the GPU's memory goes through it, where a test's device has memory that is closed otherwise.
using Access = void (*)(void (*)(void*), void*);
std::atomic<Access> memory_access = nullptr;

void reach(std::function<void()> f) {
  if (const Access through = memory_access; through != nullptr)
    through([](void* given) { (*static_cast<std::function<void()>*>(given))(); }, &f);
  else
    f();
}
std::vector<char> taken(const void* from, std::size_t bytes) {
  std::vector<char> out(bytes);
  reach([&] { std::memcpy(out.data(), from, bytes); });
  return out;
}
void put(void* to, const void* from, std::size_t bytes) {
  reach([&] { std::memcpy(to, from, bytes); });
}

int number(const char* variable, int otherwise) {
  const char* const set = std::getenv(variable);
  return set != nullptr && *set != '\0' ? std::atoi(set) : otherwise;
}

// One task after the other.
class Queue {
 public:
  Queue() : thread_([this] { loop(); }) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void add(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty(); });
  }

 private:
  void loop() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [&] { return over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      auto task = std::move(tasks_.front());  // its place stays taken until it is done
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool over_ = false;
  std::thread thread_;
};

Queue& queue_of(void* stream) {
  static Queue* const usual = new Queue;  // of the null stream; outlives the program's end
  return stream != nullptr ? *static_cast<Queue*>(stream) : *usual;
}

bool whole(int socket, void* data, std::size_t size, bool out) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t n = out ? ::send(socket, at, size, MSG_NOSIGNAL) : ::recv(socket, at, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

struct Header {
  std::uint64_t bytes = 0;
  std::int32_t kind = 0, root = 0;  // kind 0: broadcast, 1: sum, 2: gather, 3: sum of shards; root: or type
};

// What a rank sends to another one, or gets from it.
struct Transfer {
  int peer = 0;
  bool out = false;
  void* place = nullptr;
  std::size_t bytes = 0;
};

struct Communicator {
  int rank = 0, size = 1;
  std::atomic<int> state = abi::in_progress;
  std::atomic<bool> aborted = false;
  std::mutex mutex;
  int listener = -1;
  std::map<int, int> sockets;  // of rank 0: each other one's; else rank 0's
  std::map<int, int> lines;    // to every other rank, for transfers
  std::vector<std::thread> threads;

  void fail(int error) {
    int expected = abi::in_progress;
    if (!state.compare_exchange_strong(expected, error)) {
      expected = abi::success;
      state.compare_exchange_strong(expected, error);
    }
  }
  int socket_of(int other) {
    const std::lock_guard lock(mutex);
    return sockets.at(other);
  }

  // An abstract name: nothing is left behind.
  static std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
  }

  // Every rank calls those before it, and is called by those behind.
  bool lay_lines(const std::string& name) {
    const auto named = [&](int r) { return address_of(name + "-" + std::to_string(r)); };
    const int own = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    {
      const std::lock_guard lock(mutex);
      called = own;
    }
    const auto [place, length] = named(rank);
    if (::bind(own, reinterpret_cast<const sockaddr*>(&place), length) != 0 || ::listen(own, size) != 0) return false;
    for (int other = 0; other < rank; ++other) {
      const auto [theirs, size_of] = named(other);
      const int line = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      {
        const std::lock_guard lock(mutex);
        lines[other] = line;
      }
      while (::connect(line, reinterpret_cast<const sockaddr*>(&theirs), size_of) != 0) {
        if (aborted) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::int32_t who = rank;
      if (!whole(line, &who, sizeof who, true)) return false;
    }
    for (int i = rank + 1; i < size; ++i) {
      const int line = ::accept(own, nullptr, nullptr);
      std::int32_t who = 0;
      if (line < 0 || !whole(line, &who, sizeof who, false)) return false;
      const std::lock_guard lock(mutex);
      lines[who] = line;
    }
    return true;
  }
  int called = -1;  // the socket of it

  void meet(const std::string& name) {
    auto [address, length] = address_of(name);
    const int own = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    {
      const std::lock_guard lock(mutex);
      listener = own;
    }
    if (rank == 0) {
      if (::bind(own, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(own, size) != 0)
        return fail(system_error);
      for (int i = 1; i < size; ++i) {
        const int peer = ::accept(own, nullptr, nullptr);
        std::int32_t who = 0;
        if (peer < 0 || !whole(peer, &who, sizeof who, false)) return fail(system_error);
        const std::lock_guard lock(mutex);
        sockets[who] = peer;
      }
    } else {
      while (::connect(own, reinterpret_cast<sockaddr*>(&address), length) != 0) {
        if (aborted) return fail(system_error);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      std::int32_t who = rank;
      if (!whole(own, &who, sizeof who, true)) return fail(system_error);
      const std::lock_guard lock(mutex);
      sockets[0] = own;
      listener = -1;
    }
    if (!lay_lines(name)) return fail(system_error);
    int expected = abi::in_progress;
    state.compare_exchange_strong(expected, abi::success);
  }

  // Every rank's header goes to rank 0, which answers whether all are the same.
  bool agreed(const Header& mine) {
    std::int32_t good = 1;
    if (rank != 0) {
      Header copy = mine;
      return whole(socket_of(0), &copy, sizeof copy, true) && whole(socket_of(0), &good, sizeof good, false) &&
             good != 0;
    }
    for (int other = 1; other < size; ++other) {
      Header theirs;
      if (!whole(socket_of(other), &theirs, sizeof theirs, false)) return false;
      if (std::memcmp(&theirs, &mine, sizeof mine) != 0) good = 0;
    }
    for (int other = 1; other < size; ++other)
      if (!whole(socket_of(other), &good, sizeof good, true)) return false;
    return good != 0;
  }

  void broadcast(const void* from, void* to, std::size_t bytes, int root) {
    if (!agreed({.bytes = bytes, .kind = 0, .root = root})) return fail(aborted ? remote_error : invalid_usage);
    std::vector<char> data = rank == root ? taken(from, bytes) : std::vector<char>(bytes);
    bool good = true;
    if (rank == 0) {
      if (root != 0) good = whole(socket_of(root), data.data(), bytes, false);
      for (int other = 1; good && other < size; ++other)
        if (other != root) good = whole(socket_of(other), data.data(), bytes, true);
    } else {
      good = whole(socket_of(0), data.data(), bytes, rank == root);
    }
    if (!good) return fail(remote_error);
    put(to, data.data(), bytes);
  }

  // What rank 0 makes of the bytes of all ranks, [size][bytes]: the same for all, or a part for each.
  using Made = std::function<std::vector<char>(const std::vector<std::vector<char>>& all, int rank)>;
  void together(const Header& header, const void* from, void* to, const Made& made) {
    if (!agreed(header)) return fail(aborted ? remote_error : invalid_usage);
    std::vector<std::vector<char>> all = {taken(from, header.bytes)};
    bool good = true;
    std::vector<char> own;
    std::uint64_t length = 0;
    if (rank == 0) {
      for (int r = 1; good && r < size; ++r) {
        all.emplace_back(header.bytes);
        good = whole(socket_of(r), all.back().data(), header.bytes, false);
      }
      for (int r = size; good && r-- > 0;) {
        own = made(all, r);
        length = own.size();
        if (r > 0)
          good = whole(socket_of(r), &length, sizeof length, true) && whole(socket_of(r), own.data(), length, true);
      }
    } else {
      good = whole(socket_of(0), all.front().data(), header.bytes, true) &&
             whole(socket_of(0), &length, sizeof length, false);
      if (good) own.resize(length);
      good = good && whole(socket_of(0), own.data(), length, false);
    }
    if (!good) return fail(remote_error);
    put(to, own.data(), own.size());
  }

  // In an order of its own: from the last rank to the first.
  template <class T>
  static std::vector<char> total(const std::vector<std::vector<char>>& all) {
    std::vector<char> out = all.back();
    auto* const sum = reinterpret_cast<T*>(out.data());
    for (std::size_t r = all.size() - 1; r-- > 0;)
      for (std::size_t i = 0; i < out.size() / sizeof(T); ++i) sum[i] += reinterpret_cast<const T*>(all[r].data())[i];
    return out;
  }
  static std::vector<char> total(const std::vector<std::vector<char>>& all, int type) {
    return type == abi::float64 ? total<double>(all) : total<float>(all);
  }
  void sum(const void* from, void* to, std::size_t bytes, int type) {
    together({.bytes = bytes, .kind = 1, .root = type}, from, to,
             [&](const auto& all, int) { return total(all, type); });
  }
  void sum_shards(const void* from, void* to, std::size_t bytes, int type) {
    together({.bytes = bytes * static_cast<std::size_t>(size), .kind = 3, .root = type}, from, to,
             [&](const auto& all, int r) {
               const std::vector<char> sums = total(all, type);
               const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(r) * bytes);
               return std::vector<char>(begin, begin + static_cast<std::ptrdiff_t>(bytes));
             });
  }
  void gather(const void* from, void* to, std::size_t bytes) {
    together({.bytes = bytes, .kind = 2, .root = 0}, from, to, [](const auto& all, int) {
      std::vector<char> out;
      for (const auto& one : all) out.insert(out.end(), one.begin(), one.end());
      return out;
    });
  }

  // All at once: nobody waits for a rank that waits for another one's part.
  void transfer(const std::vector<Transfer>& group) {
    std::atomic<int> error = abi::success;
    std::map<std::pair<int, bool>, std::vector<Transfer>> by_line;
    for (const Transfer& one : group) by_line[{one.peer, one.out}].push_back(one);
    std::vector<std::thread> all;
    for (const auto& entry : by_line)
      all.emplace_back([&, &todo = entry.second] {
        for (const Transfer& one : todo) {
          const int line = [&] {
            const std::lock_guard lock(mutex);
            return lines.at(one.peer);
          }();
          std::uint64_t bytes = one.bytes;
          std::vector<char> data = one.out ? taken(one.place, one.bytes) : std::vector<char>(one.bytes);
          bool good = whole(line, &bytes, sizeof bytes, one.out);
          if (good && bytes != one.bytes) error = invalid_usage;
          good = good && bytes == one.bytes && whole(line, data.data(), one.bytes, one.out);
          if (good && !one.out) put(one.place, data.data(), one.bytes);
          if (!good && error == abi::success) error = remote_error;
          if (!good) return;
        }
      });
    for (std::thread& one : all) one.join();
    if (error != abi::success) fail(error);
  }

  void abort() {
    aborted = true;
    const std::lock_guard lock(mutex);
    for (const int one : {listener, called})
      if (one >= 0) ::shutdown(one, SHUT_RDWR);
    for (const auto& side : {sockets, lines})
      for (const auto& [other, socket] : side) ::shutdown(socket, SHUT_RDWR);
  }
  ~Communicator() {
    for (const auto& side : {sockets, lines})
      for (const auto& [other, socket] : side) ::close(socket);
    for (const int one : {listener, called})
      if (one >= 0) ::close(one);
  }
};

using Shared = std::shared_ptr<Communicator>;
Shared& shared(void* communicator) { return *static_cast<Shared*>(communicator); }

std::size_t bytes_of(int type) {
  switch (type) {
    case abi::int8:
    case abi::uint8:
      return 1;
    case abi::float16:
    case abi::bfloat16:
      return 2;
    case abi::int64:
    case abi::float64:
      return 8;
    default:
      return 4;
  }
}

int begin(void** out, int size, const abi::UniqueId& id, int rank, bool blocking) {
  if (const int error = number("FAKE_NCCL_INIT_ERROR", 0); error != 0) return error;
  if (rank < 0 || rank >= size || std::memcmp(id.bytes, "fake-nccl-", 10) != 0) return invalid_argument;
  const Shared communicator = std::make_shared<Communicator>();
  communicator->rank = rank;
  communicator->size = size;
  const std::string name(id.bytes, ::strnlen(id.bytes, sizeof id.bytes));
  *out = new Shared(communicator);
  if (blocking) {
    communicator->meet(name);
    return communicator->state;
  }
  std::thread([communicator, name] {
    if (const int error = number("FAKE_NCCL_JOIN_ERROR", 0); error != 0) return communicator->fail(error);
    communicator->meet(name);
  }).detach();
  return abi::in_progress;
}

// Places in memory of the GPU that are written by what is queued.
struct Uses {
  std::mutex mutex;
  std::multiset<void*> places;
};
Uses& uses() {
  static Uses* const all = new Uses;  // outlives the program's end
  return *all;
}
struct Use {
  explicit Use(void* p) : place(p) {
    const std::lock_guard lock(uses().mutex);
    uses().places.insert(place);
  }
  ~Use() {
    const std::lock_guard lock(uses().mutex);
    uses().places.erase(uses().places.find(place));
  }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  void* const place;
};

int queued(void* communicator, void* stream, void* to, std::function<void(Communicator&)> operation) {
  const Shared one = shared(communicator);
  if (one->state != abi::success) return one->state;
  queue_of(stream).add([one, use = std::make_shared<Use>(to), operation = std::move(operation)] {
    if (one->state == abi::success) operation(*one);
  });
  return abi::success;
}

// The group call that a thread has begun.
struct Group {
  int depth = 0;
  void *communicator = nullptr, *stream = nullptr;
  std::vector<Transfer> transfers;
};
Group& group_here() {
  thread_local Group group;
  return group;
}

int transferred(const Transfer& one, void* communicator, void* stream) {
  Group& group = group_here();
  const Shared of = shared(communicator);
  if (group.depth == 0 || one.peer < 0 || one.peer >= of->size || one.peer == of->rank) return invalid_argument;
  if (of->state != abi::success) return of->state;
  group.communicator = communicator;
  group.stream = stream;
  group.transfers.push_back(one);
  return abi::success;
}

// The end of a communicator: what waits ends, what is queued or begins holds it.
void end(void* communicator) {
  std::this_thread::sleep_for(std::chrono::seconds(number("FAKE_NCCL_ABORT_SECONDS", 0)));
  shared(communicator)->abort();
  delete &shared(communicator);
}

void note_leaving(const char* how) {
  const char* const file = std::getenv("FAKE_NCCL_LEFT");
  if (file == nullptr || *file == '\0') return;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  std::ofstream(file, std::ios::app) << how << '\n';
}

}  // namespace

extern "C" {

void fake_cuda_access_through(Access through) { memory_access = through; }

int ncclGetVersion(int* version) {
  *version = number("FAKE_NCCL_VERSION", 22800);
  return abi::success;
}
int ncclGetUniqueId(abi::UniqueId* id) {
  *id = {};
  std::random_device source;
  std::snprintf(id->bytes, sizeof id->bytes, "fake-nccl-%08x%08x", source(), source());
  return abi::success;
}
int ncclCommInitRank(void** out, int size, abi::UniqueId id, int rank) { return begin(out, size, id, rank, true); }
int ncclCommInitRankConfig(void** out, int size, abi::UniqueId id, int rank, abi::Config* config) {
  if (config->magic != abi::Config().magic || config->size < sizeof(abi::Config)) return invalid_argument;
  return begin(out, size, id, rank, config->blocking != 0);
}
int ncclCommGetAsyncError(void* communicator, int* state) {
  *state = shared(communicator)->state;
  return abi::success;
}
int ncclCommFinalize(void* communicator) {
  note_leaving("finalize");
  const int error = number("FAKE_NCCL_FINALIZE_ERROR", 0);
  if (error != 0) return error;
  const int state = shared(communicator)->state;
  return state == abi::success ? abi::in_progress : state;  // asked again it is done
}
int ncclCommAbort(void* communicator) {
  note_leaving("abort");
  end(communicator);
  return abi::success;
}
int ncclCommDestroy(void* communicator) {
  note_leaving("destroy");
  end(communicator);
  return abi::success;
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root, void* communicator, void* stream) {
  const std::size_t bytes = count * bytes_of(type);
  return queued(communicator, stream, to, [=](Communicator& c) { c.broadcast(from, to, bytes, root); });
}
int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int operation, void* communicator,
                  void* stream) {
  if ((type != abi::float32 && type != abi::float64) || operation != abi::add) return invalid_argument;
  return queued(communicator, stream, to, [=](Communicator& c) { c.sum(from, to, count * bytes_of(type), type); });
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* communicator, void* stream) {
  return queued(communicator, stream, to, [=](Communicator& c) { c.gather(from, to, count * bytes_of(type)); });
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int operation, void* communicator,
                      void* stream) {
  if ((type != abi::float32 && type != abi::float64) || operation != abi::add) return invalid_argument;
  return queued(communicator, stream, to,
                [=](Communicator& c) { c.sum_shards(from, to, count * bytes_of(type), type); });
}
int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return transferred({peer, true, const_cast<void*>(from), count * bytes_of(type)}, communicator, stream);
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return transferred({peer, false, to, count * bytes_of(type)}, communicator, stream);
}
int ncclGroupStart() {
  ++group_here().depth;
  return abi::success;
}
int ncclGroupEnd() {
  Group& group = group_here();
  if (--group.depth > 0 || group.transfers.empty()) return abi::success;
  const Group done = std::exchange(group, Group());
  return queued(done.communicator, done.stream, done.transfers.front().place,
                [transfers = done.transfers](Communicator& c) { c.transfer(transfers); });
}
const char* ncclGetErrorString(int result) {
  switch (result) {
    case abi::success:
      return "no error";
    case system_error:
      return "unhandled system error";
    case invalid_argument:
      return "invalid argument";
    case invalid_usage:
      return "invalid usage";
    case remote_error:
      return "remote process exited or there was a network error";
    default:
      return "unhandled error";
  }
}
const char* ncclGetLastError(void*) { return "of the fake library"; }
// That vLLM's table of functions has them is enough.
int ncclReduce(const void*, void*, std::size_t, int, int, int, void*, void*) { return invalid_usage; }
int ncclCommSuspend(void*, int) { return invalid_usage; }
int ncclCommResume(void*) { return invalid_usage; }
int ncclCommWindowRegister(void*, void*, std::size_t, void**, int) { return invalid_usage; }
int ncclCommWindowDeregister(void*, void*) { return invalid_usage; }
int ncclCommQueryProperties(void*, void*) { return invalid_usage; }

int cudaGetDeviceCount(int* count) {
  *count = number("FAKE_CUDA_DEVICES", 1);
  return *count > 0 ? abi::success : no_device;
}
int cudaSetDevice(int device) { return device >= 0 && device < number("FAKE_CUDA_DEVICES", 1) ? abi::success : 101; }
int cudaGetDeviceProperties(void* properties, int) {
  for (std::size_t i = 0; i < abi::uuid_bytes; ++i)
    static_cast<unsigned char*>(properties)[abi::uuid_offset + i] = static_cast<unsigned char>(16 * i + i);
  const int card = number("FAKE_CUDA_CARD", number("LOCAL_RANK", 0));
  static_cast<unsigned char*>(properties)[abi::uuid_offset + abi::uuid_bytes - 1] += static_cast<unsigned char>(card);
  return abi::success;
}
int cudaMalloc(void** out, std::size_t size) {
  *out = std::malloc(size);
  return *out != nullptr ? abi::success : 2;
}
int cudaFree(void* place) {
  const std::lock_guard lock(uses().mutex);
  if (uses().places.contains(place)) {
    std::fputs("cudaFree of memory that a stream still uses\n", stderr);
    std::abort();
  }
  std::free(place);
  return abi::success;
}
int cudaMemcpyAsync(void* to, const void* from, std::size_t size, int kind, void* stream) {
  if (kind == abi::device_to_host) {
    queue_of(stream).add([=] { reach([=] { std::memcpy(to, from, size); }); });
    queue_of(stream).finish();
    return abi::success;
  }
  if (kind != abi::host_to_device) return invalid_value;
  const auto* const begin = static_cast<const char*>(from);
  queue_of(stream).add([use = std::make_shared<Use>(to), staged = std::vector<char>(begin, begin + size),
                        seconds = number("FAKE_CUDA_COPY_SECONDS", 0)] {
    std::this_thread::sleep_for(std::chrono::seconds(seconds));
    put(use->place, staged.data(), staged.size());
  });
  return abi::success;
}
int cudaStreamCreateWithFlags(void** stream, unsigned int) {
  *stream = new Queue;
  return abi::success;
}
int cudaStreamDestroy(void* stream) {
  delete static_cast<Queue*>(stream);
  return abi::success;
}
int cudaLaunchHostFunc(void* stream, void (*f)(void*), void* data) {
  queue_of(stream).add([=] { f(data); });
  return abi::success;
}
int cudaStreamQuery(void* stream) { return queue_of(stream).idle() ? abi::success : abi::not_ready; }
int cudaStreamSynchronize(void* stream) {
  queue_of(stream).finish();
  return abi::success;
}
const char* cudaGetErrorString(int error) {
  return error == no_device ? "no CUDA-capable device is detected" : "an error";
}

}  // extern "C"
