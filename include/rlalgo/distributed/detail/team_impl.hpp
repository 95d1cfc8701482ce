// Definitions of team.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

[[noreturn]] inline void raise_misfit(const std::string& operation, const std::string& found,
                                      const std::string& expected) {
  core::raise(
      "distributed", 11,
      {.what = "tensors do not fit an operation of a team", .found = found, .expected = expected, .where = operation});
}

// The slices of a tensor along its first dimension, one for each rank.
inline std::vector<Tensor> slices(const std::string& operation, const Tensor& whole, int ranks) {
  if (whole.dim() == 0 || whole.size(0) % ranks != 0)
    raise_misfit(operation, std::to_string(whole.dim() == 0 ? 0 : whole.size(0)) + " rows",
                 "a multiple of " + std::to_string(ranks));
  const std::int64_t rows = whole.size(0) / ranks;
  std::vector<Tensor> out;
  for (int r = 0; r < ranks; ++r) out.push_back(whole.narrow(0, r * rows, rows));
  return out;
}

}  // namespace detail

RLALGO_INLINE Pending Team::exchange(const std::string& operation, const std::vector<Tensor>& sent,
                                     const std::vector<Tensor>& received) {
  const auto ranks = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
  if (sent.size() != ranks || received.size() != ranks)
    detail::raise_misfit(operation,
                         std::to_string(sent.size()) + " and " + std::to_string(received.size()) + " tensors",
                         "one for each of " + std::to_string(ranks) + " ranks");
  for (const std::vector<Tensor>* side : {&sent, &received})
    for (const Tensor& one : *side)
      if (one.defined() && (!one.is_contiguous() || !one.device().is_cpu()))
        detail::raise_misfit(operation, "a tensor with gaps, or of another device", "contiguous tensors of the CPU");
  std::vector<Tensor> out = sent, in = received;
  const c10::NoGradGuard no_grad;
  if (in[own].defined()) {
    if (!out[own].defined() || out[own].nbytes() != in[own].nbytes())
      detail::raise_misfit(operation, "another number of bytes", "what this rank sends to itself");
    if (out[own].nbytes() > 0 && out[own].const_data_ptr() != in[own].const_data_ptr()) in[own].copy_(out[own]);
  }
  out[own] = in[own] = Tensor();
  return begin(operation, std::move(out), std::move(in));
}

RLALGO_INLINE Pending Team::all_gather(const Tensor& whole, const Tensor& part) {
  const std::vector<Tensor> parts = detail::slices("all-gather", whole, size());
  if (parts.front().nbytes() != part.nbytes())
    detail::raise_misfit("all-gather", std::to_string(part.nbytes()) + " bytes",
                         std::to_string(parts.front().nbytes()) + " of each rank");
  return exchange("all-gather", std::vector<Tensor>(static_cast<std::size_t>(size()), part), parts);
}

RLALGO_INLINE Pending Team::all_to_all(const Tensor& received, const Tensor& sent) {
  if (received.nbytes() != sent.nbytes())
    detail::raise_misfit("all-to-all", std::to_string(received.nbytes()) + " bytes",
                         std::to_string(sent.nbytes()) + ", as are sent");
  return exchange("all-to-all", detail::slices("all-to-all", sent, size()),
                  detail::slices("all-to-all", received, size()));
}

RLALGO_INLINE Pending Team::shift(const Tensor& received, const Tensor& sent, int by) {
  const int ranks = size();
  const auto place = [&](int steps) { return static_cast<std::size_t>(((rank() + steps) % ranks + ranks) % ranks); };
  std::vector<Tensor> out(static_cast<std::size_t>(ranks)), in(static_cast<std::size_t>(ranks));
  out[place(by)] = sent;
  in[place(-by)] = received;
  return exchange("shift", out, in);
}

RLALGO_INLINE void Team::sum(std::span<Tensor> tensors) {
  if (size() == 1) return;
  const c10::NoGradGuard no_grad;
  for (Tensor& one : tensors) {
    const at::ScalarType kind = one.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const std::int64_t ranks = size(), slice = (one.numel() + ranks - 1) / ranks;
    const Tensor flat = tensor::zeros({ranks * slice}, at::TensorOptions().dtype(kind));
    flat.narrow(0, 0, one.numel()).copy_(one.detach().reshape({-1}));
    const Tensor all = tensor::empty({ranks, slice}, flat.options());
    all_to_all(all, flat.view({ranks, slice})).wait();
    const Tensor own = flat.narrow(0, rank() * slice, slice);
    own.copy_(all.select(0, 0));
    for (std::int64_t r = 1; r < ranks; ++r) own.add_(all.select(0, r));
    all_gather(flat, own).wait();
    one.detach().copy_(flat.narrow(0, 0, one.numel()).view(one.sizes()));
  }
}

// One rank.
RLALGO_INLINE Pending Team::begin(const std::string& /*operation*/, std::vector<Tensor> /*sent*/,
                                  std::vector<Tensor> /*received*/) {
  return {};
}

}  // namespace rlalgo::distributed
