// Weights that a trainer broadcasts over a process group, in the two protocols that trainers speak, on a thread of its own.
//
// TRL's and axolotl's: the server has the store and rank 0, the trainer rank 1 of 2.
//   open(port)        /init_communicator/: answered when the store listens
//   announce(tensors) /update_named_param/, /batch_update_named_params/: answered at once; then each tensor is broadcast,
//                     in that order, and one barrier ends the list
//   fence()           /reset_prefix_cache/
//   close()           /close_communicator/
// What has come is in force when every tensor of the model has, before the barrier, or at the fence; what neither of
// them completed is forgotten by close(). After a failure nothing of the update is in force, and the next act says so.
//
// vLLM's: the trainer has the store and rank 0.
//   join(meeting)     /init_weight_transfer_engine
//   receive(tensors)  /update_weights: each tensor is broadcast, or as many as pass `packed_bytes` as one; no barrier
//
// One act after the other. What an act answers is given to its `done`: null, or what went wrong.
//
// Errors (status 400): [rlalgo.serve.20] an act out of order, or a second trainer; [.27] the broadcast failed or did not
// come in time; [.19] of weight_store.hpp; those of distributed/.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/model/safetensors.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/serve/task_queue.hpp>
#include <rlalgo/serve/weight_store.hpp>

namespace rlalgo::serve {

struct AnnouncedTensor {
  std::string name;
  at::ScalarType type = at::kFloat;
  std::vector<std::int64_t> shape;
};

class Broadcasts {
 public:
  struct Settings {
    std::string address = "127.0.0.1";  // that the store listens on
    double seconds = 120.0;             // until the trainer comes, and of each tensor
    double patience = 60.0;             // without a sign of the trainer, until another one may take its place
  };
  // NCCL as vLLM's process groups have it (distributed/nccl_group.hpp): tensors arrive in the memory of the GPU that the model is on, or, for
  // a model on the CPU, by way of the first GPU.
  enum class Transport { gloo, nccl };
  struct Meeting {
    Transport transport = Transport::gloo;
    std::string host;
    std::uint16_t port = 0;
    int rank = 1, size = 2;
    std::size_t packed_bytes = 0;  // 0: each tensor alone
  };
  static constexpr int failed = 27;  // the number of the error that says that tensors did not come as announced
  using Done = std::function<void(std::exception_ptr)>;
  using Received = std::function<void(std::vector<model::NamedTensor>)>;

  // `store` outlives this.
  Broadcasts(WeightStore& store, Settings settings);
  ~Broadcasts() { stop(); }
  Broadcasts(const Broadcasts&) = delete;
  Broadcasts& operator=(const Broadcasts&) = delete;

  // Raises serve.20 while another trainer's is open.
  void open(std::uint16_t port, Transport transport, Done done);
  void announce(std::vector<AnnouncedTensor> tensors, Done done);
  void fence(Done done);
  void close(Done done);

  void join(Meeting meeting, Done done);
  // One of both is called, on the thread. `packed_bytes`: where this list differs from the meeting.
  void receive(std::vector<AnnouncedTensor> tensors, std::optional<std::size_t> packed_bytes, Received received,
               Done failed);

  // Does what waits, and ends: at most the deadline of what is under way.
  void stop();

 private:
  using Group = std::unique_ptr<distributed::ProcessGroup>;

  void run(Done done, std::function<void()> act);
  void check(const std::vector<AnnouncedTensor>& tensors) const;
  void put_in_force();
  [[nodiscard]] bool complete() const;
  void fail(const std::exception& error);
  void touch(bool open);
  // The group of one order, and where its tensors arrive.
  struct Line {
    Group group;
    at::Device device = at::kCPU;
  };
  [[nodiscard]] Line join(const distributed::Store& store, Transport transport, int rank, int size) const;
  [[nodiscard]] tensor::Tensor receive_one(const Line& line, int root, const AnnouncedTensor& what) const;
  [[nodiscard]] std::vector<model::NamedTensor> receive_packed(const std::vector<AnnouncedTensor>& tensors,
                                                               std::size_t packed_bytes) const;
  void receive_bytes(const Line& line, int root, tensor::Tensor& place) const;

  WeightStore& store_;
  Settings settings_;
  std::size_t most_bytes_ = 0;   // of the model's largest tensor, as float32
  std::set<std::string> names_;  // of the model's tensors

  // Of the thread:
  Line trl_, vllm_;
  std::size_t packed_bytes_ = 0;
  std::map<std::string, tensor::Tensor> staged_;
  std::string failure_;  // of the last update, until it has been reported

  std::mutex mutex_;  // of what follows
  bool open_ = false;
  os::Stopwatch touched_;

  std::atomic<bool> stopped_ = false;
  TaskQueue thread_;
};

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/broadcasts_impl.hpp>
#endif
