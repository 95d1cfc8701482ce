// Definitions of gated_delta.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/ops/softplus_ops.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/model/detail/dispatch.hpp>
#include <rlalgo/model/gated_delta.hpp>
#include <rlalgo/model/linear.hpp>
#include <rlalgo/model/token_tree.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/host_copies.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model {

namespace detail {

// Rows of x; ATen's index_select does not know the meta device.
inline Tensor rows_of(const Tensor& x, const Tensor& index) {
  if (!x.is_meta()) return x.index_select(0, index);
  std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[0] = index.size(0);
  const Tensor flat = x.flatten(1);
  return flat.gather(0, index.unsqueeze(1).expand({index.size(0), flat.size(1)})).view(shape);
}

inline Tensor with_zero_row(const Tensor& x) {
  std::vector<std::int64_t> shape(x.sizes().begin(), x.sizes().end());
  shape[0] = 1;
  return tensor::concatenate({x, x.new_zeros(shape)}, 0);
}

inline Tensor times_sigmoid(const Tensor& x) { return x.mul(x.sigmoid()); }

// log(1 + eˣ); as transformers has it, x itself above 20.
inline Tensor log_one_plus_exp(const Tensor& x) { return at::_ops::softplus::call(x, 1.0, 20.0); }

inline Tensor unit_length(const Tensor& x) { return x.mul(x.square().sum(-1, true).add(1e-6).rsqrt()); }

struct DeltaChunk {
  std::int64_t begin, end, depth;
  std::int64_t before;  // of a chunk that it continues, else of a given state, else −1
  std::size_t of = 0;   // its class
};

// A power of 2.
inline std::int64_t padded_chunk(std::int64_t size) {
  std::int64_t out = 1;
  while (out < size) out *= 2;
  return out;
}

// Chunks in the order of their tokens: each ends where somebody continues it or asks for its state.
inline std::vector<DeltaChunk> cut_chunks(const std::vector<DeltaRun>& runs, std::int64_t tokens,
                                          const std::vector<std::int64_t>& asked, std::vector<std::int64_t>& ending) {
  std::vector<bool> ends(static_cast<std::size_t>(tokens), false);
  for (const DeltaRun& run : runs)
    if (run.after >= 0) ends[static_cast<std::size_t>(run.after)] = true;
  for (const std::int64_t token : asked) ends[static_cast<std::size_t>(token)] = true;
  ending.assign(static_cast<std::size_t>(tokens), -1);  // the chunk that ends with a token
  std::vector<DeltaChunk> out;
  for (const DeltaRun& run : runs) {
    const std::int64_t parent = run.after >= 0 ? ending[static_cast<std::size_t>(run.after)] : -1;
    DeltaChunk next{run.begin, 0, parent >= 0 ? out[static_cast<std::size_t>(parent)].depth + 1 : 0,
                    parent >= 0 ? parent : run.initial};
    while (next.begin < run.end) {
      const std::int64_t most = std::min(run.end, next.begin + longest_delta_chunk);
      next.end = next.begin + 1;
      while (next.end < most && !ends[static_cast<std::size_t>(next.end - 1)]) ++next.end;
      const auto number = static_cast<std::int64_t>(out.size());
      ending[static_cast<std::size_t>(next.end - 1)] = number;
      out.push_back(next);
      next = {next.end, 0, next.depth + 1, number};
    }
  }
  return out;
}

// The token before each; `none` where there is none. Given windows stand behind the tokens.
inline std::vector<std::int64_t> predecessors(const std::vector<DeltaRun>& runs, std::int64_t tokens,
                                              std::int64_t window, std::int64_t initial) {
  const std::int64_t none = tokens + initial * window;
  std::vector<std::int64_t> out(static_cast<std::size_t>(none) + 1, none);
  for (const DeltaRun& run : runs)
    for (std::int64_t t = run.begin; t < run.end; ++t) {
      std::int64_t before = t - 1;
      if (t == run.begin) before = run.after >= 0 ? run.after : none;
      if (t == run.begin && run.after < 0 && run.initial >= 0 && window > 0)
        before = tokens + (run.initial + 1) * window - 1;
      out[static_cast<std::size_t>(t)] = before;
    }
  for (std::int64_t r = 0; r < initial; ++r)
    for (std::int64_t i = 1; i < window; ++i)
      out[static_cast<std::size_t>(tokens + r * window + i)] = tokens + r * window + i - 1;
  return out;
}

}  // namespace detail

RLALGO_INLINE DeltaLayout lay_out_delta(const std::vector<DeltaRun>& runs, std::int64_t tokens, std::int64_t kernel,
                                        const std::vector<std::int64_t>& asked, std::int64_t initial,
                                        at::Device device) {
  const auto on_device = [&](const std::vector<std::int64_t>& values) {
    return tensor::on_device(std::span<const std::int64_t>(values), device);
  };
  DeltaLayout out{.tokens = tokens};
  std::vector<std::int64_t> ending;
  std::vector<detail::DeltaChunk> chunks = detail::cut_chunks(runs, tokens, asked, ending);
  std::int64_t depths = 0;
  for (const detail::DeltaChunk& chunk : chunks) depths = std::max(depths, chunk.depth + 1);
  // By depth, then by length; a chunk's place in its depth.
  std::vector<std::vector<std::int64_t>> order(static_cast<std::size_t>(depths));
  for (std::size_t i = 0; i < chunks.size(); ++i)
    order[static_cast<std::size_t>(chunks[i].depth)].push_back(static_cast<std::int64_t>(i));
  const auto length_of = [&](std::int64_t i) {
    const detail::DeltaChunk& chunk = chunks[static_cast<std::size_t>(i)];
    return detail::padded_chunk(chunk.end - chunk.begin);
  };
  std::vector<std::int64_t> place(chunks.size());
  std::vector<std::vector<std::int64_t>> class_tokens;
  out.depths.resize(order.size());
  for (std::size_t d = 0; d < order.size(); ++d) {
    std::stable_sort(order[d].begin(), order[d].end(),
                     [&](std::int64_t a, std::int64_t b) { return length_of(a) < length_of(b); });
    for (std::size_t at = 0; at < order[d].size();) {
      const std::int64_t length = length_of(order[d][at]);
      std::size_t of = 0;
      while (of < out.classes.size() && out.classes[of].length != length) ++of;
      if (of == out.classes.size()) {
        out.classes.push_back({.length = length});
        class_tokens.emplace_back();
      }
      DeltaLayout::Batch batch{.of = of, .first = out.classes[of].count};
      std::vector<std::int64_t> before;
      for (; at < order[d].size() && length_of(order[d][at]) == length; ++at, ++batch.count) {
        detail::DeltaChunk& chunk = chunks[static_cast<std::size_t>(order[d][at])];
        place[static_cast<std::size_t>(order[d][at])] = static_cast<std::int64_t>(at);
        chunk.of = of;
        if (d > 0) before.push_back(place[static_cast<std::size_t>(chunk.before)]);
        // A sequence that begins with nothing among others that do not: the state of zeros behind the given ones.
        if (d == 0 && initial > 0) before.push_back(chunk.before >= 0 ? chunk.before : initial);
        for (std::int64_t t = chunk.begin; t < chunk.begin + length; ++t)
          class_tokens[of].push_back(t < chunk.end ? t : tokens);
      }
      out.classes[of].count += batch.count;
      if (!before.empty()) batch.before = on_device(before);
      out.depths[d].batches.push_back(std::move(batch));
    }
    if (d > 0) out.depths[d - 1].continues = true;
  }
  std::vector<std::int64_t> places(static_cast<std::size_t>(tokens));
  std::int64_t behind = 0;
  for (std::size_t of = 0; of < out.classes.size(); ++of) {
    for (std::size_t i = 0; i < class_tokens[of].size(); ++i)
      if (class_tokens[of][i] < tokens)
        places[static_cast<std::size_t>(class_tokens[of][i])] = behind + static_cast<std::int64_t>(i);
    behind += static_cast<std::int64_t>(class_tokens[of].size());
    out.classes[of].tokens = on_device(class_tokens[of]);
  }
  out.places = on_device(places);
  const std::int64_t window = kernel - 1;
  const std::vector<std::int64_t> previous = detail::predecessors(runs, tokens, window, initial);
  std::vector<std::int64_t> back(static_cast<std::size_t>(tokens));
  for (std::int64_t t = 0; t < tokens; ++t) back[static_cast<std::size_t>(t)] = t;
  for (std::int64_t j = 0; j < window; ++j) {
    for (std::int64_t& one : back) one = previous[static_cast<std::size_t>(one)];
    out.before.push_back(on_device(back));
  }
  if (asked.empty()) return out;
  std::vector<std::vector<std::int64_t>> kept(order.size());
  std::vector<std::size_t> depth_of;
  std::vector<std::int64_t> windows, answer;
  for (const std::int64_t token : asked) {
    const std::int64_t chunk = ending[static_cast<std::size_t>(token)];
    const auto d = static_cast<std::size_t>(chunks[static_cast<std::size_t>(chunk)].depth);
    depth_of.push_back(d);
    answer.push_back(static_cast<std::int64_t>(kept[d].size()));
    kept[d].push_back(place[static_cast<std::size_t>(chunk)]);
    std::vector<std::int64_t> seen(static_cast<std::size_t>(window));
    std::int64_t at = token;
    for (std::int64_t j = window; j-- > 0; at = previous[static_cast<std::size_t>(at)])
      seen[static_cast<std::size_t>(j)] = at;
    windows.insert(windows.end(), seen.begin(), seen.end());
  }
  std::vector<std::int64_t> first(order.size(), 0);
  for (std::size_t d = 0; d < order.size(); ++d) {
    if (d > 0) first[d] = first[d - 1] + static_cast<std::int64_t>(kept[d - 1].size());
    if (!kept[d].empty()) out.depths[d].kept = on_device(kept[d]);
  }
  for (std::size_t i = 0; i < answer.size(); ++i) answer[i] += first[depth_of[i]];
  out.asked = on_device(answer);
  out.windows = on_device(windows);
  return out;
}

RLALGO_INLINE DeltaLayout lay_out_delta(const TokenTree& tree, std::int64_t kernel, at::Device device) {
  std::vector<DeltaRun> runs;
  for (const Segment& segment : tree.segments) {
    DeltaRun run{.begin = segment.begin, .end = segment.end};
    // The ancestor that holds the last token of what the segment sees.
    std::int32_t ancestor = segment.prefix_length > 0 ? segment.parent : -1;
    while (ancestor >= 0 && segment.prefix_length <= tree.segments[static_cast<std::size_t>(ancestor)].prefix_length)
      ancestor = tree.segments[static_cast<std::size_t>(ancestor)].parent;
    if (ancestor >= 0) {
      const Segment& a = tree.segments[static_cast<std::size_t>(ancestor)];
      run.after = a.begin + segment.prefix_length - a.prefix_length - 1;
    }
    runs.push_back(run);
  }
  return lay_out_delta(runs, tree.tokens(), kernel, {}, 0, device);
}

namespace detail {

RLALGO_INLINE Tensor unit_lower_inverse(const Tensor& n) {
  const std::int64_t batch = n.size(0), length = n.size(1);
  Tensor out = n.new_ones({batch, length, 1, 1});  // of the blocks along the diagonal
  for (std::int64_t size = 1; size < length; size *= 2) {
    const std::int64_t count = length / (2 * size);
    const Tensor pairs = out.view({batch, count, 2, size, size});
    const Tensor upper = pairs.select(2, 0), lower = pairs.select(2, 1);  // [B, m, s, s]
    const Tensor below = n.view({batch, count, 2, size, count, 2, size})
                             .select(2, 1)
                             .select(4, 0)
                             .diagonal(0, 1, 3)
                             .permute({0, 3, 1, 2});  // [B, m, s, s]
    const Tensor corner = size == 1 ? below.neg() : lower.matmul(below).matmul(upper).neg();
    const Tensor top = tensor::concatenate({upper, tensor::zeros_like(upper)}, 3);
    out = tensor::concatenate({top, tensor::concatenate({corner, lower}, 3)}, 2);
  }
  return out.view({batch, length, length});
}

RLALGO_INLINE std::vector<Tensor> ungroup(const Tensor& y, std::int64_t heads,
                                          const std::vector<std::int64_t>& widths) {
  const Tensor grouped = y.view({y.size(0), heads, -1});
  std::vector<Tensor> out;
  std::int64_t first = 0;
  for (const std::int64_t width : widths) {
    out.push_back(grouped.narrow(2, first, width).reshape({y.size(0), heads * width}));
    first += width;
  }
  return out;
}

RLALGO_INLINE Tensor group(const std::vector<Tensor>& parts, std::int64_t heads) {
  std::vector<Tensor> views;
  for (const Tensor& part : parts) views.push_back(part.reshape({part.size(0), heads, part.size(1) / heads}));
  return tensor::concatenate(views, 2).flatten(1);
}

// What the recurrence reads of each token, in float32 or float64.
struct DeltaTokens {
  Tensor q, k, v, decay, beta;  // [T, hk, d] ×2, [T, hv, e], [T, hv] ×2
};

// What a chunk needs beside the state that it begins with; first dimensions [n, hv].
struct DeltaClass {
  Tensor values, keys;    // U [L, e], W [L, d]
  Tensor scores;          // QKᵀ ⊙ D [L, L]
  Tensor queries, close;  // Q ⊙ e^G, K ⊙ e^{G_L − G} [L, d]
  Tensor decay;           // e^{G_L} [1, 1]
};

inline DeltaClass prepare_class(const DeltaSpec& spec, const DeltaTokens& t, const DeltaLayout::Class& of) {
  const std::int64_t n = of.count, length = of.length, heads = spec.value_heads, share = heads / spec.key_heads;
  const auto of_heads = [&](const Tensor& x) {  // [T + 1, hv, …] → [n, hv, L, …]
    return rows_of(x, of.tokens).unflatten(0, {n, length}).transpose(1, 2);
  };
  const auto of_keys = [&](const Tensor& x) {  // [T + 1, hk, d] → [n, hv, L, d]
    const Tensor each = of_heads(x);
    if (share == 1) return each.contiguous();
    return each.unsqueeze(2).expand({n, spec.key_heads, share, length, spec.key_dim}).flatten(1, 2).contiguous();
  };
  const Tensor q = of_keys(t.q), k = of_keys(t.k), v = of_heads(t.v);
  // G as a product: the backward pass of cumsum is no operator of the meta device.
  const Tensor all = tensor::ones({length, length}, q.options());
  const Tensor beta = of_heads(t.beta).unsqueeze(3),
               sums = of_heads(t.decay).matmul(all.triu());  // [n, hv, L, 1], [n, hv, L]
  const Tensor later = all.triu(1).to(at::kBool);
  const Tensor pairs =
      sums.unsqueeze(3).sub(sums.unsqueeze(2)).masked_fill(later, -std::numeric_limits<double>::infinity()).exp();
  const Tensor along = k.transpose(2, 3), weighted = k.mul(beta);
  const Tensor inverse =
      unit_lower_inverse(weighted.matmul(along).mul(pairs).tril(-1).view({n * heads, length, length}))
          .view({n, heads, length, length});
  const Tensor last = sums.narrow(2, length - 1, 1), grown = sums.exp().unsqueeze(3);
  return {.values = inverse.matmul(v.mul(beta)),
          .keys = inverse.matmul(weighted.mul(grown)),
          .scores = q.matmul(along).mul(pairs),
          .queries = q.mul(grown),
          .close = k.mul(last.sub(sums).exp().unsqueeze(3)),
          .decay = last.exp().unsqueeze(3)};
}

// o [T, hv, e]; the states asked for go to `kept`, unless that is null.
inline Tensor delta_rule(const DeltaSpec& spec, DeltaTokens t, const DeltaLayout& layout, const Tensor& given,
                         Tensor* kept) {
  for (Tensor* x : {&t.q, &t.k, &t.v, &t.decay, &t.beta}) *x = with_zero_row(*x);
  std::vector<DeltaClass> classes;
  for (const DeltaLayout::Class& of : layout.classes) classes.push_back(prepare_class(spec, t, of));
  std::vector<std::vector<Tensor>> outputs(classes.size());
  std::vector<Tensor> asked;
  Tensor above = given.defined() ? with_zero_row(given) : Tensor();
  for (const DeltaLayout::Depth& depth : layout.depths) {
    std::vector<Tensor> states;
    for (const DeltaLayout::Batch& batch : depth.batches) {
      const DeltaClass& of = classes[batch.of];
      const auto mine = [&](const Tensor& x) { return x.narrow(0, batch.first, batch.count); };
      const Tensor before = batch.before.defined() ? rows_of(above, batch.before) : Tensor();
      Tensor fresh = mine(of.values);
      if (before.defined()) fresh = fresh.sub(mine(of.keys).matmul(before));
      Tensor out = mine(of.scores).matmul(fresh);
      if (before.defined()) out = out.add(mine(of.queries).matmul(before));
      outputs[batch.of].push_back(out);
      if (!depth.continues && !depth.kept.defined()) continue;
      Tensor state = mine(of.close).transpose(2, 3).matmul(fresh);
      if (before.defined()) state = state.add(before.mul(mine(of.decay)));
      states.push_back(state);
    }
    above = states.empty() ? Tensor() : states.size() == 1 ? states.front() : tensor::concatenate(states, 0);
    if (kept != nullptr && depth.kept.defined()) asked.push_back(rows_of(above, depth.kept));
  }
  if (kept != nullptr && !asked.empty()) *kept = rows_of(tensor::concatenate(asked, 0), layout.asked);
  std::vector<Tensor> all;
  for (std::vector<Tensor>& of : outputs)
    all.push_back(tensor::concatenate(of, 0).transpose(1, 2).reshape({-1, spec.value_heads, spec.value_dim}));
  return rows_of(tensor::concatenate(all, 0), layout.places);
}

// Tensors of a layer that the recurrence reads besides the products.
struct DeltaVectors {
  Tensor conv, a_log, dt_bias, norm;
};

inline Tensor delta_mix(const DeltaSpec& spec, double epsilon, const DeltaVectors& w, const DeltaInputs& in,
                        const DeltaLayout& layout, const DeltaState* given, DeltaState* after) {
  const at::ScalarType type = in.qkv.scalar_type(), wide = accumulator_type(type);
  const std::int64_t tokens = layout.tokens, keys = spec.keys();
  std::vector<Tensor> sources{in.qkv.to(wide)};
  if (given != nullptr) sources.push_back(given->windows.flatten(0, 1).to(wide));
  const Tensor inputs = with_zero_row(sources.size() == 1 ? sources.front() : tensor::concatenate(sources, 0));
  const Tensor taps = w.conv.to(wide).squeeze(1);  // [C, κ]
  Tensor mixed = sources.front().mul(taps.select(1, spec.kernel - 1));
  for (std::int64_t j = 1; j < spec.kernel; ++j)
    mixed = mixed.add(
        rows_of(inputs, layout.before[static_cast<std::size_t>(j - 1)]).mul(taps.select(1, spec.kernel - 1 - j)));
  mixed = times_sigmoid(mixed.to(type).to(wide)).to(type).to(wide);
  const auto heads = [&](std::int64_t first, std::int64_t count, std::int64_t width) {
    return mixed.narrow(1, first, count).reshape({tokens, -1, width});
  };
  const DeltaTokens t{
      .q = unit_length(heads(0, keys, spec.key_dim)).mul(1.0 / std::sqrt(static_cast<double>(spec.key_dim))),
      .k = unit_length(heads(keys, keys, spec.key_dim)),
      .v = heads(2 * keys, spec.values(), spec.value_dim),
      .decay = log_one_plus_exp(in.a.to(wide).add(w.dt_bias.to(wide))).mul(w.a_log.to(wide).exp().neg()),
      .beta = in.b.sigmoid().to(wide)};
  const bool asks = after != nullptr && layout.asked.defined();
  const Tensor o =
      delta_rule(spec, t, layout, given != nullptr ? given->states.to(wide) : Tensor(), asks ? &after->states : nullptr)
          .to(type)
          .to(wide);
  if (asks)
    after->windows = rows_of(inputs, layout.windows).view({layout.asked.size(0), spec.kernel - 1, spec.channels()});
  const Tensor unit = o.mul(o.square().mean(-1, true).add(epsilon).rsqrt()).to(type);
  const Tensor gate = times_sigmoid(in.z.to(wide)).view(o.sizes());
  return unit.mul(w.norm).to(wide).mul(gate).to(type).flatten(1);
}

}  // namespace detail

RLALGO_INLINE DeltaInputs delta_inputs(const DeltaSpec& spec, const LayerWeights& w, const Tensor& u,
                                       const DropoutDraw& drop) {
  if (!spec.grouped)
    return {linear(u, w.in_proj_qkv, drop), linear(u, w.in_proj_z, drop), linear(u, w.in_proj_b, drop),
            linear(u, w.in_proj_a, drop)};
  const std::int64_t share = spec.value_heads / spec.key_heads, values = share * spec.value_dim;
  const std::vector<Tensor> qkvz =
      detail::ungroup(linear(u, w.in_proj_qkvz, drop), spec.key_heads, {spec.key_dim, spec.key_dim, values, values});
  const std::vector<Tensor> ba = detail::ungroup(linear(u, w.in_proj_ba, drop), spec.key_heads, {share, share});
  return {tensor::concatenate({qkvz[0], qkvz[1], qkvz[2]}, 1), qkvz[3], ba[0], ba[1]};
}

RLALGO_INLINE Tensor delta_forward(const DeltaSpec& spec, double epsilon, const LayerWeights& w,
                                   const DeltaInputs& inputs, const DeltaLayout& layout, const DeltaState* given,
                                   DeltaState* after) {
  if (layout.tokens == 0) return inputs.z.new_empty({0, spec.values()});
  return detail::delta_mix(spec, epsilon, {w.conv, w.a_log, w.dt_bias, w.delta_norm}, inputs, layout, given, after);
}

RLALGO_INLINE DeltaInputs delta_backward(const DeltaSpec& spec, double epsilon, const LayerWeights& w,
                                         const DeltaInputs& inputs, const DeltaLayout& layout, const Tensor& grad) {
  if (layout.tokens == 0) return inputs;
  const c10::AutoGradMode recorded(true);
  const auto leaf = [](const Tensor& x, bool wanted) { return x.detach().requires_grad_(wanted); };
  const DeltaInputs in{leaf(inputs.qkv, true), leaf(inputs.z, true), leaf(inputs.b, true), leaf(inputs.a, true)};
  const Tensor* const weights[] = {&w.conv, &w.a_log, &w.dt_bias, &w.delta_norm};
  std::vector<Tensor> leaves;
  for (const Tensor* weight : weights) leaves.push_back(leaf(*weight, weight->requires_grad()));
  std::vector<Tensor> wanted{in.qkv, in.z, in.b, in.a};
  for (const Tensor& one : leaves)
    if (one.requires_grad()) wanted.push_back(one);
  detail::delta_mix(spec, epsilon, {leaves[0], leaves[1], leaves[2], leaves[3]}, in, layout, nullptr, nullptr)
      .backward(grad, std::nullopt, false, wanted);
  const c10::NoGradGuard no_grad;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (Tensor gradient = gradient_buffer(*weights[i]); gradient.defined()) gradient.add_(leaves[i].grad());
  return {in.qkv.grad(), in.z.grad(), in.b.grad(), in.a.grad()};
}

}  // namespace rlalgo::model
