// Processes that hand tensors to each other over c10d. One of them has a store, through which they find each other:
//
//   Store store = Store::listen("127.0.0.1", 51216);      the others: Store::connect("10.0.0.5", 51216, size, 60)
//   store.wait_for_peer(60, [&] { return stopped; });
//   const auto group = join_gloo(store, 0, 2, 60);        rank 0 of 2
//   group->broadcast(tensor, 1, 60);                      in place, from rank 1
//
// Tensors are of the CPU, contiguous and of one size on all ranks; bytes are copied, whatever their type. Every wait has
// a deadline in seconds. After a failure the ranks no longer agree on what comes next: such a group can only be thrown
// away.
//
// A peer needs no rlalgo: the store is a c10d::TCPStore, the group a c10d::ProcessGroupGloo over
// PrefixStore("client2server", store). Both are in the clear and ask for no key: for networks of one's own.
//
// It needs the headers of Gloo (Debian: libgloo-dev) where it is compiled, and LibTorch with Gloo; see gloo_built().
//
// Errors: [rlalgo.distributed.1] compiled without Gloo; [.2] the address cannot be listened on; [.3] the others did not
// come in time; [.4] a collective operation failed, or was not done in time; [.5] other bytes came than were expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed {

class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  // What `root` has, in place.
  virtual void broadcast(tensor::Tensor& tensor, int root, double seconds) = 0;
  // The same from the other one of a group of two that may be wrong about how much it sends: fewer bytes, or more up to
  // `most_bytes`, are distributed.5. (Gloo ends the process that gets more than it has room for.)
  virtual void receive(tensor::Tensor& tensor, std::size_t most_bytes, double seconds) = 0;
  // The sum over all ranks, in place and with the same bits on all: float32 or float64.
  virtual void sum(tensor::Tensor& tensor, double seconds) = 0;
  // Returns when all ranks have called it.
  virtual void barrier(double seconds) = 0;
  // Ends another thread's wait for a broadcast of this group, which then fails.
  virtual void stop() noexcept = 0;
};

class Store;
namespace detail {
class Peers;  // detail/peers.hpp
// Waits for all of them, under a name that no other group has.
std::shared_ptr<Peers> join_peers(const Store& store, const std::string& name, int rank, int size, double seconds);
}  // namespace detail

class Store {
 public:
  // `port` 0: one that is free.
  [[nodiscard]] static Store listen(const std::string& address, std::uint16_t port);
  // `size`: of the group; a store that waits for its workers counts this one.
  [[nodiscard]] static Store connect(const std::string& host, std::uint16_t port, int size, double seconds);

  [[nodiscard]] std::uint16_t port() const;
  // Waits until another process has left something in the store, or `stopped` says to wait no longer.
  void wait_for_peer(double seconds, const std::function<bool()>& stopped) const;

  // Bytes under a name, at most 8 MiB; any thread may ask. A store that is gone is distributed.4.
  void set(const std::string& key, const std::string& bytes) const;
  [[nodiscard]] bool has(const std::string& key) const;
  // Of a key that is there.
  [[nodiscard]] std::string get(const std::string& key) const;
  void erase(const std::string& key) const;
  // Sets a key unless it is set; returns the value that it has then.
  std::string claim(const std::string& key, const std::string& bytes) const;

 private:
  struct Held;
  explicit Store(std::shared_ptr<Held> held) : held_(std::move(held)) {}
  friend std::unique_ptr<ProcessGroup> join_gloo(const Store& store, int rank, int size, double seconds);
  friend std::shared_ptr<detail::Peers> detail::join_peers(const Store& store, const std::string& name, int rank,
                                                           int size, double seconds);

  std::shared_ptr<Held> held_;
};

// Waits for all ranks; the group keeps the store.
[[nodiscard]] std::unique_ptr<ProcessGroup> join_gloo(const Store& store, int rank, int size, double seconds);

[[nodiscard]] bool gloo_built();

// The address of this machine that packets to `host` leave from; empty where that cannot be said.
[[nodiscard]] std::string own_address(const std::string& host, std::uint16_t port);

}  // namespace rlalgo::distributed

#ifndef RLALGO_COMPILED
#include <rlalgo/distributed/detail/process_group_impl.hpp>
#endif
