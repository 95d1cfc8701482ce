#include <rlalgo/tensor/attention.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <support/catch.hpp>
#include <support/not_run.hpp>

using namespace rlalgo::tensor;
using Sees = AttentionPiece::Sees;

namespace {

// By the formula, in float64, with a mask over all queries and keys.
struct Exact {
  at::Tensor value, log_sum, q, k, v;
};
Exact exact(const at::Tensor& q_in, const at::Tensor& k_in, const at::Tensor& v_in, const at::Tensor& grad,
            const std::vector<AttentionPiece>& pieces, double cap = 0.0) {
  const auto q = q_in.to(at::kDouble).requires_grad_(), k = k_in.to(at::kDouble).requires_grad_(),
             v = v_in.to(at::kDouble).requires_grad_();
  const auto seen = at::zeros({q.size(0), k.size(0)}, at::kBool);
  for (const auto& p : pieces)
    for (std::int64_t i = p.query_begin; i < p.query_end; ++i)
      for (std::int64_t j = p.key_begin; j < p.key_end; ++j) {
        const std::int64_t query = i - p.query_begin, key = j - p.key_begin;
        if (p.sees == Sees::all || (p.sees == Sees::causal && key <= query) ||
            (p.sees == Sees::after && key > query + p.offset))
          seen[i][j] = true;
      }
  const std::int64_t group = q.size(1) / k.size(1);
  const auto keys = k.repeat_interleave(group, 1), values = v.repeat_interleave(group, 1);
  auto scores = at::einsum("ihd,jhd->hij", {q, keys}) / std::sqrt(static_cast<double>(q.size(2)));
  if (cap > 0) scores = at::tanh(scores / cap) * cap;
  scores = scores.masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  const auto value = at::einsum("hij,jhd->ihd", {scores.softmax(-1), values});
  const auto log_sum = scores.logsumexp(-1).t();
  value.backward(grad.to(at::kDouble));
  return {value.detach(), log_sum.detach(), q.grad(), k.grad(), v.grad()};
}

struct Found {
  at::Tensor value, log_sum, q, k, v;
};
Found ours(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& grad,
           const std::vector<AttentionPiece>& pieces, double cap = 0.0) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Found out{at::full_like(q, nan), at::full({q.size(0), q.size(1)}, nan, at::kFloat), at::full_like(q, nan),
            at::full_like(k, nan), at::full_like(v, nan)};
  attend({q, k, v, 0.0, cap}, pieces, false, out.value, out.log_sum);
  attend_backward(grad, {q, k, v, 0.0, cap}, out.value, out.log_sum, pieces, false, {out.q, out.k, out.v});
  return out;
}

bool close(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  const double tolerance = type == at::kFloat ? 3e-5 : 3e-2;
  return a.to(at::kDouble).allclose(b.to(at::kDouble), tolerance, tolerance);
}

// Segments of a length each, and what later ones see of earlier ones.
std::vector<AttentionPiece> own(const std::vector<std::int64_t>& lengths) {
  std::vector<AttentionPiece> out;
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    out.push_back({begin, begin + length, begin, begin + length, Sees::causal});
    begin += length;
  }
  return out;
}

bool absent(at::ScalarType type) {
  if (has_attention(type)) return false;
  rlalgo::support::not_run_in_part(std::string("no attention kernels for ") + c10::toString(type) +
                                   " on this processor");
  return true;
}

const std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16};

}  // namespace

TEST_CASE("attention over pieces and its gradients are the formula's") {
  at::manual_seed(3);
  struct Case {
    std::int64_t tokens;
    std::vector<AttentionPiece> pieces;
  };
  std::vector<Case> cases = {{1, own({1})}, {64, own({64})}, {300, own({300})}, {97, own({5, 33, 1, 58})}};
  cases.push_back({170, own({130, 10, 29, 1})});  // a prompt, its completions, and one that sees a part of it
  cases.back().pieces.push_back({130, 169, 0, 130});
  cases.back().pieces.push_back({169, 170, 0, 3});
  cases.push_back({260, own({130, 70, 60})});  // a window of keys
  cases.back().pieces.push_back({130, 200, 0, 130, Sees::after, 59});
  cases.back().pieces.push_back({200, 259, 130, 190, Sees::after, 0});
  for (const auto type : types) {
    if (absent(type)) continue;
    for (const auto& [heads, shared, width] : {std::tuple<std::int64_t, std::int64_t, std::int64_t>{1, 1, 64},
                                               {4, 2, 16},
                                               {3, 1, 40},
                                               {2, 2, 6},
                                               {3, 3, 1},
                                               {2, 1, 128}})
      for (const auto& c : cases) {
        const auto q = at::randn({c.tokens, heads, width}).to(type), k = at::randn({c.tokens, shared, width}).to(type),
                   v = at::randn({c.tokens, shared, width}).to(type), grad = at::randn(q.sizes()).to(type);
        for (const double cap : {0.0, 1.3}) {
          const auto a = ours(q, k, v, grad, c.pieces, cap);
          const auto b = exact(q, k, v, grad, c.pieces, cap);
          INFO(c10::toString(type) << ", " << c.tokens << " tokens, " << heads << " heads of " << width << " on "
                                   << shared);
          CHECK(close(a.value, b.value, type));
          CHECK(close(a.log_sum, b.log_sum, type));
          // bfloat16: p and its derivative are rounded, and many of them are summed.
          const auto apart = [&](const at::Tensor& x, const at::Tensor& y) {
            return (x.to(at::kDouble) - y).norm().item<double>() / (1.0 + y.norm().item<double>());
          };
          const double most = type == at::kFloat ? 1e-5 : 1e-2;
          CHECK(apart(a.q, b.q) <= most);
          CHECK(apart(a.k, b.k) <= most);
          CHECK(apart(a.v, b.v) <= most);
        }
      }
  }
}

TEST_CASE("scores far apart neither overflow nor lose the largest") {
  for (const auto type : types) {
    if (absent(type)) continue;
    const auto q = at::full({200, 1, 16}, 30.0).to(type), v = at::randn({200, 1, 16}).to(type);
    const auto k = at::linspace(-30.0, 30.0, 200).view({200, 1, 1}).expand({200, 1, 16}).to(type).contiguous();
    const auto a = ours(q, k, v, at::ones_like(q), own({200}));
    CHECK(close(a.value, exact(q, k, v, at::ones_like(q), own({200})).value, type));
    CHECK(a.k.isfinite().all().item<bool>());
  }
}

TEST_CASE("keys that come later are merged, and their gradients added") {
  for (const auto type : types) {
    if (absent(type)) continue;
    const auto q = at::randn({70, 4, 32}).to(type), grad = at::randn({70, 4, 32}).to(type);
    const auto k = at::randn({150, 2, 32}).to(type), v = at::randn({150, 2, 32}).to(type);
    const std::vector<AttentionPiece> first = {{0, 70, 0, 70, Sees::causal}}, more = {{20, 70, 70, 150}};
    std::vector<AttentionPiece> all = first;
    all.push_back(more.front());
    const auto whole = exact(q, k, v, grad, all);
    Found a{at::empty_like(q), at::empty({70, 4}), at::empty_like(q), at::zeros_like(k), at::zeros_like(v)};
    attend({q, k, v}, first, false, a.value, a.log_sum);
    const auto early = a.value.narrow(0, 0, 20).clone();
    attend({q, k, v}, more, true, a.value, a.log_sum);
    CHECK(close(a.value, whole.value, type));
    CHECK(close(a.log_sum, whole.log_sum, type));
    CHECK(a.value.narrow(0, 0, 20).equal(early));
    attend_backward(grad, {q, k, v}, a.value, a.log_sum, first, false, {a.q, a.k, a.v});
    attend_backward(grad, {q, k, v}, a.value, a.log_sum, more, true, {a.q, a.k, a.v});
    CHECK(close(a.q, whole.q, type));
    CHECK(close(a.k, whole.k, type));
    CHECK(close(a.v, whole.v, type));
  }
}

TEST_CASE("a segment's bits depend neither on its neighbours nor on the number of threads") {
  for (const auto type : types) {
    if (absent(type)) continue;
    const auto q = at::randn({210, 3, 32}).to(type), k = at::randn({210, 1, 32}).to(type),
               v = at::randn({210, 1, 32}).to(type), grad = at::randn({210, 3, 32}).to(type);
    const int before = at::get_num_threads();
    at::set_num_threads(1);
    const auto one = ours(q, k, v, grad, own({60, 83, 67}));
    at::set_num_threads(3);
    const auto three = ours(q, k, v, grad, own({60, 83, 67}));
    at::set_num_threads(before);
    const auto part = [](const at::Tensor& x) { return x.narrow(0, 60, 83).contiguous(); };
    const auto alone = ours(part(q), part(k), part(v), part(grad), own({83}));
    for (const auto& [x, y, z] : {std::tuple(one.value, three.value, alone.value),
                                  {one.log_sum, three.log_sum, alone.log_sum},
                                  {one.q, three.q, alone.q},
                                  {one.k, three.k, alone.k},
                                  {one.v, three.v, alone.v}}) {
      CHECK(x.equal(y));
      CHECK(part(x).equal(z));
    }
  }
}
