// Definitions of nccl_group.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/detail/nccl_rank.hpp>
#include <rlalgo/distributed/nccl_group.hpp>
#include <rlalgo/distributed/pickle.hpp>
#include <rlalgo/distributed/stateless_group.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

class NcclGroup final : public ProcessGroup {
 public:
  NcclGroup(StatelessGroup meeting, std::shared_ptr<const NcclLibrary> library, double seconds, int device)
      : meeting_(std::move(meeting)), own_(std::move(library), meeting_.rank(), meeting_.size(), device) {
    own_.open_stream();
    const std::string id = rank() == 0 ? pickled_nccl_id(own_.new_id()) : std::string();
    const std::string given = meeting_.broadcast(id, 0, seconds);
    own_.join(nccl_id_in(given), seconds);
    tensor::Tensor one = tensor::zeros({1}, at::TensorOptions().dtype(at::kFloat));
    sum(one, seconds);
  }

  [[nodiscard]] int rank() const override { return own_.rank(); }
  [[nodiscard]] int size() const override { return own_.size(); }

  void broadcast(tensor::Tensor& tensor, int root, double seconds) override {
    own_.begin("broadcast", seconds);
    const int type = nccl_type(tensor.scalar_type());
    const auto count = static_cast<std::size_t>(tensor.numel());
    void* const place = own_.places_of({tensor}).front();
    if (root == rank()) own_.upload(tensor, place);
    own_.finish(own_.nccl().broadcast(place, place, count, type, root, own_.communicator(), own_.stream()), "broadcast",
                seconds);
    if (root != rank()) fetch(tensor, place, "broadcast", seconds);
  }

  void receive(tensor::Tensor& tensor, std::size_t /*most_bytes*/, double seconds) override {
    broadcast(tensor, 1 - rank(), seconds);
  }

  void sum(tensor::Tensor& tensor, double seconds) override {
    own_.begin("sum", seconds);
    void* const place = own_.places_of({tensor}).front();
    own_.upload(tensor, place);
    own_.finish(own_.nccl().all_reduce(place, place, static_cast<std::size_t>(tensor.numel()),
                                       nccl_type(tensor.scalar_type()), abi::add, own_.communicator(), own_.stream()),
                "sum", seconds);
    fetch(tensor, place, "sum", seconds);
  }

  void barrier(double seconds) override {
    own_.begin("barrier", seconds);
    meeting_.barrier(seconds);
  }

  void stop() noexcept override {
    own_.stop();
    meeting_.stop();
  }

 private:
  void fetch(const tensor::Tensor& tensor, const void* place, const char* operation, double seconds) {
    if (!tensor.is_cpu()) return;
    own_.download(tensor, place);
    own_.wait(operation, seconds);
  }

  StatelessGroup meeting_;
  NcclRank own_;
};

}  // namespace detail

RLALGO_INLINE std::unique_ptr<ProcessGroup> join_nccl(const Store& store, std::shared_ptr<const NcclLibrary> library,
                                                      int rank, int size, double seconds, int device) {
  try {
    return std::make_unique<detail::NcclGroup>(StatelessGroup(store, rank, size), std::move(library), seconds, device);
  } catch (const core::Error& error) {
    if (error.number() != 4) throw;
    core::raise("distributed", 3, {.what = "not all processes of a group came", .found = error.what()});
  }
}

}  // namespace rlalgo::distributed
