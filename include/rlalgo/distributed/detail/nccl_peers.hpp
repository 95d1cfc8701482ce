// Tensors between any two ranks of a team over NCCL: sends and receives of one group call. Those of the GPU go from and to
// where they are; those of the CPU by way of a buffer on it.
//
// Ranks find each other by the store: rank 0 leaves NCCL's id under the team's name.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/group_failure.hpp>
#include <rlalgo/distributed/detail/nccl_rank.hpp>
#include <rlalgo/distributed/detail/peers.hpp>
#include <rlalgo/distributed/process_group.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::distributed::detail {

class NcclPeers final : public Peers {
 public:
  NcclPeers(const Store& store, const std::string& name, std::shared_ptr<const NcclLibrary> library, int device,
            int rank, int size, double seconds)
      : own_(std::move(library), rank, size, device) {
    const os::Stopwatch watch;
    own_.open_stream();
    const std::string key = name + "nccl id";
    if (rank == 0) store.set(key, own_.new_id());
    while (!store.has(key)) {
      if (watch.seconds() >= seconds) group_failed("NCCL's id", "rank 0 of the team did not come", seconds);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    own_.join(store.get(key), seconds);
  }

  void exchange(const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received) override {
    own_.begin("exchange", unbounded);
    const std::size_t ranks = sent.size(), self = static_cast<std::size_t>(own_.rank());
    std::vector<tensor::Tensor> all;  // what comes, then what goes, by rank
    for (const auto* side : {&received, &sent})
      for (const tensor::Tensor& one : *side) all.push_back(one.defined() ? one : tensor::Tensor(nothing_));
    const std::vector<void*> places = own_.places_of(all);
    for (std::size_t r = ranks; r < all.size(); ++r)
      if (all[r].nbytes() > 0) own_.upload(all[r], places[r]);
    const abi::Nccl& nccl = own_.nccl();
    own_.checked(nccl.group_start(), "ncclGroupStart");
    int result = abi::success;
    const auto note = [&](int one) {
      if (result == abi::success && one != abi::in_progress) result = one;
    };
    for (std::size_t step = 1; step < ranks; ++step) {  // each begins with its neighbour
      const std::size_t to = (self + step) % ranks, from = (self + ranks - step) % ranks;
      if (all[from].nbytes() > 0)
        note(nccl.receive(places[from], all[from].nbytes(), abi::uint8, static_cast<int>(from), own_.communicator(),
                          own_.stream()));
      if (all[ranks + to].nbytes() > 0)
        note(nccl.send(places[ranks + to], all[ranks + to].nbytes(), abi::uint8, static_cast<int>(to),
                       own_.communicator(), own_.stream()));
    }
    note(nccl.group_end());
    own_.finish(result, "exchange", unbounded);
    for (std::size_t r = 0; r < ranks; ++r)
      if (all[r].nbytes() > 0) own_.download(all[r], places[r]);
    own_.wait("exchange", unbounded);
  }

 private:
  NcclRank own_;
  const tensor::Tensor nothing_ = tensor::empty({0}, at::TensorOptions().dtype(at::kByte));
};

inline std::shared_ptr<Peers> join_nccl_peers(const Store& store, const std::string& name,
                                              std::shared_ptr<const NcclLibrary> library, int device, int rank,
                                              int size, double seconds) {
  try {
    return std::make_shared<NcclPeers>(store, name, std::move(library), device, rank, size, seconds);
  } catch (const core::Error& error) {
    if (error.number() != 4) throw;
    core::raise("distributed", 3, {.what = "not all ranks of a team came", .found = error.what(), .where = name});
  }
}

}  // namespace rlalgo::distributed::detail
