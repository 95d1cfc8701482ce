// Tensors between any two processes of a group: what the teams of a process_world.hpp stand on. Over c10d's Gloo the CPU hands
// them round (Peers); on a GPU that is given to a stream (StreamPeers, nccl_peers.hpp).
#pragma once

#include <string>
#include <vector>

#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed::detail {

class Peers {
 public:
  Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;
  // Sends sent[r] to rank r and gets received[r] from it; undefined or empty: nothing. Returns when all is sent and there, or
  // raises [rlalgo.distributed.4]. No deadline of its own: who waits for the thread that calls it has one.
  virtual void exchange(const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received) = 0;
};

// Every operation is given to `stream` (a cudaStream_t) and returns when the GPU's queue has it, not when it is done.
class StreamPeers {
 public:
  StreamPeers() = default;
  StreamPeers(const StreamPeers&) = delete;
  StreamPeers& operator=(const StreamPeers&) = delete;
  virtual ~StreamPeers() = default;
  virtual void exchange(const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received,
                        void* stream) = 0;
  // By the library's own algorithms: whole [n·k …] ← the parts [k …] of all ranks; each tensor ← its sum over the ranks, in place;
  // sum [k …] ← the sum of the parts number rank() of `sent` [n·k …]. Sums in an order of the library's.
  virtual void gather(const tensor::Tensor& whole, const tensor::Tensor& part, void* stream) = 0;
  virtual void add(const std::vector<tensor::Tensor>& tensors, void* stream) = 0;
  virtual void add_shards(const tensor::Tensor& sum, const tensor::Tensor& sent, void* stream) = 0;
  // What went wrong with what is under way, or empty; any thread.
  [[nodiscard]] virtual std::string trouble() = 0;
  // Ends what is under way on the GPU; good for nothing more. Any thread.
  virtual void abort() noexcept = 0;
};

}  // namespace rlalgo::distributed::detail
