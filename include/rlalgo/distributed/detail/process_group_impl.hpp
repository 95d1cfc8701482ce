// Definitions of process_group.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/peers.hpp>
#include <rlalgo/distributed/detail/within.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

#if __has_include(<gloo/transport/device.h>) && __has_include(<torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>)
#define RLALGO_GLOO
#ifndef USE_C10D_GLOO
#define USE_C10D_GLOO  // of LibTorch: its header is empty without
#endif
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#endif

namespace rlalgo::distributed {

#ifdef RLALGO_GLOO

namespace detail {

inline std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::max<std::int64_t>(1, static_cast<std::int64_t>(seconds * 1000.0)));
}

// What an exception of c10d says, without the stack that it brings.
inline std::string reason(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_torch != nullptr ? of_torch->what_without_backtrace() : error.what();
  return text.substr(0, text.find('\n'));
}

// A socket that listens on that address alone, where c10d's own would listen on all of them.
inline int listening_socket(const std::string& address, std::uint16_t port) {
  const auto refuse = [&](const std::string& why) {
    core::raise("distributed", 2,
                {.what = "a store cannot listen",
                 .found = why,
                 .where = address + ":" + std::to_string(port),
                 .remedy = "name a port that is free"});
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    refuse(::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  const int descriptor = ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  const int on = 1;
  if (descriptor < 0 || ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(descriptor, found->ai_addr, found->ai_addrlen) != 0 || ::listen(descriptor, 64) != 0) {
    const std::string why = std::generic_category().message(errno);
    if (descriptor >= 0) ::close(descriptor);
    refuse(why);
  }
  return descriptor;
}

inline std::uint16_t port_of(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

inline bool any_address(const std::string& address) {
  return address.empty() || address == "0.0.0.0" || address == "::";
}

// c10d's recorder of operations belongs to all groups of a process, and notes which groups there are without a lock
// (FlightRecorder::recordWithResetEnabled of LibTorch 2.11): operations begin one at a time.
inline std::mutex& beginning() {
  static std::mutex mutex;
  return mutex;
}

// `store`: what others have set in it is not in the way.
inline c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const std::string& address, int rank, int size, double seconds) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(seconds));
  options->threads = 1;  // one operation at a time
  const char* const interface = std::getenv("GLOO_SOCKET_IFNAME");
  options->devices.push_back(interface != nullptr   ? c10d::ProcessGroupGloo::createDeviceForInterface(interface)
                             : any_address(address) ? c10d::ProcessGroupGloo::createDefaultDevice()
                                                    : c10d::ProcessGroupGloo::createDeviceForHostname(address));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

class GlooGroup final : public ProcessGroup {
 public:
  GlooGroup(const c10::intrusive_ptr<c10d::Store>& store, const std::string& address, int rank, int size,
            double seconds)
      : group_(gloo(c10::make_intrusive<c10d::PrefixStore>("client2server", store), address, rank, size, seconds)) {}

  [[nodiscard]] int rank() const override { return group_->getRank(); }
  [[nodiscard]] int size() const override { return group_->getSize(); }

  // Gloo ends no operation before its time: one that is stopped goes on without anybody waiting for it.
  ~GlooGroup() override {
    if (stopped_) std::thread([left = std::move(group_)]() mutable { left.reset(); }).detach();
  }
  GlooGroup(const GlooGroup&) = delete;
  GlooGroup& operator=(const GlooGroup&) = delete;

  void broadcast(tensor::Tensor& tensor, int root, double seconds) override {
    done("broadcast", seconds, [&] {
      std::vector<at::Tensor> bytes = {tensor.view({-1}).view(at::kByte)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      options.timeout = milliseconds(seconds);
      return group_->broadcast(bytes, options);
    });
  }

  // A mark behind what is expected shows that more came, and its end, which is NaN before, that less did.
  void receive(tensor::Tensor& tensor, std::size_t most_bytes, double seconds) override {
    constexpr std::int64_t mark = 16;
    constexpr unsigned char unwritten = 0xFF;
    const auto expected = static_cast<std::int64_t>(tensor.nbytes());
    const std::int64_t room = std::max(expected, static_cast<std::int64_t>(most_bytes)) + mark;
    tensor::Tensor bytes = tensor::empty({room}, at::TensorOptions().dtype(at::kByte));
    auto* const data = bytes.mutable_data_ptr<unsigned char>();
    const auto last = static_cast<std::int64_t>(tensor.element_size());
    std::memset(data + expected - std::min(last, expected), unwritten,
                static_cast<std::size_t>(std::min(last, expected) + mark));
    broadcast(bytes, 1 - rank(), seconds);
    const auto untouched = [&](std::int64_t begin, std::int64_t count) {
      return std::all_of(data + begin, data + begin + count, [](unsigned char byte) { return byte == unwritten; });
    };
    const bool fewer = expected > 0 && untouched(expected - last, last), more = !untouched(expected, mark);
    if (fewer || more)
      core::raise("distributed", 5,
                  {.what = "another tensor came than the one that was announced",
                   .found = more ? "more bytes" : "fewer bytes, or NaN at the end",
                   .expected = std::to_string(expected) + " bytes"});
    std::memcpy(tensor.mutable_data_ptr(), data, static_cast<std::size_t>(expected));
  }

  void sum(tensor::Tensor& tensor, double seconds) override {
    done("sum", seconds, [&] {
      std::vector<at::Tensor> parts = {tensor};
      c10d::AllreduceOptions options;
      options.timeout = milliseconds(seconds);
      return group_->allreduce(parts, options);
    });
  }

  void barrier(double seconds) override {
    done("barrier", seconds, [&] {
      c10d::BarrierOptions options;
      options.timeout = milliseconds(seconds);
      return group_->barrier(options);
    });
  }

  void stop() noexcept override { stopped_ = true; }

 private:
  template <class F>
  void done(const char* name, double seconds, const F& begin) {
    try {
      const auto work = [&] {
        const std::lock_guard lock(beginning());
        return begin();
      }();
      if (std::string_view(name) == "broadcast") stop_or_completion(*work);
      work->wait();
    } catch (const std::exception& error) {
      core::raise("distributed", 4,
                  {.what = "a collective operation failed",
                   .found = reason(error),
                   .where = std::string(name) + ", " + std::to_string(static_cast<int>(seconds)) + " s allowed"});
    }
  }

  void stop_or_completion(c10d::Work& work) const {
    for (auto pause = std::chrono::microseconds(20); !work.isCompleted(); pause = std::min(pause * 2, longest_pause)) {
      if (stopped_) throw std::runtime_error("it was given up");
      std::this_thread::sleep_for(pause);
    }
  }
  static constexpr std::chrono::microseconds longest_pause{1000};

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::atomic<bool> stopped_ = false;
};

class GlooPeers final : public Peers {
 public:
  GlooPeers(const c10::intrusive_ptr<c10d::Store>& store, const std::string& address, int rank, int size,
            double seconds)
      : group_(gloo(store, address, rank, size, seconds)),
        rank_(rank),
        sent_(static_cast<std::size_t>(size)),
        received_(static_cast<std::size_t>(size)) {}

  void exchange(const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received) override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    try {
      for (std::size_t step = 1; step < sent.size(); ++step) {  // each begins with its neighbour
        const std::size_t to = (static_cast<std::size_t>(rank_) + step) % sent.size();
        const std::size_t from = (static_cast<std::size_t>(rank_) + sent.size() - step) % sent.size();
        const std::lock_guard lock(beginning());
        if (holds(received[from])) works.push_back(begin(received[from], from, ++received_[from], false));
        if (holds(sent[to])) works.push_back(begin(sent[to], to, ++sent_[to], true));
      }
      for (const auto& work : works) work->wait(std::chrono::hours(24 * 30));
    } catch (const std::exception& error) {
      core::raise("distributed", 4, {.what = "a collective operation failed", .found = reason(error)});
    }
  }

 private:
  static bool holds(const tensor::Tensor& one) { return one.defined() && one.nbytes() > 0; }
  c10::intrusive_ptr<c10d::Work> begin(const tensor::Tensor& one, std::size_t peer, int tag, bool send) {
    std::vector<at::Tensor> bytes = {one.view({-1}).view(at::kByte)};
    return send ? group_->send(bytes, static_cast<int>(peer), tag) : group_->recv(bytes, static_cast<int>(peer), tag);
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  int rank_;
  // Messages to each rank and from it, which are their tags: a rank that has no part in an operation need not know of it.
  std::vector<int> sent_, received_;
};

}  // namespace detail

struct Store::Held {
  c10::intrusive_ptr<c10d::TCPStore> store;
  std::string address;  // of this process, as the others reach it
  std::uint16_t port = 0;
};

RLALGO_INLINE bool gloo_built() { return true; }

RLALGO_INLINE std::string own_address(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &::freeaddrinfo);
  const int descriptor = ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  if (descriptor < 0) return {};
  std::string out;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  char text[NI_MAXHOST];
  if (::connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
    out = text;
  ::close(descriptor);
  return out;
}

RLALGO_INLINE Store Store::listen(const std::string& address, std::uint16_t port) {
  const int descriptor = detail::listening_socket(address, port);
  c10d::TCPStoreOptions options;
  options.isServer = true;
  options.port = port = detail::port_of(descriptor);
  options.masterListenFd = descriptor;  // the store's from here on
  options.waitWorkers = false;
  const std::string own = !detail::any_address(address) ? address : address == "::" ? "::1" : "127.0.0.1";
  return Store(std::make_shared<Held>(Held{c10::make_intrusive<c10d::TCPStore>(own, options), address, port}));
}

RLALGO_INLINE Store Store::connect(const std::string& host, std::uint16_t port, int size, double seconds) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.numWorkers = static_cast<std::size_t>(size);
  options.timeout = detail::milliseconds(seconds);
  // LibTorch's deadline is that of a connection: one who takes it and says nothing would be waited for without end.
  const double patience = seconds + 2.0;
  std::string why;
  try {
    const auto store = detail::within(patience, "connecting",
                                      [host, options] { return c10::make_intrusive<c10d::TCPStore>(host, options); });
    return Store(std::make_shared<Held>(Held{store, own_address(host, port), port}));
  } catch (const core::Error&) {
    why = "no store answers there within " + std::to_string(static_cast<int>(patience)) + " s";
  } catch (const std::exception& error) {
    why = detail::reason(error);
  }
  core::raise("distributed", 3,
              {.what = "the store of the other process could not be reached",
               .found = why,
               .where = host + ":" + std::to_string(port),
               .remedy = "is the process that has it there, and is this its port?"});
}

RLALGO_INLINE std::uint16_t Store::port() const { return held_->port; }

RLALGO_INLINE void Store::wait_for_peer(double seconds, const std::function<bool()>& stopped) const {
  const os::Stopwatch waited;
  while (held_->store->getNumKeys() == 0) {
    if (waited.seconds() >= seconds || stopped())
      core::raise("distributed", 3,
                  {.what = "the other process did not come",
                   .expected = "within " + std::to_string(static_cast<int>(seconds)) + " s",
                   .where = held_->address + ":" + std::to_string(held_->port)});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

namespace detail {

template <class F>
auto asked(const std::string& address, std::uint16_t port, const F& ask) {
  try {
    return ask();
  } catch (const std::exception& error) {
    core::raise("distributed", 4,
                {.what = "the store of the processes is gone",
                 .found = reason(error),
                 .where = address + ":" + std::to_string(port)});
  }
}

}  // namespace detail

RLALGO_INLINE void Store::set(const std::string& key, const std::string& bytes) const {
  detail::asked(held_->address, held_->port, [&] { held_->store->set(key, {bytes.begin(), bytes.end()}); });
}

RLALGO_INLINE bool Store::has(const std::string& key) const {
  return detail::asked(held_->address, held_->port, [&] { return held_->store->check({key}); });
}

RLALGO_INLINE std::string Store::get(const std::string& key) const {
  return detail::asked(held_->address, held_->port, [&] {
    const std::vector<std::uint8_t> bytes = held_->store->get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

RLALGO_INLINE void Store::erase(const std::string& key) const {
  detail::asked(held_->address, held_->port, [&] { return held_->store->deleteKey(key); });
}

RLALGO_INLINE std::string Store::claim(const std::string& key, const std::string& bytes) const {
  return detail::asked(held_->address, held_->port, [&] {
    const std::vector<std::uint8_t> held = held_->store->compareSet(key, {}, {bytes.begin(), bytes.end()});
    return std::string(held.begin(), held.end());
  });
}

RLALGO_INLINE std::unique_ptr<ProcessGroup> join_gloo(const Store& store, int rank, int size, double seconds) {
  try {
    return std::make_unique<detail::GlooGroup>(store.held_->store, store.held_->address, rank, size, seconds);
  } catch (const std::exception& error) {
    core::raise("distributed", 3, {.what = "not all processes of a group came", .found = detail::reason(error)});
  }
}

RLALGO_INLINE std::shared_ptr<detail::Peers> detail::join_peers(const Store& store, const std::string& name, int rank,
                                                                int size, double seconds) {
  try {
    return std::make_shared<GlooPeers>(c10::make_intrusive<c10d::PrefixStore>(name, store.held_->store),
                                       store.held_->address, rank, size, seconds);
  } catch (const std::exception& error) {
    core::raise("distributed", 3, {.what = "not all ranks of a team came", .found = reason(error), .where = name});
  }
}

#else

struct Store::Held {};

namespace detail {

[[noreturn]] inline void no_gloo() {
  core::raise("distributed", 1,
              {.what = "this program was compiled without Gloo",
               .remedy = "install its headers (Debian: libgloo-dev) and compile it again"});
}

}  // namespace detail

RLALGO_INLINE bool gloo_built() { return false; }
RLALGO_INLINE std::string own_address(const std::string&, std::uint16_t) { return {}; }
RLALGO_INLINE Store Store::listen(const std::string&, std::uint16_t) { detail::no_gloo(); }
RLALGO_INLINE Store Store::connect(const std::string&, std::uint16_t, int, double) { detail::no_gloo(); }
RLALGO_INLINE std::uint16_t Store::port() const { detail::no_gloo(); }
RLALGO_INLINE void Store::wait_for_peer(double, const std::function<bool()>&) const { detail::no_gloo(); }
RLALGO_INLINE void Store::set(const std::string&, const std::string&) const { detail::no_gloo(); }
RLALGO_INLINE bool Store::has(const std::string&) const { detail::no_gloo(); }
RLALGO_INLINE std::string Store::get(const std::string&) const { detail::no_gloo(); }
RLALGO_INLINE void Store::erase(const std::string&) const { detail::no_gloo(); }
RLALGO_INLINE std::string Store::claim(const std::string&, const std::string&) const { detail::no_gloo(); }
RLALGO_INLINE std::unique_ptr<ProcessGroup> join_gloo(const Store&, int, int, double) { detail::no_gloo(); }
RLALGO_INLINE std::shared_ptr<detail::Peers> detail::join_peers(const Store&, const std::string&, int, int, double) {
  no_gloo();
}

#endif

}  // namespace rlalgo::distributed
