// What attention reads of queries, keys and values against norm, rotation and a gather by themselves; its gradient against float64.
#include <support/catch.hpp>
#include <support/heads_one_by_one.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/unrolled_heads.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

constexpr double epsilon = 1e-6;

struct Case {
  std::int64_t rows, heads, kv_heads, dim, half;
  std::vector<std::int64_t> tokens = {};  // of keys; none: every row once
  bool norm = false, one_more = false, once = false, interleaved = false;
  bool joined = true;  // columns of one product, or matrices of their own
  bool q_trained = true, k_trained = true;
  std::size_t offset = 0;

  [[nodiscard]] std::int64_t heads_of(int kind) const { return kind == 0 ? heads : kv_heads; }
  [[nodiscard]] std::int64_t keys() const { return tokens.empty() ? rows : static_cast<std::int64_t>(tokens.size()); }
  [[nodiscard]] std::int64_t token_of(std::int64_t key) const {
    return tokens.empty() ? key : tokens[static_cast<std::size_t>(key)];
  }
  // Elements between rows, and where a head of a row begins, within what holds all three.
  [[nodiscard]] std::int64_t stride(int kind) const {
    return joined ? (heads + 2 * kv_heads) * dim : heads_of(kind) * dim + 2 * dim;
  }
  [[nodiscard]] std::int64_t begin(int kind) const {
    if (joined) return kind == 0 ? 0 : (heads + (kind - 1) * kv_heads) * dim;
    std::int64_t out = 0;
    for (int i = 0; i < kind; ++i) out += rows * stride(i);
    return out;
  }
  [[nodiscard]] std::size_t size() const {
    return static_cast<std::size_t>(joined ? rows * stride(0) : rows * (stride(0) + stride(1) + stride(2)));
  }
  [[nodiscard]] std::size_t place(int kind, std::int64_t row, std::int64_t head, std::int64_t d) const {
    return static_cast<std::size_t>(begin(kind) + row * stride(kind) + head * dim + d);
  }
};

// Pairs of elements that are rotated together, by angle.
std::pair<std::int64_t, std::int64_t> pair_of(const Case& c, std::int64_t i) {
  return c.interleaved ? std::pair(2 * i, 2 * i + 1) : std::pair(i, i + c.half);
}

template <class T>
struct Given {
  std::vector<T> x, weight[2];
  std::vector<float> cosine, sine;

  explicit Given(const Case& c)
      : x(normal<T>(c.size(), 1, 2.0)),
        weight{normal<T>(static_cast<std::size_t>(c.dim), 2), normal<T>(static_cast<std::size_t>(c.dim), 3)} {
    for (std::int64_t i = 0; i < c.rows * c.half; ++i) {
      cosine.push_back(std::cos(0.37F * static_cast<float>(i)));
      sine.push_back(std::sin(0.37F * static_cast<float>(i)));
    }
  }
};

template <class T>
struct There {
  Memory<T> x, q_weight, k_weight, q, k, v;
  Memory<float> cosine, sine;
  Memory<std::int64_t> tokens;

  There(const Case& c, const Given<T>& g)
      : x(g.x, c.offset),
        q_weight(g.weight[0]),
        k_weight(g.weight[1]),
        q(static_cast<std::size_t>(c.rows * c.heads * c.dim)),
        k(static_cast<std::size_t>(c.keys() * c.kv_heads * c.dim)),
        v(static_cast<std::size_t>(c.keys() * c.kv_heads * c.dim)),
        cosine(g.cosine),
        sine(g.sine),
        tokens(c.tokens) {}

  [[nodiscard]] cuda::UnrolledHeads arguments(const Case& c) const {
    cuda::UnrolledHeads a{.to = {q.data(), k.data(), v.data()},
                          .rows = c.rows,
                          .keys = c.keys(),
                          .heads = c.heads,
                          .kv_heads = c.kv_heads,
                          .head_dim = c.dim,
                          .half = c.half,
                          .epsilon = static_cast<float>(epsilon),
                          .one_more = c.one_more,
                          .once = c.once,
                          .interleaved = c.interleaved,
                          .element = element_of<T>};
    for (int i = 0; i < 3; ++i) {
      a.from[i] = x.data() + c.begin(i);
      a.stride[i] = c.stride(i);
    }
    if (c.norm) {
      a.weight[0] = q_weight.data();
      a.weight[1] = k_weight.data();
    }
    if (c.half > 0) {
      a.cosine = cosine.data();
      a.sine = sine.data();
    }
    if (!c.tokens.empty()) a.tokens = tokens.data();
    return a;
  }
};

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T& x : values) out.push_back(wide(x));
  return out;
}

// By kernels of their own.
template <class T>
std::vector<T> one_by_one(const Case& c, const Given<T>& g, int kind) {
  const std::int64_t heads = c.heads_of(kind);
  std::vector<T> rows;
  for (std::int64_t r = 0; r < c.rows; ++r)
    for (std::int64_t i = 0; i < heads * c.dim; ++i) rows.push_back(g.x[c.place(kind, r, 0, i)]);
  const Memory<T> x(rows), weight(g.weight[kind == 0 ? 0 : 1]);
  const Memory<float> cosine(g.cosine), sine(g.sine);
  if (kind != 2) norm_and_rotate(c, static_cast<float>(epsilon), x, weight, cosine, sine, c.rows, heads);
  const auto found = x.values();
  if (kind == 0) return found;
  std::vector<T> out;
  for (std::int64_t key = 0; key < c.keys(); ++key)
    for (std::int64_t i = 0; i < heads * c.dim; ++i)
      out.push_back(found[static_cast<std::size_t>(c.token_of(key) * heads * c.dim + i)]);
  return out;
}

template <class T>
void check_forward(const Case& c) {
  CAPTURE(c.rows, c.heads, c.kv_heads, c.dim, c.half, c.tokens, c.norm, c.one_more, c.once, c.interleaved, c.joined,
          c.offset, sizeof(T));
  const Given<T> given(c);
  const There<T> there(c, given);
  must_work(cuda::unrolled_heads(there.arguments(c), nullptr));
  const Memory<T>* const found[] = {&there.q, &there.k, &there.v};
  for (int kind = 0; kind < 3; ++kind) {
    CAPTURE(kind);
    const auto expected = one_by_one(c, given, kind), values = found[kind]->values();
    if (!c.norm || kind == 2) {
      CHECK(same_bits(values, expected));
      continue;
    }
    // In bfloat16 a sum in another order seldom changes a rounded number.
    std::size_t others = 0;
    for (std::size_t i = 0; i < values.size(); ++i) others += wide(values[i]) != wide(expected[i]) ? 1 : 0;
    if (sizeof(T) == 2) CHECK(others * 30 <= values.size());
    CHECK(distance(values, widened(expected), 1.0) <= 3.0 * rounding<T> + 6e-7);
  }
}

template <class T>
void check_gradient(const Case& c) {
  CAPTURE(c.rows, c.heads, c.kv_heads, c.dim, c.half, c.tokens, c.norm, c.one_more, c.interleaved, c.joined,
          c.q_trained, c.k_trained, c.offset, sizeof(T));
  const Given<T> given(c);
  const There<T> there(c, given);
  const std::vector<T> grads[] = {normal<T>(static_cast<std::size_t>(c.rows * c.heads * c.dim), 11),
                                  normal<T>(static_cast<std::size_t>(c.keys() * c.kv_heads * c.dim), 12),
                                  normal<T>(static_cast<std::size_t>(c.keys() * c.kv_heads * c.dim), 13)};
  const std::vector<T> before[] = {normal<T>(static_cast<std::size_t>(c.dim), 14),
                                   normal<T>(static_cast<std::size_t>(c.dim), 15)};
  // In float64.
  std::vector<double> want(c.size(), std::nan("")), want_weight[2];
  for (int kind = 0; kind < 3; ++kind) {
    std::vector<double> of_weight(static_cast<std::size_t>(c.dim), 0.0);
    for (std::int64_t row = 0; row < c.rows; ++row)
      for (std::int64_t head = 0; head < c.heads_of(kind); ++head) {
        std::vector<double> g(static_cast<std::size_t>(c.dim), 0.0);
        for (std::int64_t key = 0; key < (kind == 0 ? c.rows : c.keys()); ++key) {
          if ((kind == 0 ? key : c.token_of(key)) != row) continue;
          for (std::size_t d = 0; d < g.size(); ++d)
            g[d] += wide(grads[kind][static_cast<std::size_t>((key * c.heads_of(kind) + head) * c.dim) + d]);
        }
        for (std::int64_t i = 0; kind != 2 && i < c.half; ++i) {
          const auto [first, second] = pair_of(c, i);
          const double cosine = given.cosine[static_cast<std::size_t>(row * c.half + i)],
                       sine = given.sine[static_cast<std::size_t>(row * c.half + i)];
          double &low = g[static_cast<std::size_t>(first)], &high = g[static_cast<std::size_t>(second)];
          const double y = low * cosine + high * sine;
          high = high * cosine - low * sine;
          low = y;
        }
        const auto x = [&](std::size_t d) {
          return wide(given.x[c.place(kind, row, head, static_cast<std::int64_t>(d))]);
        };
        double scale = 1.0, pull = 0.0;
        if (c.norm && kind != 2) {
          double squares = 0.0;
          for (std::size_t d = 0; d < g.size(); ++d) squares += x(d) * x(d);
          scale = 1.0 / std::sqrt(squares / static_cast<double>(c.dim) + epsilon);
          for (std::size_t d = 0; d < g.size(); ++d) {
            of_weight[d] += g[d] * x(d) * scale;
            g[d] *= wide(given.weight[kind][d]) + (c.one_more ? 1.0 : 0.0);
            pull += g[d] * x(d);
          }
          pull *= scale * scale * scale / static_cast<double>(c.dim);
        }
        for (std::size_t d = 0; d < g.size(); ++d)
          want[c.place(kind, row, head, static_cast<std::int64_t>(d))] =
              c.norm && kind != 2 ? g[d] * scale - x(d) * pull : g[d];
      }
    if (kind != 2)
      for (std::size_t d = 0; d < of_weight.size(); ++d)
        want_weight[kind].push_back(wide(before[kind][d]) + of_weight[d]);
  }
  const Memory<T> q_grad(grads[0], c.offset), k_grad(grads[1]), v_grad(grads[2]), out(c.size(), c.offset),
      q_weight(before[0]), k_weight(before[1]);
  const Memory<float> partial(static_cast<std::size_t>(2 * cuda::unrolled_heads_chunks(c.rows, c.heads) * c.dim));
  cuda::UnrolledHeadsGradient a{.of = there.arguments(c), .grad = {q_grad.data(), k_grad.data(), v_grad.data()}};
  for (int i = 0; i < 3; ++i) {
    a.of.to[i] = nullptr;
    a.out[i] = out.data() + c.begin(i);
    a.out_stride[i] = c.stride(i);
  }
  const bool trained[] = {c.norm && c.q_trained, c.norm && c.k_trained};
  if (trained[0]) a.grad_weight[0] = q_weight.data();
  if (trained[1]) a.grad_weight[1] = k_weight.data();
  if (trained[0] || trained[1]) a.partial = partial.data();
  std::vector<std::int64_t> first(1, 0), order;
  for (std::int64_t row = 0; row < c.rows; ++row) {
    for (std::int64_t key = 0; key < c.keys(); ++key)
      if (c.token_of(key) == row) order.push_back(key);
    first.push_back(static_cast<std::int64_t>(order.size()));
  }
  const Memory<std::int64_t> first_there(first), order_there(order);
  if (!c.tokens.empty()) {
    a.first = first_there.data();
    a.order = order_there.data();
  }
  must_work(cuda::unrolled_heads_gradient(a, nullptr));
  CHECK(distance(out.values(), want, 1.0) <= 1.05 * rounding<T> + 3e-6);  // what is between rows stays
  const Memory<T>* const weights[] = {&q_weight, &k_weight};
  for (int kind = 0; kind < 2; ++kind) {
    CAPTURE(kind);
    if (trained[kind])
      CHECK(distance(weights[kind]->values(), want_weight[kind], 1.0 + std::sqrt(static_cast<double>(c.rows))) <=
            1.05 * rounding<T> + 3e-6);
    else
      CHECK(same_bits(weights[kind]->values(), before[kind]));
  }
}

const std::vector<std::int64_t> shared{0, 1, 2, 0, 1,
                                       3, 0, 1, 4, 5};  // three rows behind two that they share, and one by itself
const std::vector<Case> cases = {
    {6, 14, 2, 64, 32, shared},
    {6, 4, 2, 128, 64, shared, true},
    {6, 2, 1, 256, 128, shared, true, true},
    {6, 3, 3, 40, 12, shared, true, false, true},
    {5, 2, 1, 48, 16, {}, true},  // a part of the head is rotated, in runs
    {5, 2, 1, 24, 10, {}, false, false, false, true},
    {6, 2, 1, 256, 100, shared, true, false, false, true},
    {4, 2, 2, 6, 0, {}},
    {4, 2, 2, 96, 0, {}, true},
    {6, 3, 1, 80, 40, shared, true, false, false, false, false},
    {6, 3, 1, 64, 32, shared, false, false, false, false, false},
    {6, 2, 2, 64, 32, shared, true, false, false, false, true, true, true, 1},
    {1, 1, 1, 8, 4, {0, 0, 0}},
    {0, 2, 1, 8, 4, {}},
};

}  // namespace

TEST_CASE("Unrolled heads are normalised, rotated and gathered as by kernels of their own") {
  for (const Case& c : cases) {
    in_orders([&] { check_forward<float>(c); }, 1);
    check_forward<Bfloat16>(c);
  }
}

TEST_CASE("The gradient of unrolled heads is summed over a row's keys, rotated back and that of the norm") {
  for (const Case& c : cases) {
    in_orders([&] { check_gradient<float>(c); }, 1);
    check_gradient<Bfloat16>(c);
  }
  Case one{6, 4, 2, 32, 16, shared, true};
  one.k_trained = false;
  check_gradient<float>(one);
  std::swap(one.q_trained, one.k_trained);
  check_gradient<Bfloat16>(one);
  one.k_trained = false;
  check_gradient<float>(one);
  in_orders([&] { check_gradient<float>({70, 5, 1, 16, 8, {}, true}); }, 4);  // chunks of more than one block
}

TEST_CASE("What the kernels of unrolled heads cannot do is an error of their launchers") {
  const auto of = [](cuda::UnrolledHeads a) {
    const auto forward = cuda::unrolled_heads(a, nullptr);
    CHECK(cuda::unrolled_heads_gradient({.of = a}, nullptr) == forward);
    return forward;
  };
  CHECK(of({.rows = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 264}) == cudaErrorInvalidValue);
  CHECK(of({.rows = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 7}) == cudaErrorInvalidValue);
  CHECK(of({.rows = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 16, .half = 9}) == cudaErrorInvalidValue);
  CHECK(of({.rows = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 16, .half = 8}) == cudaErrorInvalidValue);
  CHECK(of({.rows = 1 << 30, .keys = 1, .heads = 2, .kv_heads = 1, .head_dim = 16}) == cudaErrorInvalidValue);
  CHECK(of({}) == cudaSuccess);
  float one = 0.0F;
  const cuda::UnrolledHeads some{
      .weight = {&one, &one}, .rows = 1, .keys = 1, .heads = 1, .kv_heads = 1, .head_dim = 2};
  CHECK(cuda::unrolled_heads_gradient({.of = some, .grad_weight = {&one, nullptr}}, nullptr) ==
        cudaErrorInvalidValue);  // no memory for the chunks
  cuda::UnrolledHeads bare = some;
  bare.weight[1] = nullptr;
  CHECK(cuda::unrolled_heads_gradient({.of = bare, .grad_weight = {nullptr, &one}, .partial = &one}, nullptr) ==
        cudaErrorInvalidValue);
}
