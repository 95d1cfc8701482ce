// Definitions of ring_attention.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/attention_plan.hpp>
#include <rlalgo/model/context_ring.hpp>
#include <rlalgo/model/context_split.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/model/ring_attention.hpp>
#include <rlalgo/tensor/functions.hpp>

namespace rlalgo::model {

RLALGO_INLINE RingAttention::RingAttention(std::shared_ptr<ContextRing> ring, const Operations& operations,
                                           const AttentionPlan& plan, const std::vector<TokenSpans>& split,
                                           at::Device device, double scale, double cap)
    : ring_(std::move(ring)), operations_(&operations) {
  const TokenSpans& own = split.at(static_cast<std::size_t>(ring_->rank()));
  for (int passes = 0; passes < ring_->size(); ++passes) {
    const TokenSpans& theirs = split.at(static_cast<std::size_t>(ring_->origin(passes)));
    layouts_.push_back(operations.lay_out(plan_between(plan, own, theirs), device));
    layouts_.back().scale = scale;
    layouts_.back().cap = cap;
    keys_.push_back(tokens_of(theirs));
  }
}

RLALGO_INLINE Tensor RingAttention::room(int passes, const Tensor& like) const {
  return like.new_empty({2, keys_[static_cast<std::size_t>(passes)], like.size(1), like.size(2)});
}

RLALGO_INLINE AttentionOutput RingAttention::forward(const Tensor& q, const Tensor& k, const Tensor& v) const {
  AttentionOutput out;
  Tensor here = tensor::stack({k, v});
  for (int passes = 0; passes < ring_->size(); ++passes) {
    const bool last = passes + 1 == ring_->size();
    Tensor next;
    std::function<void()> arrive;
    if (!last) {
      next = room(passes + 1, k);
      arrive = ring_->pass(here, next);
    }
    const AttentionLayout& layout = layouts_[static_cast<std::size_t>(passes)];
    if (passes == 0)
      out = operations_->attention(q, k, v, layout);
    else
      operations_->attend_further(q, here.select(0, 0), here.select(0, 1), layout, out);
    if (last) break;
    arrive();
    here = std::move(next);
  }
  return out;
}

RLALGO_INLINE AttentionGradient RingAttention::backward(const Tensor& grad, const Tensor& q, const Tensor& k,
                                                        const Tensor& v, const AttentionOutput& out) const {
  Tensor here = tensor::stack({k, v}), grad_q;
  Tensor sum;      // the gradients of what is here, as far as ranks have added to them
  Tensor leaving;  // those of what was here before, on their way
  std::function<void()> home_coming;
  for (int passes = 0; passes < ring_->size(); ++passes) {
    const bool last = passes + 1 == ring_->size();
    Tensor next;
    std::function<void()> arrive;
    if (!last) {
      next = room(passes + 1, k);
      arrive = ring_->pass(here, next);
    }
    const AttentionLayout& layout = layouts_[static_cast<std::size_t>(passes)];
    Tensor share;  // of this rank, in the gradients of what is here
    if (passes == 0) {
      AttentionGradient own = operations_->attention_backward(grad, q, k, v, out, layout);
      grad_q = std::move(own.q);
      share = tensor::stack({own.k, own.v});
    } else {
      share = tensor::zeros_like(here);
      AttentionGradient more{grad_q, share.select(0, 0), share.select(0, 1)};
      operations_->attend_further_backward(grad, q, here.select(0, 0), here.select(0, 1), out, layout, more);
      home_coming();
      sum.add_(share);
      share = sum;
    }
    if (!last) arrive();
    leaving = std::move(share);
    sum = room((passes + 1) % ring_->size(), k);
    home_coming = ring_->pass(leaving, sum);
    here = std::move(next);
  }
  home_coming();
  return {grad_q, sum.select(0, 0), sum.select(0, 1)};
}

}  // namespace rlalgo::model
