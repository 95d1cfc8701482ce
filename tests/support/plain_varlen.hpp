// Attention of sequences behind each other as tensor/varlen_attention.hpp defines it, with ATen's operators on tensors of the host: what a
// device's own call is replaced by.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/tensor/varlen_attention.hpp>

namespace rlalgo::support {

class PlainVarlen final : public tensor::VarlenAttention {
 public:
  [[nodiscard]] bool takes(const at::Tensor& q) const override { return q.size(-1) <= 256; }

  [[nodiscard]] tensor::VarlenOutput forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                             const tensor::VarlenSequences& s) const override {
    const auto value = at::empty_like(q);
    const auto log_sum = at::empty({q.size(1), q.size(0)}, q.options().dtype(wide(q)));
    each(q, k, s, [&](auto queries, auto keys) {
      const auto scores = scores_of(queries(q), keys(k), s);  // [n, L, M]
      const auto p = scores.softmax(-1);
      queries(value).copy_(p.bmm(spread(keys(v), q.size(1))).transpose(0, 1));  // [L, n, D]
      queries(log_sum.t()).copy_(scores.logsumexp(-1).t());
    });
    return {value, log_sum};
  }

  [[nodiscard]] tensor::VarlenGradient backward(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v, const tensor::VarlenOutput& out,
                                                const tensor::VarlenSequences& s) const override {
    tensor::VarlenGradient g{at::zeros_like(q), at::zeros_like(k), at::zeros_like(v)};
    each(q, k, s, [&](auto queries, auto keys) {
      const auto heads = [&](const at::Tensor& x) { return queries(x).to(wide(q)).transpose(0, 1); };  // [n, L, D]
      const auto p = (scores_of(queries(q), keys(k), s) - queries(out.log_sum.t()).t().unsqueeze(-1)).exp();
      const auto along = (heads(grad) * heads(out.value)).sum(-1, true);
      const auto slope = p * (heads(grad).bmm(spread(keys(v), q.size(1)).transpose(1, 2)) - along) * s.scale;
      queries(g.q).copy_(slope.bmm(spread(keys(k), q.size(1))).transpose(0, 1));
      keys(g.k).copy_(gathered(slope.transpose(1, 2).bmm(heads(q)), k.size(1)));
      keys(g.v).copy_(gathered(p.transpose(1, 2).bmm(heads(grad)), k.size(1)));
    });
    return g;
  }

 private:
  static at::ScalarType wide(const at::Tensor& x) { return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat; }

  // f(rows of queries, rows of keys) of each sequence.
  template <class F>
  static void each(const at::Tensor& q, const at::Tensor& k, const tensor::VarlenSequences& s, const F& f) {
    const auto* const query_ends = s.query_ends.const_data_ptr<std::int32_t>();
    const auto* const key_ends = s.key_ends.const_data_ptr<std::int32_t>();
    for (std::int64_t b = 0; b + 1 < s.query_ends.size(0); ++b) {
      const std::int64_t first = query_ends[b], queries = query_ends[b + 1] - first;
      const std::int64_t first_key = key_ends[b], keys = key_ends[b + 1] - first_key;
      if (queries > s.longest_queries || keys > s.longest_keys || keys < queries) throw std::runtime_error("bad ends");
      f([&](const at::Tensor& x) { return x.narrow(0, first, queries); },
        [&](const at::Tensor& x) { return x.narrow(0, first_key, keys); });
    }
    if (query_ends[s.query_ends.size(0) - 1] != q.size(0) || key_ends[s.key_ends.size(0) - 1] != k.size(0))
      throw std::runtime_error("the ends are not those of all rows");
  }

  // [M, kv, D] → [n, M, D]
  static at::Tensor spread(const at::Tensor& x, std::int64_t heads) {
    return x.to(wide(x)).repeat_interleave(heads / x.size(1), 1).transpose(0, 1);
  }
  // [n, M, D] → [M, kv, D]
  static at::Tensor gathered(const at::Tensor& x, std::int64_t kv) {
    return x.view({kv, -1, x.size(1), x.size(2)}).sum(1).transpose(0, 1);
  }
  static at::Tensor scores_of(const at::Tensor& q, const at::Tensor& k, const tensor::VarlenSequences& s) {
    const std::int64_t queries = q.size(0), keys = k.size(0), offset = keys - queries;
    auto scores = q.to(wide(q)).transpose(0, 1).bmm(spread(k, q.size(1)).transpose(1, 2)) * s.scale;
    const auto all = at::ones({queries, keys}, at::kBool);
    auto hidden = all.triu(offset + 1);
    if (s.window > 0) hidden = hidden | all.tril(offset - s.window);
    return scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  }
};

}  // namespace rlalgo::support
