// Definitions of broadcasts.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/serve/broadcasts.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::serve {

namespace detail {

[[noreturn]] inline void refuse_broadcast(const std::string& found) {
  refuse_request(400, 27,
                 {.what = "the weights that were broadcast are not in force",
                  .found = found,
                  .remedy = "POST /init_communicator/ or /init_weight_transfer_engine, and send all of them again"});
}

[[noreturn]] inline void refuse_act(const std::string& what, const std::string& expected) {
  refuse_request(400, 20, {.what = what, .expected = expected});
}

inline std::size_t bytes_of(const AnnouncedTensor& tensor) {
  std::size_t out = c10::elementSize(tensor.type);
  for (const std::int64_t size : tensor.shape) out *= static_cast<std::size_t>(size);
  return out;
}

}  // namespace detail

RLALGO_INLINE Broadcasts::Broadcasts(WeightStore& store, Settings settings)
    : store_(store), settings_(std::move(settings)) {
  for (const auto& [name, value] : store_.named_tensors()) {
    names_.insert(name);
    most_bytes_ = std::max(most_bytes_, static_cast<std::size_t>(value.numel()) * sizeof(float));
  }
}

RLALGO_INLINE void Broadcasts::stop() {
  stopped_ = true;
  thread_.stop();
}

RLALGO_INLINE void Broadcasts::run(Done done, std::function<void()> act) {
  thread_.add([done = std::move(done), act = std::move(act)] {
    try {
      act();
    } catch (...) {
      done(std::current_exception());
    }
  });
}

RLALGO_INLINE void Broadcasts::touch(bool open) {
  const std::lock_guard lock(mutex_);
  open_ = open;
  touched_ = {};
}

RLALGO_INLINE void Broadcasts::fail(const std::exception& error) {
  failure_ = error.what();
  staged_.clear();
  trl_ = {};
  touch(false);
}

RLALGO_INLINE void Broadcasts::check(const std::vector<AnnouncedTensor>& tensors) const {
  std::set<std::string> seen;
  for (const AnnouncedTensor& one : tensors) {
    store_.check(one.name, one.shape);
    if (!seen.insert(one.name).second)
      refuse_request(400, 19, {.what = "a tensor is announced twice", .found = one.name});
  }
}

RLALGO_INLINE bool Broadcasts::complete() const {
  return std::all_of(names_.begin(), names_.end(), [&](const std::string& name) { return staged_.contains(name); });
}

RLALGO_INLINE void Broadcasts::put_in_force() {
  const std::vector<model::NamedTensor> tensors(staged_.begin(), staged_.end());
  staged_.clear();
  if (!tensors.empty()) store_.update(tensors);
}

RLALGO_INLINE void Broadcasts::receive_bytes(const Line& line, int root, tensor::Tensor& place) const {
  if (line.group->size() == 2)
    line.group->receive(place, std::max(most_bytes_, static_cast<std::size_t>(place.nbytes())), settings_.seconds);
  else
    line.group->broadcast(place, root, settings_.seconds);
}

RLALGO_INLINE tensor::Tensor Broadcasts::receive_one(const Line& line, int root, const AnnouncedTensor& what) const {
  tensor::Tensor out = tensor::empty(what.shape, at::TensorOptions().dtype(what.type).device(line.device));
  receive_bytes(line, root, out);
  return out;
}

RLALGO_INLINE Broadcasts::Line Broadcasts::join(const distributed::Store& store, Transport transport, int rank,
                                                int size) const {
  if (transport == Transport::gloo) return {.group = distributed::join_gloo(store, rank, size, settings_.seconds)};
  const at::Device device = store_.device();
  return {.group = distributed::join_nccl(store, distributed::NcclLibrary::load(), rank, size, settings_.seconds,
                                          std::max<int>(0, device.index())),
          .device = device};
}

RLALGO_INLINE void Broadcasts::open(std::uint16_t port, Transport transport, Done done) {
  const std::lock_guard lock(mutex_);
  if (open_ && touched_.seconds() < settings_.patience)
    detail::refuse_act("a communicator is open", "POST /close_communicator/ by the trainer that opened it, or " +
                                                     std::to_string(static_cast<int>(settings_.patience)) +
                                                     " seconds without a sign of it");
  run(done, [this, port, transport, done] {
    staged_.clear();
    failure_.clear();
    trl_ = {};  // its store may be what holds the port
    std::unique_ptr<distributed::Store> store;
    try {
      store = std::make_unique<distributed::Store>(distributed::Store::listen(settings_.address, port));
    } catch (...) {
      touch(false);
      throw;
    }
    done(nullptr);
    try {
      store->wait_for_peer(settings_.seconds, [this] { return stopped_.load(); });
      trl_ = join(*store, transport, 0, 2);
      touch(true);
    } catch (const std::exception& error) {
      fail(error);
    }
  });
  open_ = true;
  touched_ = {};
}

RLALGO_INLINE void Broadcasts::announce(std::vector<AnnouncedTensor> tensors, Done done) {
  run(done, [this, tensors = std::move(tensors), done] {
    if (!failure_.empty()) detail::refuse_broadcast(failure_);
    if (!trl_.group) detail::refuse_act("no communicator is open", "POST /init_communicator/ before");
    check(tensors);
    touch(true);
    done(nullptr);
    try {
      for (const AnnouncedTensor& one : tensors) staged_.insert_or_assign(one.name, receive_one(trl_, 1, one));
      if (complete()) put_in_force();
      trl_.group->barrier(settings_.seconds);
      touch(true);
    } catch (const std::exception& error) {
      fail(error);
    }
  });
}

RLALGO_INLINE void Broadcasts::fence(Done done) {
  run(done, [this, done] {
    if (!failure_.empty()) detail::refuse_broadcast(std::exchange(failure_, {}));
    put_in_force();
    done(nullptr);
  });
}

RLALGO_INLINE void Broadcasts::close(Done done) {
  run(done, [this, done] {
    staged_.clear();
    failure_.clear();
    trl_ = {};
    touch(false);
    done(nullptr);
  });
}

RLALGO_INLINE void Broadcasts::join(Meeting meeting, Done done) {
  run(done, [this, meeting = std::move(meeting), done] {
    vllm_ = {};
    const auto store = distributed::Store::connect(meeting.host, meeting.port, meeting.size, settings_.seconds);
    vllm_ = join(store, meeting.transport, meeting.rank, meeting.size);
    packed_bytes_ = meeting.packed_bytes;
    done(nullptr);
  });
}

RLALGO_INLINE void Broadcasts::receive(std::vector<AnnouncedTensor> tensors, std::optional<std::size_t> packed_bytes,
                                       Received received, Done failed) {
  run(std::move(failed), [this, tensors = std::move(tensors), packed_bytes, received = std::move(received)] {
    if (!vllm_.group)
      detail::refuse_act("the trainer has not been met",
                         "POST /init_weight_transfer_engine with its master_address before");
    check(tensors);
    std::vector<model::NamedTensor> out;
    try {
      if (const std::size_t limit = packed_bytes.value_or(packed_bytes_); limit > 0)
        out = receive_packed(tensors, limit);
      else
        for (const AnnouncedTensor& one : tensors) out.emplace_back(one.name, receive_one(vllm_, 0, one));
    } catch (const std::exception& error) {
      vllm_ = {};
      detail::refuse_broadcast(error.what());
    }
    received(std::move(out));
  });
}

// One buffer ends after the tensor with which it passes `packed_bytes`.
RLALGO_INLINE std::vector<model::NamedTensor> Broadcasts::receive_packed(const std::vector<AnnouncedTensor>& tensors,
                                                                         std::size_t packed_bytes) const {
  std::vector<model::NamedTensor> out;
  for (std::size_t begin = 0; begin < tensors.size();) {
    std::size_t end = begin, total = 0;
    while (end < tensors.size() && total <= packed_bytes) total += detail::bytes_of(tensors[end++]);
    tensor::Tensor buffer =
        tensor::empty({static_cast<std::int64_t>(total)}, at::TensorOptions().dtype(at::kByte).device(vllm_.device));
    receive_bytes(vllm_, 0, buffer);
    for (std::int64_t from = 0; begin < end; ++begin) {
      const tensor::Tensor one = tensor::empty(tensors[begin].shape, buffer.options().dtype(tensors[begin].type));
      const auto size = static_cast<std::int64_t>(detail::bytes_of(tensors[begin]));
      one.view({-1}).view(at::kByte).copy_(buffer.narrow(0, from, size));
      from += size;
      out.emplace_back(tensors[begin].name, one);
    }
  }
  return out;
}

}  // namespace rlalgo::serve
