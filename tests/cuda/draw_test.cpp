// Draws against the same arithmetic written one step after the other, and the generator against core/philox.hpp.
#include <algorithm>
#include <map>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cuda/draw.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Drawn {
  std::vector<std::int32_t> tokens;
  std::vector<float> log_probs;
};

Drawn drawn(const std::vector<float>& logits, std::int64_t vocabulary, const std::vector<cuda::DrawKeyed>& keys,
            std::int64_t gap = 0) {
  const std::int64_t rows = static_cast<std::int64_t>(keys.size()), stride = vocabulary + gap;
  std::vector<float> apart(static_cast<std::size_t>(rows * stride), NAN);
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(logits.begin() + r * vocabulary, vocabulary, apart.begin() + r * stride);
  const Memory<float> there(apart), log_probs(keys.size());
  const Memory<cuda::DrawKeyed> keys_there(keys);
  const Memory<std::int32_t> tokens(keys.size());
  must_work(cuda::draw({.logits = there.data(),
                        .keys = keys_there.data(),
                        .tokens = tokens.data(),
                        .log_probs = log_probs.data(),
                        .rows = rows,
                        .vocabulary = vocabulary,
                        .stride = stride},
                       nullptr));
  return {tokens.values(), log_probs.values()};
}

// The smallest id whose cumulative probability, in float64, exceeds u; and how far u is from the borders of its interval.
struct Exact {
  std::int64_t id = 0;
  double log_prob = 0.0, margin = 0.0;
};
Exact exact(const float* logits, std::int64_t vocabulary, double scale, double u) {
  const double top = *std::max_element(logits, logits + vocabulary);
  double total = 0.0, before = 0.0;
  for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp((logits[j] - top) * scale);
  for (std::int64_t j = 0; j < vocabulary; ++j) {
    const double p = std::exp((logits[j] - top) * scale) / total;
    if (before + p > u) return {j, (logits[j] - top) * scale - std::log(total), std::min(u - before, before + p - u)};
    before += p;
  }
  return {vocabulary - 1, 0.0, 0.0};
}

}  // namespace

TEST_CASE("A token is the smallest id whose cumulative probability exceeds the uniform of its key") {
  for (const std::int64_t vocabulary : {1, 2, 7, 8, 511, 512, 513, 1500, 33000}) {
    const std::size_t rows = vocabulary > 10000 ? 3 : 8;
    const auto logits =
        normal<float>(rows * static_cast<std::size_t>(vocabulary), static_cast<unsigned>(vocabulary), 3.0);
    std::vector<cuda::DrawKeyed> keys;
    for (std::size_t r = 0; r < rows; ++r)
      keys.push_back({.seed = 0x123456789ABCULL + r,
                      .step = r % 3 == 0 ? 1ULL << 40U : r,
                      .index = 7 * r,
                      .position = static_cast<std::uint32_t>(100 + r),
                      .scale = r % 2 == 0 ? 1.0F : 1.0F / 0.7F});
    Drawn found;
    in_orders([&] { found = drawn(logits, vocabulary, keys, 5); }, vocabulary == 1500 ? 3 : 1);
    for (std::size_t r = 0; r < rows; ++r) {
      const double u = rlalgo::core::uniform({keys[r].seed, rlalgo::core::Stream::sampling}, keys[r].step,
                                             keys[r].index << 32U | keys[r].position);
      const Exact want = exact(logits.data() + r * static_cast<std::size_t>(vocabulary), vocabulary, keys[r].scale, u);
      CAPTURE(vocabulary, r, u, want.margin);
      CHECK(found.tokens[r] == want.id);  // no key here lies within rounding of a border
      CHECK(std::abs(found.log_probs[r] - want.log_prob) < 1e-5 * (1.0 + std::abs(want.log_prob)));
      REQUIRE(want.margin > 1e-6);
    }
  }
}

TEST_CASE("Greedy rows take the largest logit, the smallest id among equals") {
  const std::int64_t vocabulary = 1100;
  auto logits = normal<float>(static_cast<std::size_t>(3 * vocabulary), 5);
  logits[700] = logits[1000] = 9.0F;
  logits[static_cast<std::size_t>(vocabulary)] = 8.0F;
  logits[static_cast<std::size_t>(3 * vocabulary - 1)] = 8.0F;
  const Drawn found = drawn(logits, vocabulary, {{.scale = 0.0F}, {.scale = INFINITY}, {.scale = 0.0F}});
  CHECK(found.tokens == std::vector<std::int32_t>{700, 0, 1099});
  for (std::size_t r = 0; r < 3; ++r) {
    const float* const row = logits.data() + r * static_cast<std::size_t>(vocabulary);
    double total = 0.0;
    for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp(row[j] - row[found.tokens[r]]);
    CHECK(found.log_probs[r] == Approx(-std::log(total)).margin(1e-6));  // of temperature 1
  }
}

TEST_CASE("Ids that cannot be drawn are not, and rows with a logit that is not finite say so") {
  const std::int64_t vocabulary = 1536;
  std::vector<float> logits(static_cast<std::size_t>(3 * vocabulary), -1000.0F);
  logits[600] = 0.0F;                                      // one possible id
  logits[static_cast<std::size_t>(vocabulary + 3)] = NAN;  //
  logits[static_cast<std::size_t>(2 * vocabulary + 9)] = -INFINITY;
  const Drawn found =
      drawn(logits, vocabulary, {{.seed = 1, .scale = 1.0F}, {.seed = 1, .scale = 1.0F}, {.seed = 2, .scale = 1.0F}});
  CHECK(found.tokens == std::vector<std::int32_t>{600, -1, -1});
  CHECK(found.log_probs[0] == 0.0F);
  for (std::uint64_t seed = 1; seed < 12; ++seed) {  // half of the mass at either end
    std::vector<float> two(static_cast<std::size_t>(vocabulary), -200.0F);
    two.front() = two.back() = 1.0F;
    const auto one = drawn(two, vocabulary, {{.seed = seed, .scale = 1.0F}}).tokens[0];
    CHECK((one == 0 || one == vocabulary - 1));
  }
}

TEST_CASE("Draws have the frequencies of the softmax") {
  const std::vector<float> row{0.0F, std::log(2.0F), std::log(5.0F)};
  std::vector<float> logits;
  std::vector<cuda::DrawKeyed> keys;
  for (std::uint32_t i = 0; i < 200; ++i) {
    logits.insert(logits.end(), row.begin(), row.end());
    keys.push_back({.seed = 42, .step = 1, .index = i / 20, .position = i % 20, .scale = 1.0F});
  }
  std::map<int, int> counts;
  for (const int token : drawn(logits, 3, keys).tokens) ++counts[token];
  CHECK(std::abs(counts[0] - 25) < 19);  // four deviations
  CHECK(std::abs(counts[1] - 50) < 25);
  CHECK(std::abs(counts[2] - 125) < 28);
}

TEST_CASE("A vocabulary that is too large for the kernel is an error of its launcher") {
  CHECK(cuda::draw({.rows = 1, .vocabulary = cuda::draw_vocabulary + 1}, nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::draw({.rows = 1, .vocabulary = 0}, nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::draw({.rows = 0}, nullptr) == cudaSuccess);
}
