// Log-probs, entropies and gradients over tiles against float64 over whole rows.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/log_prob.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Case {
  std::int64_t rows, vocabulary, tile;
  double size = 3.0;  // of the logits
};

struct Expected {
  std::vector<double> log_sum, log_prob, entropy, greedy, grad;
};

struct Numbers {
  std::vector<float> logits, grad_log_prob, grad_entropy;
  std::vector<std::int64_t> targets;
};

Numbers numbers(const Case& c) {
  Numbers out;
  const auto rows = static_cast<std::size_t>(c.rows);
  out.logits = normal<float>(rows * static_cast<std::size_t>(c.vocabulary), 1, c.size);
  out.grad_log_prob = normal<float>(rows, 2);
  out.grad_entropy = normal<float>(rows, 3);
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const bool first_of_next_tile = r + 1 == c.rows && c.tile < c.vocabulary;
    out.targets.push_back(first_of_next_tile ? c.tile
                          : r % 3 == 0       ? 0
                          : r % 3 == 1       ? c.vocabulary - 1
                                             : (r * 7919) % c.vocabulary);
    float* const row = out.logits.data() + r * c.vocabulary;
    if (r % 4 == 2) row[out.targets.back()] = 40.0F;  // nearly certain: greedy
    if (r % 4 == 3)                                   // ids that cannot be chosen
      for (std::int64_t j = 0; j < c.vocabulary; ++j)
        if (j % 5 == 1 && j != out.targets.back()) row[j] = -INFINITY;
  }
  return out;
}

Expected expected(const Case& c, const Numbers& n, bool with_entropy) {
  Expected out;
  for (std::int64_t r = 0; r < c.rows; ++r) {
    const float* const row = n.logits.data() + r * c.vocabulary;
    double top = -INFINITY, total = 0.0, entropy = 0.0;
    for (std::int64_t j = 0; j < c.vocabulary; ++j) top = std::max(top, static_cast<double>(row[j]));
    for (std::int64_t j = 0; j < c.vocabulary; ++j) total += std::exp(row[j] - top);
    const double log_sum = top + std::log(total);
    for (std::int64_t j = 0; j < c.vocabulary; ++j)
      if (row[j] > -INFINITY) entropy -= std::exp(row[j] - log_sum) * (row[j] - log_sum);
    const std::int64_t target = n.targets[static_cast<std::size_t>(r)];
    out.log_sum.push_back(log_sum);
    out.log_prob.push_back(row[target] - log_sum);
    out.entropy.push_back(entropy);
    out.greedy.push_back(row[target] >= top ? 1.0 : 0.0);
    for (std::int64_t j = 0; j < c.vocabulary; ++j) {
      const double log_p = row[j] - log_sum, p = std::exp(log_p);
      double grad = n.grad_log_prob[static_cast<std::size_t>(r)] * ((j == target ? 1.0 : 0.0) - p);
      if (with_entropy && p > 0.0) grad -= n.grad_entropy[static_cast<std::size_t>(r)] * p * (log_p + entropy);
      out.grad.push_back(grad);
    }
  }
  return out;
}

template <class T>
void check(const Case& c, bool with_entropy, bool in_place = false) {
  CAPTURE(c.rows, c.vocabulary, c.tile, with_entropy, in_place, sizeof(T));
  const Numbers n = numbers(c);
  const Expected want = expected(c, n, with_entropy);
  const auto rows = static_cast<std::size_t>(c.rows);
  const Memory<std::int64_t> targets(n.targets);
  const Memory<float> state(4 * rows), log_sum(rows), log_prob(rows), entropy(rows), greedy(rows), g(n.grad_log_prob),
      h(n.grad_entropy);
  std::vector<T> grad(rows * static_cast<std::size_t>(c.vocabulary));
  const auto tiles = [&](auto&& f) {
    for (std::int64_t begin = 0; begin < c.vocabulary; begin += c.tile) {
      const std::int64_t columns = std::min(c.tile, c.vocabulary - begin), stride = columns + 3;
      std::vector<float> logits(rows * static_cast<std::size_t>(stride), NAN);  // what lies between rows is nobody's
      for (std::int64_t r = 0; r < c.rows; ++r)
        std::copy_n(n.logits.begin() + r * c.vocabulary + begin, columns, logits.begin() + r * stride);
      if (c.rows > 0) logits.resize(logits.size() - 3);  // memory ends with the last row
      f(begin, columns, stride, Memory<float>(logits));
    }
  };
  tiles([&](std::int64_t begin, std::int64_t columns, std::int64_t stride, const Memory<float>& logits) {
    must_work(cuda::log_prob_tile({.logits = logits.data(),
                                   .targets = targets.data(),
                                   .state = state.data(),
                                   .rows = c.rows,
                                   .columns = columns,
                                   .stride = stride,
                                   .first_column = begin},
                                  nullptr));
  });
  must_work(cuda::log_prob_finish({.state = state.data(),
                                   .log_sum = log_sum.data(),
                                   .log_prob = log_prob.data(),
                                   .entropy = entropy.data(),
                                   .greedy = greedy.data(),
                                   .rows = c.rows},
                                  nullptr));
  const double near = 4e-6 * (1.0 + c.size);
  CHECK(distance(log_sum.values(), want.log_sum, 1.0) <= near);
  CHECK(distance(log_prob.values(), want.log_prob, 1.0) <= near);
  CHECK(distance(entropy.values(), want.entropy, 1.0) <= near);
  CHECK(distance(greedy.values(), want.greedy, 0.0) == 0.0);
  tiles([&](std::int64_t begin, std::int64_t columns, std::int64_t stride, const Memory<float>& logits) {
    const std::int64_t to_stride = in_place ? stride : columns + 1;
    const Memory<T> apart(rows * static_cast<std::size_t>(columns + 1));
    void* const to = in_place ? static_cast<void*>(logits.data()) : static_cast<void*>(apart.data());
    must_work(cuda::log_prob_gradient({.logits = logits.data(),
                                       .targets = targets.data(),
                                       .log_sum = log_sum.data(),
                                       .entropy = entropy.data(),
                                       .grad_log_prob = g.data(),
                                       .grad_entropy = with_entropy ? h.data() : nullptr,
                                       .grad = to,
                                       .rows = c.rows,
                                       .columns = columns,
                                       .stride = stride,
                                       .grad_stride = to_stride,
                                       .first_column = begin,
                                       .element = element_of<T>},
                                      nullptr));
    std::vector<T> found;
    if constexpr (sizeof(T) == sizeof(float))
      found = in_place ? logits.values() : apart.values();
    else
      found = apart.values();
    for (std::int64_t r = 0; r < c.rows; ++r)
      std::copy_n(found.begin() + r * to_stride, columns, grad.begin() + r * c.vocabulary + begin);
  });
  CHECK(distance(grad, want.grad, 1e-2) <= 1.5 * rounding<T> + 1e-4);
}

}  // namespace

TEST_CASE("Log-probs over tiles are those of float64 over rows") {
  for (const std::int64_t tile : {37, 255, 256, 257, 700, 5000}) {
    check<float>({5, 700, tile}, tile % 2 == 1, tile == 256);
  }
  check<float>({2, 6, 1}, true);
  check<float>({0, 10, 10}, false);
  check<float>({1, 1, 1}, true);
  check<float>({3, 2, 2}, true);
  check<float>({4, 1500, 1024, 30.0}, true, true);
  check<Bfloat16>({8, 600, 256}, true);
  in_orders([] { check<float>({4, 515, 300}, true); }, 3);
}

TEST_CASE("A logit that is no number makes its row none, and no other") {
  std::vector<float> logits = normal<float>(2 * 300, 1);
  logits[17] = NAN;
  const Memory<float> there(logits), state(8), log_prob(2);
  const Memory<std::int64_t> targets(std::vector<std::int64_t>{0, 0});
  must_work(cuda::log_prob_tile({.logits = there.data(),
                                 .targets = targets.data(),
                                 .state = state.data(),
                                 .rows = 2,
                                 .columns = 300,
                                 .stride = 300},
                                nullptr));
  must_work(cuda::log_prob_finish({.state = state.data(), .log_prob = log_prob.data(), .rows = 2}, nullptr));
  CHECK(std::isnan(log_prob.values()[0]));
  CHECK(std::isfinite(log_prob.values()[1]));
}
