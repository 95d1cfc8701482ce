// Tensors between any two processes of a group, over c10d's Gloo: what the teams of a process_world.hpp stand on.
#pragma once

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

}  // namespace rlalgo::distributed::detail
