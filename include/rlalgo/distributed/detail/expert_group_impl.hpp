// Definitions of expert_group.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/distributed/expert_group.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::distributed {

namespace detail {

inline Tensor of_numbers(const std::vector<std::int64_t>& values, at::Device device = at::Device(at::kCPU)) {
  return tensor::from_values(values, at::TensorOptions().dtype(at::kLong).device(device));
}

// Whether both add the same to the experts of a layer.
inline bool same_adapter(const model::LayerWeights& a, const model::LayerWeights& b) {
  const auto same = [](const model::Lora& one, const model::Lora& other) {
    if (one.defined() != other.defined()) return false;
    return !one.defined() || (one.a.is_alias_of(other.a) && one.b.is_alias_of(other.b));
  };
  return same(a.all_gate_up.lora, b.all_gate_up.lora) && same(a.all_down.lora, b.all_down.lora);
}

}  // namespace detail

RLALGO_INLINE ExpertGroup::ExpertGroup(const model::Decoder& decoder, std::shared_ptr<Team> team)
    : config_(decoder.config()), operations_(&decoder.operations()), team_(std::move(team)) {
  seats_.push_back(decoder.weights());
  if (decoder.adapter() != nullptr) seats_.push_back(decoder.adapter()->base);
}

RLALGO_INLINE std::int64_t ExpertGroup::seat(const model::DecoderWeights& weights) {
  for (std::size_t s = 0; s < seats_.size(); ++s) {
    bool same = true;
    for (std::size_t i = 0; i < weights.layers.size(); ++i)
      same = same && detail::same_adapter(weights.layers[i], seats_[s].layers[i]);
    if (same) return static_cast<std::int64_t>(s);
  }
  seats_.push_back(weights);
  return static_cast<std::int64_t>(seats_.size()) - 1;
}

RLALGO_INLINE void ExpertGroup::chosen(const model::LayerGate::Pass& pass) {
  pass_ = pass;
  if (pass.phase == model::LayerGate::Phase::forward) pass_.number = ++number_;
}

RLALGO_INLINE Tensor ExpertGroup::exchange(const std::string& what, std::int64_t layer, const Tensor& out,
                                           const Counts& sent, const Counts& received) {
  const auto parts = [](const Tensor& of, const Counts& counts) {
    std::vector<Tensor> each;
    std::int64_t at = 0;
    for (const std::int64_t n : counts) {
      each.push_back(of.narrow(0, at, n));
      at += n;
    }
    return each;
  };
  std::vector<std::int64_t> shape = out.sizes().vec();
  shape.front() = std::reduce(received.begin(), received.end());
  Tensor in = tensor::empty(shape, out.options());
  const os::Stopwatch watch;
  team_->exchange(what + " of layer " + std::to_string(layer), parts(out, sent), parts(in, received)).wait();
  waited_ += watch.seconds();
  return in;
}

RLALGO_INLINE void ExpertGroup::help(std::int64_t layer) {
  const model::ExpertSpec& e = config_.spec(layer).experts;
  if (e.count == 0) return;
  const c10::NoGradGuard no_grad;
  const Tensor& weight = weights(layer).router.weight;
  const Tensor none = tensor::empty({0, config_.hidden_size}, weight.options().requires_grad(false));
  const std::vector<std::int64_t> begin(static_cast<std::size_t>(e.count) + 1, 0);
  if (pass_.phase == model::LayerGate::Phase::forward) {
    (void)forward(layer, none, begin);
    return;
  }
  if (pass_.recomputed) (void)forward(layer, none, begin);
  const at::ScalarType kind = none.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  (void)backward(layer, none, tensor::empty({0, 1}, none.options().dtype(kind)));
}

RLALGO_INLINE Tensor ExpertGroup::forward(std::int64_t layer, const Tensor& rows,
                                          const std::vector<std::int64_t>& begin) {
  const std::int64_t own = share(layer);
  const auto each = static_cast<std::size_t>(own);
  // How many rows there are of each expert, [ranks, experts of a rank].
  std::vector<std::int64_t> counts;
  Kept kept;
  for (std::size_t r = 0; r < ranks(); ++r) kept.sent.push_back(begin[(r + 1) * each] - begin[r * each]);
  for (std::size_t e = 0; e + 1 < begin.size(); ++e) counts.push_back(begin[e + 1] - begin[e]);
  const Counts one_row(ranks(), 1);
  const Tensor here =
      exchange("numbers of experts' rows", layer, detail::of_numbers(counts).view({-1, own}), one_row, one_row);
  const std::int64_t* const n = here.const_data_ptr<std::int64_t>();
  const auto from = [&](std::size_t rank, std::size_t expert) { return n[rank * each + expert]; };
  for (std::size_t r = 0; r < ranks(); ++r)
    kept.received.push_back(std::accumulate(n + r * each, n + (r + 1) * each, std::int64_t{0}));
  Tensor came = exchange("experts' rows", layer, rows, kept.sent, kept.received);  // by rank, then by expert
  // By expert, then by rank.
  std::vector<std::int64_t> order, place(static_cast<std::size_t>(came.size(0)));
  kept.begin.assign(1, 0);
  std::vector<std::int64_t> next(ranks());  // of each rank's rows
  std::exclusive_scan(kept.received.begin(), kept.received.end(), next.begin(), std::int64_t{0});
  for (std::size_t e = 0; e < each; ++e) {
    for (std::size_t r = 0; r < ranks(); ++r)
      for (std::int64_t i = 0; i < from(r, e); ++i, ++next[r]) {
        place[static_cast<std::size_t>(next[r])] = static_cast<std::int64_t>(order.size());
        order.push_back(next[r]);
      }
    kept.begin.push_back(static_cast<std::int64_t>(order.size()));
  }
  kept.order = detail::of_numbers(order, rows.device());
  kept.place = detail::of_numbers(place, rows.device());
  kept.rows = came.index_select(0, kept.order);
  came = Tensor();
  const bool keeps = pass_.phase == model::LayerGate::Phase::backward || (pass_.graph && !pass_.recomputed);
  const Tensor given =
      model::expert_rows_forward(*operations_, config_.spec(layer), weights(layer), kept.rows, kept.begin, {},
                                 keeps ? &kept.tape : nullptr, static_cast<std::size_t>(team_->rank()) * each);
  Tensor out = exchange("results of experts", layer, given.index_select(0, kept.place), kept.received, kept.sent);
  if (keeps) kept_.insert_or_assign({pass_.number, layer}, std::move(kept));
  return out;
}

RLALGO_INLINE ExpertGroup::Gradient ExpertGroup::backward(std::int64_t layer, const Tensor& grad,
                                                          const Tensor& weights) {
  const auto node = kept_.extract({pass_.number, layer});
  if (node.empty())
    core::raise(
        "distributed", 20,
        {.what = "a backward pass through experts has no forward pass",
         .found = "layer " + std::to_string(layer) + " of pass " + std::to_string(pass_.number),
         .remedy = "call backward before the ranks meet elsewhere, once a pass, and in the same order on all ranks"});
  const Kept& kept = node.mapped();
  const Counts one_row(ranks(), 1);
  // Ranks that help have no gradients of the rows that they sent.
  const bool absent = grad.size(0) == 0;
  const Tensor there =
      exchange("who has gradients of experts' rows", layer,
               detail::of_numbers(std::vector<std::int64_t>(ranks(), absent ? 0 : 1)), one_row, one_row);
  Counts sent = kept.sent, received = kept.received;
  if (absent) sent.assign(ranks(), 0);
  bool all = true;
  for (std::size_t r = 0; r < ranks(); ++r) {
    if (there.const_data_ptr<std::int64_t>()[r] != 0) continue;
    all = all && received[r] == 0;
    received[r] = 0;
  }
  Tensor came = exchange("gradients of experts' results", layer, grad, sent, received);
  Tensor factors = exchange("factors of experts' results", layer, weights, sent, received);
  if (!all) {
    const auto whole = [&](const Tensor& part) {
      std::vector<Tensor> pieces;
      std::int64_t at = 0;
      for (std::size_t r = 0; r < ranks(); ++r) {
        pieces.push_back(part.narrow(0, at, received[r]));
        at += received[r];
        if (received[r] != kept.received[r]) pieces.push_back(part.new_zeros({kept.received[r], part.size(1)}));
      }
      return tensor::concatenate(pieces, 0);
    };
    came = whole(came);
    factors = whole(factors);
  }
  came = came.index_select(0, kept.order);
  const Gradient here = model::expert_rows_backward(
      *operations_, config_.spec(layer), this->weights(layer), [&] { return kept.rows; }, kept.begin, kept.tape,
      std::move(came), factors.index_select(0, kept.order), {},
      static_cast<std::size_t>(team_->rank()) * static_cast<std::size_t>(share(layer)));
  const auto back = [&](const char* what, const Tensor& sorted) {
    const Tensor by_rank = sorted.index_select(0, kept.place);
    std::vector<Tensor> pieces;
    std::int64_t at = 0;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (received[r] > 0) pieces.push_back(by_rank.narrow(0, at, received[r]));
      at += kept.received[r];
    }
    return exchange(what, layer,
                    all              ? by_rank
                    : pieces.empty() ? by_rank.narrow(0, 0, 0)
                                     : tensor::concatenate(pieces, 0),
                    received, sent);
  };
  return {back("gradients of experts' rows", here.rows), back("gradients of experts' factors", here.weights)};
}

}  // namespace rlalgo::distributed
