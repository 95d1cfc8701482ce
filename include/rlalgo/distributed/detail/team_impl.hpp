// Definitions of team.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/distributed/detail/team_misfit.hpp>
#include <rlalgo/distributed/team.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

// The shards of a tensor along its first dimension, one for each rank.
inline std::vector<Tensor> shards(const std::string& operation, const Tensor& whole, int ranks) {
  if (whole.dim() == 0 || whole.size(0) % ranks != 0)
    raise_misfit(operation, std::to_string(whole.dim() == 0 ? 0 : whole.size(0)) + " rows",
                 "a multiple of " + std::to_string(ranks));
  const std::int64_t rows = whole.size(0) / ranks;
  std::vector<Tensor> out;
  for (int r = 0; r < ranks; ++r) out.push_back(whole.narrow(0, r * rows, rows));
  return out;
}

}  // namespace detail

RLALGO_INLINE void Team::check_places(const std::string& operation, const std::vector<Tensor>& tensors) const {
  for (const Tensor& one : tensors)
    if (one.defined() && (!one.is_contiguous() || !(one.device().is_cpu() || one.device() == device())))
      detail::raise_misfit(operation, "a tensor with gaps, or of another device",
                           "contiguous tensors of " + device().str());
}

RLALGO_INLINE Pending Team::exchange(const std::string& operation, const std::vector<Tensor>& sent,
                                     const std::vector<Tensor>& received) {
  const auto ranks = static_cast<std::size_t>(size()), own = static_cast<std::size_t>(rank());
  if (sent.size() != ranks || received.size() != ranks)
    detail::raise_misfit(operation,
                         std::to_string(sent.size()) + " and " + std::to_string(received.size()) + " tensors",
                         "one for each of " + std::to_string(ranks) + " ranks");
  check_places(operation, sent);
  check_places(operation, received);
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
  const std::vector<Tensor> parts = detail::shards("all-gather", whole, size());
  if (parts.front().nbytes() != part.nbytes())
    detail::raise_misfit("all-gather", std::to_string(part.nbytes()) + " bytes",
                         std::to_string(parts.front().nbytes()) + " of each rank");
  check_places("all-gather", {whole, part});
  if (auto given = begin_gather("all-gather", whole, part)) return *std::move(given);
  return exchange("all-gather", std::vector<Tensor>(static_cast<std::size_t>(size()), part), parts);
}

RLALGO_INLINE Pending Team::all_to_all(const Tensor& received, const Tensor& sent) {
  if (received.nbytes() != sent.nbytes())
    detail::raise_misfit("all-to-all", std::to_string(received.nbytes()) + " bytes",
                         std::to_string(sent.nbytes()) + ", as are sent");
  return exchange("all-to-all", detail::shards("all-to-all", sent, size()),
                  detail::shards("all-to-all", received, size()));
}

RLALGO_INLINE Pending Team::shift(const Tensor& received, const Tensor& sent, int by) {
  const int ranks = size();
  const auto place = [&](int steps) { return static_cast<std::size_t>(((rank() + steps) % ranks + ranks) % ranks); };
  std::vector<Tensor> out(static_cast<std::size_t>(ranks)), in(static_cast<std::size_t>(ranks));
  out[place(by)] = sent;
  in[place(-by)] = received;
  return exchange("shift", out, in);
}

namespace detail {

inline constexpr std::size_t sum_bytes = std::size_t{25} << 20U;  // of tensors that are summed in one

inline at::ScalarType sum_type(const Tensor& one) {
  return one.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// The same memory in tensors that fit a bucket, as far as they lie in one piece.
inline std::vector<Tensor> of_bucket_size(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> out;
  for (const Tensor& one : tensors) {
    const auto most = static_cast<std::int64_t>(sum_bytes / at::elementSize(sum_type(one)));
    if (one.numel() <= most || !one.is_contiguous()) {
      out.push_back(one);
      continue;
    }
    const Tensor flat = one.detach().view({-1});
    for (std::int64_t at = 0; at < flat.numel(); at += most)
      out.push_back(flat.narrow(0, at, std::min(most, flat.numel() - at)));
  }
  return out;
}

// Every rank adds up its slice of all of them, and has those of the others after that.
template <class Round>
void sum_bucket(std::span<Tensor> tensors, std::int64_t elements, std::size_t rank, std::size_t ranks,
                const Round& round) {
  const auto all = static_cast<std::int64_t>(ranks), own = static_cast<std::int64_t>(rank);
  const std::int64_t slice = (elements + all - 1) / all;
  const Tensor flat =
      tensor::empty({all, slice}, tensors.front().options().dtype(sum_type(tensors.front())).requires_grad(false));
  const Tensor row = flat.view({-1});
  std::int64_t at = 0;
  for (const Tensor& one : tensors) {
    row.narrow(0, at, one.numel()).copy_(one.detach().reshape({-1}));
    at += one.numel();
  }
  row.narrow(0, at, all * slice - at).zero_();
  const Tensor there = tensor::empty({all, slice}, flat.options());
  std::vector<Tensor> sent(ranks), received(ranks);
  for (std::int64_t r = 0; r < all; ++r) {
    if (r == own) continue;
    sent[static_cast<std::size_t>(r)] = flat.select(0, r);
    received[static_cast<std::size_t>(r)] = there.select(0, r);
  }
  round(sent, received);
  const Tensor sum = flat.select(0, own);
  there.select(0, own).copy_(sum);
  sum.copy_(there.select(0, 0));
  for (std::int64_t r = 1; r < all; ++r) sum.add_(there.select(0, r));
  for (std::int64_t r = 0; r < all; ++r) {
    if (r == own) continue;
    sent[static_cast<std::size_t>(r)] = sum;
    received[static_cast<std::size_t>(r)] = flat.select(0, r);
  }
  round(sent, received);
  at = 0;
  for (const Tensor& one : tensors) {
    one.detach().copy_(row.narrow(0, at, one.numel()).view(one.sizes()));
    at += one.numel();
  }
}

}  // namespace detail

RLALGO_INLINE Pending Team::add_shards(const Tensor& sum, const Tensor& sent) {
  check_places("sum of shards", {sum, sent});
  if (!sums_natively() || sum.numel() * size() != sent.numel() || sum.scalar_type() != sent.scalar_type())
    detail::raise_misfit("sum of shards", std::to_string(sent.numel()) + " elements",
                         std::to_string(sum.numel()) + " for each of " + std::to_string(size()) +
                             " ranks, of one type, where the library adds");
  return begin_native_shards("sum of shards", sum, sent);
}

RLALGO_INLINE Pending Team::begin_sum(const std::string& operation, std::vector<Tensor> tensors) {
  if (size() == 1 || tensors.empty()) return {};
  if (auto given = begin_native_sum(operation, tensors)) return *std::move(given);
  tensors = detail::of_bucket_size(tensors);
  const std::vector<Tensor> of = tensors;
  return begin_rounds(
      operation, of,
      [tensors = std::move(tensors), rank = static_cast<std::size_t>(rank()),
       ranks = static_cast<std::size_t>(size())](const Round& round) mutable {
        const c10::NoGradGuard no_grad;
        for (std::size_t at = 0; at < tensors.size();) {
          const at::ScalarType kind = detail::sum_type(tensors[at]);
          const at::Device place = tensors[at].device();
          std::size_t end = at, elements = 0;
          for (; end < tensors.size() && detail::sum_type(tensors[end]) == kind && tensors[end].device() == place;
               ++end) {
            const auto more = static_cast<std::size_t>(tensors[end].numel());
            if (end > at && (elements + more) * at::elementSize(kind) > detail::sum_bytes) break;
            elements += more;
          }
          detail::sum_bucket(std::span(tensors).subspan(at, end - at), static_cast<std::int64_t>(elements), rank, ranks,
                             round);
          at = end;
        }
      });
}

RLALGO_INLINE void Team::sum(std::span<Tensor> tensors) { begin_sum("sum", {tensors.begin(), tensors.end()}).wait(); }

// One rank.
RLALGO_INLINE Pending Team::begin(const std::string& /*operation*/, std::vector<Tensor> /*sent*/,
                                  std::vector<Tensor> /*received*/) {
  return {};
}

RLALGO_INLINE Pending Team::begin_rounds(const std::string& /*operation*/, const std::vector<Tensor>& /*of*/,
                                         std::function<void(const Round&)> /*work*/) {
  return {};
}

}  // namespace rlalgo::distributed
