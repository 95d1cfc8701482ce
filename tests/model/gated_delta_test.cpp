#include <rlalgo/model/gated_delta.hpp>

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <support/catch.hpp>

using namespace rlalgo;
using model::DeltaSpec;

namespace {

constexpr DeltaSpec spec{.key_heads = 2, .value_heads = 6, .key_dim = 5, .value_dim = 3, .kernel = 4};
constexpr double epsilon = 1e-5;

// A layer's tensors, differentiable.
model::LayerWeights random_weights(const DeltaSpec& s, at::ScalarType type = at::kDouble) {
  model::LayerWeights w;
  w.conv = at::randn({s.channels(), 1, s.kernel}, at::kDouble).mul(0.5).to(type).requires_grad_();
  w.a_log = at::rand({s.value_heads}, at::kDouble).mul(2).sub(1.5).to(type).requires_grad_();
  w.dt_bias = at::randn({s.value_heads}, at::kDouble).to(type).requires_grad_();
  w.delta_norm = at::randn({s.value_dim}, at::kDouble).mul(0.3).add(1).to(type).requires_grad_();
  return w;
}

model::DeltaInputs random_inputs(const DeltaSpec& s, std::int64_t tokens, at::ScalarType type = at::kDouble) {
  const auto input = [&](std::int64_t width) {
    return at::randn({tokens, width}, at::kDouble).to(type).requires_grad_();
  };
  return {input(s.channels()), input(s.values()), input(s.value_heads), input(s.value_heads)};
}

// One sequence, token after token, as the formula has it.
at::Tensor step_by_step(const DeltaSpec& s, const model::LayerWeights& w, const model::DeltaInputs& in,
                        const std::vector<std::int64_t>& tokens) {
  std::vector<at::Tensor> out;
  auto state = at::zeros({s.value_heads, s.key_dim, s.value_dim}, at::kDouble);
  const auto unit = [](const at::Tensor& x) { return x / (x.square().sum(-1, true) + 1e-6).sqrt(); };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::int64_t t = tokens[i];
    auto x = at::zeros({s.channels()}, at::kDouble);
    for (std::int64_t j = 0; j < s.kernel && j <= static_cast<std::int64_t>(i); ++j)
      x = x + in.qkv[tokens[i - static_cast<std::size_t>(j)]] * w.conv.select(1, 0).select(1, s.kernel - 1 - j);
    x = at::silu(x);
    const std::int64_t share = s.value_heads / s.key_heads;
    const auto q = unit(x.narrow(0, 0, s.keys()).view({s.key_heads, s.key_dim})).repeat_interleave(share, 0) /
                   std::sqrt(static_cast<double>(s.key_dim));
    const auto k = unit(x.narrow(0, s.keys(), s.keys()).view({s.key_heads, s.key_dim})).repeat_interleave(share, 0);
    const auto v = x.narrow(0, 2 * s.keys(), s.values()).view({s.value_heads, s.value_dim});
    const auto alpha = at::exp(-at::exp(w.a_log) * at::softplus(in.a[t] + w.dt_bias)).view({-1, 1, 1});
    const auto beta = at::sigmoid(in.b[t]).view({-1, 1});
    state = state * alpha;
    const auto seen = (state * k.unsqueeze(2)).sum(1);  // [hv, e]
    state = state + k.unsqueeze(2) * (beta * (v - seen)).unsqueeze(1);
    const auto o = (state * q.unsqueeze(2)).sum(1);
    const auto normed = o * (o.square().mean(-1, true) + epsilon).rsqrt() * w.delta_norm;
    out.push_back(normed.flatten() * at::silu(in.z[t]));
  }
  return at::stack(out);
}

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = begin; i < end; ++i) out.push_back(i);
  return out;
}

std::vector<at::Tensor*> leaves(model::LayerWeights& w, model::DeltaInputs& in) {
  return {&in.qkv, &in.z, &in.b, &in.a, &w.conv, &w.a_log, &w.dt_bias, &w.delta_norm};
}

// A prompt longer than two chunks, branches off its end, off its middle (two at one place), and off a branch, and a second root.
model::TokenTree branching_tree() {
  model::TokenTree tree;
  tree.segments = {{0, 150, -1, 0},    {150, 221, 0, 150}, {221, 224, 0, 150}, {224, 226, 0, 70}, {226, 296, 0, 70},
                   {296, 299, 4, 105}, {299, 300, 5, 70},  {300, 302, -1, 0},  {302, 303, 7, 1}};
  tree.ids.assign(303, 0);
  return tree;
}
// The tokens that each segment sees, and its own.
std::vector<std::vector<std::int64_t>> sequences_of(const model::TokenTree& tree) {
  std::vector<std::vector<std::int64_t>> out;
  for (const model::Segment& segment : tree.segments) {
    std::vector<std::int64_t> sequence;
    if (segment.parent >= 0) {
      sequence = out[static_cast<std::size_t>(segment.parent)];
      sequence.resize(static_cast<std::size_t>(segment.prefix_length));
    }
    for (const std::int64_t t : range(segment.begin, segment.end)) sequence.push_back(t);
    out.push_back(std::move(sequence));
  }
  return out;
}

}  // namespace

TEST_CASE(
    "the gated delta rule over a tree is that of each sequence by itself, token after token, values and gradients") {
  const auto tree = branching_tree();
  const auto sequences = sequences_of(tree);
  REQUIRE(sequences[6].size() == 71);  // of a grandparent: its own parent has not begun there
  auto w = random_weights(spec);
  auto in = random_inputs(spec, tree.tokens());
  std::vector<at::Tensor> rows;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t own = tree.segments[i].end - tree.segments[i].begin;
    const auto whole = step_by_step(spec, w, in, sequences[i]);
    rows.push_back(whole.narrow(0, whole.size(0) - own, own));
  }
  const auto expected = at::cat(rows);
  const auto grad = at::randn_like(expected);
  expected.backward(grad);
  std::vector<at::Tensor> gradients;
  for (at::Tensor* leaf : leaves(w, in)) gradients.push_back(std::exchange(leaf->mutable_grad(), at::Tensor()));

  const c10::NoGradGuard no_grad;
  const auto layout = model::lay_out_delta(tree, spec.kernel, at::kCPU);
  const auto out = model::delta_forward(spec, epsilon, w, in, layout);
  CHECK(out.allclose(expected, 1e-9, 1e-9));
  const auto back = model::delta_backward(spec, epsilon, w, in, layout, grad);
  const std::vector<at::Tensor> found{back.qkv,      back.z,         back.b,           back.a,
                                      w.conv.grad(), w.a_log.grad(), w.dt_bias.grad(), w.delta_norm.grad()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    INFO(i);
    CHECK(found[i].allclose(gradients[i], 1e-8, 1e-8));
  }
  // Gradients are added to what is there, and weights that are not trained get none.
  w.a_log.requires_grad_(false).mutable_grad() = at::Tensor();
  static_cast<void>(model::delta_backward(spec, epsilon, w, in, layout, grad));
  CHECK(w.conv.grad().allclose(2 * gradients[4], 1e-8, 1e-8));
  CHECK_FALSE(w.a_log.grad().defined());
}

TEST_CASE("a hand-made state: one head, two tokens") {
  // d = e = 1, κ = 1, weights 1, gates at 0: silu(4) = 4σ(4) = 3.92805…, l2 gives q = k = 1 (to 10⁻⁶); β = ½, A = 1, α = ½.
  // S₁ = ½·v₁, o₁ = S₁;  S₂ = ½S₁ + ½(v₂ − ½S₁) = ¼S₁ + ½v₂. The norm of one number is its sign, so the states are read.
  constexpr DeltaSpec one{.key_heads = 1, .value_heads = 1, .key_dim = 1, .value_dim = 1, .kernel = 1};
  model::LayerWeights w;
  w.conv = at::ones({3, 1, 1}, at::kDouble);
  w.a_log = at::zeros({1}, at::kDouble);
  w.dt_bias = at::zeros({1}, at::kDouble);
  w.delta_norm = at::ones({1}, at::kDouble);
  const model::DeltaInputs in{at::tensor({4.0, 4.0, 4.0, 4.0, 4.0, 8.0}, at::kDouble).view({2, 3}),
                              at::ones({2, 1}, at::kDouble), at::zeros({2, 1}, at::kDouble),
                              at::zeros({2, 1}, at::kDouble)};
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  model::DeltaState after;
  const auto layout = model::lay_out_delta({{.begin = 0, .end = 2}}, 2, 1, {0, 1}, 0, at::kCPU);
  const auto out = model::delta_forward(one, 0.0, w, in, layout, nullptr, &after);
  const double first = 0.5 * silu(4), second = first / 4 + 0.5 * silu(8);
  CHECK(after.states.view(-1)[0].item<double>() == Approx(first).epsilon(1e-6));
  CHECK(after.states.view(-1)[1].item<double>() == Approx(second).epsilon(1e-6));
  CHECK(out[0].item<double>() == Approx(silu(1)));
  CHECK(after.windows.numel() == 0);
}

TEST_CASE("a sequence in parts, from the states and windows that were asked for, is the sequence in one") {
  const auto w = random_weights(spec);
  const c10::NoGradGuard no_grad;
  const std::int64_t all = 140;
  const auto in = random_inputs(spec, all);
  const auto whole = model::delta_forward(spec, epsilon, w, in,
                                          model::lay_out_delta({{.begin = 0, .end = all}}, all, 4, {}, 0, at::kCPU));
  // Two sequences of which the second begins, behind the first of a pass; then both go on, and a third one begins between them.
  const auto part = [&](const std::vector<std::int64_t>& tokens) {
    const auto index = at::tensor(tokens);
    return model::DeltaInputs{in.qkv.index_select(0, index), in.z.index_select(0, index), in.b.index_select(0, index),
                              in.a.index_select(0, index)};
  };
  const auto join = [](std::vector<std::int64_t> a, const std::vector<std::int64_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  model::DeltaState after, last;
  const auto one =
      model::lay_out_delta({{.begin = 0, .end = 71}, {.begin = 71, .end = 73}}, 73, 4, {72, 66, 70}, 0, at::kCPU);
  static_cast<void>(
      model::delta_forward(spec, epsilon, w, part(join(range(0, 71), range(0, 2))), one, nullptr, &after));
  const auto tokens = join(join(range(2, 5), range(0, 9)), join(range(67, 68), range(71, all)));
  const auto two = model::lay_out_delta({{.begin = 0, .end = 3, .initial = 0},
                                         {.begin = 3, .end = 12},
                                         {.begin = 12, .end = 13, .initial = 1},
                                         {.begin = 13, .end = 13 + all - 71, .initial = 2}},
                                        13 + all - 71, 4, {2}, 3, at::kCPU);
  const auto out = model::delta_forward(spec, epsilon, w, part(tokens), two, &after, &last);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    INFO(i);
    CHECK(out[static_cast<std::int64_t>(i)].allclose(whole[tokens[i]], 1e-9, 1e-9));
  }
  CHECK(last.windows.squeeze(0).equal(in.qkv.narrow(0, 2, 3)));
  CHECK(after.windows[0].equal(at::cat({at::zeros({1, spec.channels()}, at::kDouble), in.qkv.narrow(0, 0, 2)})));
}

TEST_CASE("grouped maps are the others with their rows in another order") {
  DeltaSpec grouped = spec;
  grouped.grouped = true;
  const std::int64_t hidden = 7, share = 3, d = spec.key_dim, values = share * spec.value_dim;
  model::LayerWeights w, g;
  const auto map = [&](std::int64_t rows) {
    return model::Linear{at::randn({rows, hidden}, at::kDouble).requires_grad_(), {}};
  };
  w.in_proj_qkv = map(spec.channels()), w.in_proj_z = map(spec.values());
  w.in_proj_b = map(spec.value_heads), w.in_proj_a = map(spec.value_heads);
  std::vector<at::Tensor> qkvz, ba;
  for (std::int64_t h = 0; h < spec.key_heads; ++h) {
    const auto qkv = w.in_proj_qkv.weight.detach();
    qkvz.push_back(qkv.narrow(0, h * d, d));
    qkvz.push_back(qkv.narrow(0, spec.keys() + h * d, d));
    qkvz.push_back(qkv.narrow(0, 2 * spec.keys() + h * values, values));
    qkvz.push_back(w.in_proj_z.weight.detach().narrow(0, h * values, values));
    ba.push_back(w.in_proj_b.weight.detach().narrow(0, h * share, share));
    ba.push_back(w.in_proj_a.weight.detach().narrow(0, h * share, share));
  }
  g.in_proj_qkvz = {at::cat(qkvz).requires_grad_(), {}};
  g.in_proj_ba = {at::cat(ba).requires_grad_(), {}};
  const c10::NoGradGuard no_grad;
  const auto u = at::randn({5, hidden}, at::kDouble);
  const auto a = model::delta_inputs(spec, w, u, {}), b = model::delta_inputs(grouped, g, u, {});
  CHECK(a.qkv.allclose(b.qkv, 1e-12, 1e-12));
  CHECK((a.z.allclose(b.z) && a.b.allclose(b.b) && a.a.allclose(b.a)));
  const model::DeltaInputs grad{at::randn_like(a.qkv), at::randn_like(a.z), at::randn_like(a.b), at::randn_like(a.a)};
  const auto input = [&] { return u; };
  const auto back = model::delta_inputs_backward(spec, w, grad, input, {});
  CHECK(model::delta_inputs_backward(grouped, g, grad, input, {}).allclose(back, 1e-10, 1e-10));
  CHECK(
      g.in_proj_qkvz.weight.grad().narrow(0, 0, d).allclose(w.in_proj_qkv.weight.grad().narrow(0, 0, d), 1e-10, 1e-10));
  CHECK(g.in_proj_ba.weight.grad().narrow(0, share, share).allclose(w.in_proj_a.weight.grad().narrow(0, 0, share)));
}

TEST_CASE("a unit lower triangular matrix is inverted to rounding, equal keys included") {
  for (const std::int64_t length : {1, 2, 8, 64}) {
    const auto random = at::randn({3, length, length}, at::kDouble).tril(-1);
    const auto equal = at::ones({1, length, length}, at::kDouble).tril(-1);  // powers of this one reach 10¹⁸
    for (const auto& n : {random.mul(0.3), equal}) {
      const auto eye = at::eye(length, at::kDouble);
      CHECK(model::detail::unit_lower_inverse(n).matmul(n.add(eye)).allclose(eye.expand_as(n), 1e-9, 1e-9));
      const auto single = n.to(at::kFloat);
      CHECK(model::detail::unit_lower_inverse(single)
                .matmul(single.add(eye.to(at::kFloat)))
                .allclose(eye.to(at::kFloat).expand_as(n), 1e-3, 1e-3));
    }
  }
}

TEST_CASE("bfloat16 is float32 to rounding, and nothing touches memory") {
  auto w = random_weights(spec, at::kBFloat16);
  auto in = random_inputs(spec, 80, at::kBFloat16);
  const c10::NoGradGuard no_grad;
  const auto layout = model::lay_out_delta({{.begin = 0, .end = 80}}, 80, 4, {}, 0, at::kCPU);
  const auto low = model::delta_forward(spec, epsilon, w, in, layout);
  CHECK(low.scalar_type() == at::kBFloat16);
  auto wide_w = w;
  auto wide_in = in;
  for (at::Tensor* leaf : leaves(wide_w, wide_in)) *leaf = leaf->to(at::kFloat);
  CHECK((low - model::delta_forward(spec, epsilon, wide_w, wide_in, layout)).abs().max().item<double>() < 0.1);
  CHECK(model::delta_backward(spec, epsilon, w, in, layout, low).qkv.scalar_type() == at::kBFloat16);
  for (at::Tensor* leaf : leaves(wide_w, wide_in)) *leaf = leaf->to(at::kMeta).requires_grad_();
  const auto tree = branching_tree();
  for (at::Tensor* one : {&wide_in.qkv, &wide_in.z, &wide_in.b, &wide_in.a})
    *one = at::empty({tree.tokens(), one->size(1)}, one->options());
  const auto nowhere = model::lay_out_delta(tree, 4, at::kMeta);
  CHECK(model::delta_forward(spec, epsilon, wide_w, wide_in, nowhere).sizes() == at::IntArrayRef({303, 18}));
  CHECK(model::delta_backward(spec, epsilon, wide_w, wide_in, nowhere, at::empty({303, 18}, wide_in.qkv.options()))
            .a.sizes() == at::IntArrayRef({303, 6}));
}
