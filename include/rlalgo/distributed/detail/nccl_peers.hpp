// Tensors of GPUs between the ranks of a team over NCCL, from and to where they are: sends and receives of one group call, or NCCL's own
// collective operations, given to a stream.
//
// Ranks find each other by the store: rank 0 leaves NCCL's id under the team's name.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
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

class NcclPeers final : public StreamPeers {
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

  void exchange(const std::vector<tensor::Tensor>& sent, const std::vector<tensor::Tensor>& received,
                void* stream) override {
    const std::size_t ranks = sent.size(), self = static_cast<std::size_t>(own_.rank());
    const auto is_there = [](const tensor::Tensor& one) { return one.defined() && one.nbytes() > 0; };
    if (std::none_of(sent.begin(), sent.end(), is_there) && std::none_of(received.begin(), received.end(), is_there))
      return;
    as_group("exchange", [&](const auto& note) {
      const abi::Nccl& nccl = own_.nccl();
      for (std::size_t step = 1; step < ranks; ++step) {  // each begins with its neighbour
        const std::size_t to = (self + step) % ranks, from = (self + ranks - step) % ranks;
        if (is_there(received[from]))
          note(nccl.receive(received[from].mutable_data_ptr(), received[from].nbytes(), abi::uint8,
                            static_cast<int>(from), own_.communicator(), stream));
        if (is_there(sent[to]))
          note(nccl.send(sent[to].const_data_ptr(), sent[to].nbytes(), abi::uint8, static_cast<int>(to),
                         own_.communicator(), stream));
      }
    });
  }

  void gather(const tensor::Tensor& whole, const tensor::Tensor& part, void* stream) override {
    if (part.nbytes() == 0) return;
    own_.give("all-gather", [&] {
      return own_.nccl().all_gather(part.const_data_ptr(), whole.mutable_data_ptr(), part.nbytes(), abi::uint8,
                                    own_.communicator(), stream);
    });
  }

  void add(const std::vector<tensor::Tensor>& tensors, void* stream) override {
    as_group("sum", [&](const auto& note) {
      for (const tensor::Tensor& one : tensors)
        if (one.numel() > 0)
          note(own_.nccl().all_reduce(one.const_data_ptr(), one.mutable_data_ptr(),
                                      static_cast<std::size_t>(one.numel()), nccl_type(one.scalar_type()), abi::add,
                                      own_.communicator(), stream));
    });
  }

  void add_shards(const tensor::Tensor& sum, const tensor::Tensor& sent, void* stream) override {
    if (sum.numel() == 0) return;
    own_.give("sum of shards", [&] {
      return own_.nccl().reduce_scatter(sent.const_data_ptr(), sum.mutable_data_ptr(),
                                        static_cast<std::size_t>(sum.numel()), nccl_type(sum.scalar_type()), abi::add,
                                        own_.communicator(), stream);
    });
  }

  std::string trouble() override { return own_.trouble(); }
  void abort() noexcept override { own_.abort(); }

 private:
  // calls(note): note() gets the result of each.
  template <class F>
  void as_group(const char* operation, const F& calls) {
    own_.give(operation, [&] {
      int result = own_.nccl().group_start();
      if (result != abi::success) return result;
      calls([&](int one) {
        if (result == abi::success && one != abi::in_progress) result = one;
      });
      const int ended = own_.nccl().group_end();
      return result == abi::success ? ended : result;
    });
  }

  NcclRank own_;
};

inline std::shared_ptr<StreamPeers> join_nccl_peers(const Store& store, const std::string& name,
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
