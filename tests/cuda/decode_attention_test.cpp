// Paged attention of one query per row against float64: lengths around the borders of tiles, warps, chunks and pages, groups of
// query heads, head sizes, windows, a cap, memory that holds no number where a row does not see it.
#include <algorithm>
#include <numeric>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/decode_attention.cuh>

#include <support/float8.hpp>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Case {
  int heads, kv_heads, head_dim;
  std::vector<std::int64_t> lengths;
  std::int64_t window = 0;
  float softcap = 0.0F;
  bool by_position = false;  // positions of all heads side by side, as the engine's arena has them
  unsigned seed = 1;
  bool float8 = false;
};

struct Cache {
  std::vector<Bfloat16> q, arena;
  std::vector<Float8> arena8;  // the same numbers, where pages are in float8
  std::vector<std::int64_t> table, positions;
  cuda::Pages pages;
  int max_pages = 0;
};

std::size_t place(const Case& c, const Cache& cache, std::size_t row, std::int64_t position, int kv, bool value) {
  const cuda::Pages& p = cache.pages;
  const std::int64_t page =
      cache.table[row * static_cast<std::size_t>(cache.max_pages) + static_cast<std::size_t>(position / 32)];
  (void)c;
  return static_cast<std::size_t>(page * p.page_stride + (value ? p.value_offset : p.key_offset) +
                                  position % 32 * p.position_stride + kv * p.head_stride);
}

Cache cache_of(const Case& c) {
  Cache out;
  const std::size_t rows = c.lengths.size();
  const std::int64_t longest = *std::max_element(c.lengths.begin(), c.lengths.end()), dim = c.head_dim;
  out.max_pages = static_cast<int>((longest + 31) / 32);
  const std::int64_t part = 32 * c.kv_heads * dim;
  out.pages = c.by_position ? cuda::Pages{4 * part, 2 * part, 3 * part, c.kv_heads * dim, dim}
                            : cuda::Pages{2 * part, 0, 32 * dim, dim, 2 * 32 * dim};
  const std::size_t pages = rows * static_cast<std::size_t>(out.max_pages);
  out.q = normal<Bfloat16>(rows * static_cast<std::size_t>(c.heads * dim), c.seed);
  out.arena = normal<Bfloat16>(pages * static_cast<std::size_t>(out.pages.page_stride), c.seed + 1);
  out.table.resize(pages);
  std::iota(out.table.begin(), out.table.end(), 0);
  std::mt19937 random(c.seed + 2);
  std::shuffle(out.table.begin(), out.table.end(), random);
  for (std::size_t r = 0; r < rows; ++r) {
    out.positions.push_back(c.lengths[r] - 1);
    const std::int64_t first = c.window > 0 ? std::max<std::int64_t>(0, c.lengths[r] - c.window) : 0;
    for (std::int64_t p = 0; p < out.max_pages * 32; ++p)
      if (p < first || p >= c.lengths[r])
        for (int h = 0; h < c.kv_heads; ++h)
          for (const bool value : {false, true})
            std::fill_n(out.arena.begin() + static_cast<std::ptrdiff_t>(place(c, out, r, p, h, value)), dim,
                        Bfloat16{0x7FC0});
  }
  if (!c.float8) return out;
  for (Bfloat16& x : out.arena) {
    out.arena8.push_back(as<Float8>(wide(x)));
    x = as<Bfloat16>(wide(out.arena8.back()));
  }
  return out;
}

struct Output {
  std::vector<Bfloat16> value;
  std::vector<float> log_sum;
};

// `merges`: the last block of a row merges, in one launch.
Output run(const Case& c, const Cache& cache, bool merges = true, bool float8 = false) {
  const Memory<Float8> arena8(cache.arena8);
  cuda::Pages pages = cache.pages;
  pages.float8 = float8;
  const Memory<Bfloat16> q(cache.q), arena(cache.arena), out(cache.q.size());
  const Memory<std::int64_t> table(cache.table), positions(cache.positions);
  const auto rows = static_cast<std::int64_t>(c.lengths.size());
  const Memory<float> partial(
      static_cast<std::size_t>(cuda::decode_partial_floats(rows, c.heads, c.head_dim, cache.max_pages))),
      log_sum(static_cast<std::size_t>(rows * c.heads));
  const std::vector<std::uint32_t> zeros(static_cast<std::size_t>(cuda::decode_counters(rows, c.heads)), 0);
  const Memory<std::uint32_t> arrived(zeros);
  must_work(cuda::decode_attention({.q = &q.data()->bits,
                                    .arena = float8 ? static_cast<const void*>(arena8.data()) : arena.data(),
                                    .table = table.data(),
                                    .positions = positions.data(),
                                    .partial = partial.data(),
                                    .arrived = merges ? arrived.data() : nullptr,
                                    .out = &out.data()->bits,
                                    .log_sum = log_sum.data(),
                                    .rows = rows,
                                    .heads = c.heads,
                                    .kv_heads = c.kv_heads,
                                    .head_dim = c.head_dim,
                                    .max_pages = cache.max_pages,
                                    .window = c.window,
                                    .softcap = c.softcap,
                                    .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim))),
                                    .pages = pages},
                                   nullptr));
  CHECK(arrived.values() == zeros);  // for the next launch
  return {out.values(), log_sum.values()};
}

// The largest relative distance of a head's output, as a vector, and of a log-sum.
void check(const Case& c) {
  CAPTURE(c.heads, c.kv_heads, c.head_dim, c.lengths, c.window, c.softcap, c.by_position);
  const Cache cache = cache_of(c);
  const Output found = run(c, cache, true, c.float8), other = run(c, cache, false);  // in float8 as in bfloat16
  CHECK(same_bits(found.value, other.value));
  CHECK(same_bits(found.log_sum, other.log_sum));
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  for (std::size_t r = 0; r < c.lengths.size(); ++r)
    for (int h = 0; h < c.heads; ++h) {
      const std::int64_t first = c.window > 0 ? std::max<std::int64_t>(0, c.lengths[r] - c.window) : 0;
      const std::size_t query =
          (r * static_cast<std::size_t>(c.heads) + static_cast<std::size_t>(h)) * static_cast<std::size_t>(c.head_dim);
      const int kv = h / (c.heads / c.kv_heads);
      std::vector<double> scores, sum(static_cast<std::size_t>(c.head_dim), 0.0);
      double top = -INFINITY, total = 0.0;
      for (std::int64_t p = first; p < c.lengths[r]; ++p) {
        double score = 0.0;
        for (int d = 0; d < c.head_dim; ++d)
          score += wide(cache.q[query + static_cast<std::size_t>(d)]) *
                   wide(cache.arena[place(c, cache, r, p, kv, false) + static_cast<std::size_t>(d)]);
        score *= scale;
        if (c.softcap > 0.0F) score = c.softcap * std::tanh(score / c.softcap);
        scores.push_back(score);
        top = std::max(top, score);
      }
      for (std::size_t i = 0; i < scores.size(); ++i) {
        const double weight = std::exp(scores[i] - top);
        total += weight;
        for (std::size_t d = 0; d < sum.size(); ++d)
          sum[d] += weight * wide(cache.arena[place(c, cache, r, first + static_cast<std::int64_t>(i), kv, true) + d]);
      }
      double error = 0.0, size = 1e-30;
      for (std::size_t d = 0; d < sum.size(); ++d) {
        const double expected = scores.empty() ? 0.0 : sum[d] / total, e = wide(found.value[query + d]) - expected;
        error += e * e;
        size += expected * expected;
      }
      CAPTURE(r, h);
      CHECK(std::sqrt(error / size) < 4e-3);  // of bfloat16: half a unit is 2e-3
      const double log_sum = found.log_sum[r * static_cast<std::size_t>(c.heads) + static_cast<std::size_t>(h)];
      if (scores.empty())
        CHECK(log_sum == -INFINITY);
      else
        CHECK(std::abs(log_sum - (top + std::log(total))) < 2e-3);
    }
}

}  // namespace

TEST_CASE("Rows attend to their pages as in float64") {
  check({14, 2, 64, {1, 0, 5, 31, 32, 33, 63, 64, 65, 255, 256, 257, 520}});  // Qwen2.5-0.5B
  check({12, 2, 128, {1, 16, 17, 300}});                                      // Qwen2.5-1.5B
  check({4, 4, 64, {100}});
  check({16, 1, 64, {9, 65}});
  check({20, 1, 64, {40, 3}});  // more query heads of a key head than a block takes
  check({33, 1, 64, {18}});
  check({5, 1, 128, {70, 0, 1}, 0, 0.0F, true});
}

TEST_CASE("Every head size that is a multiple of eight is one of the kernel's") {
  for (const int dim : {8, 40, 72, 80, 96, 112, 160, 192, 200, 256}) check({6, 2, dim, {1, 37}, 0, 0.0F, dim % 3 == 0});
  check({8, 4, 256, {290}});  // Gemma 3
}

TEST_CASE("Pages in float8 have the bits of the same numbers in bfloat16") {
  for (const int dim : {8, 64, 128, 136, 256}) check({6, 2, dim, {1, 37, 270}, 0, 0.0F, dim % 16 == 0, 1, true});
  check({4, 2, 64, {1, 33, 129, 0}, 17, 20.0F, true, 1, true});
}

TEST_CASE("A window hides what lies before it, a cap bounds the scores") {
  for (const std::int64_t window : {1, 15, 16, 17, 32, 100})
    check({4, 2, 64, {1, 16, 33, 129, 300}, window, 0.0F, true});
  check({4, 2, 64, {1024, 513, 512}, 512, 0.0F});
  check({8, 4, 64, {90}, 0, 0.5F});
  check({2, 1, 128, {90, 300}, 64, 30.0F, true});
}

TEST_CASE("The bits of a row do not depend on other rows, on where its pages lie, or on how long others are") {
  const Case all{7, 1, 64, {600, 280, 30}};
  const Cache cache = cache_of(all);
  Output together;
  in_orders([&] {
    const Output again = run(all, cache);
    if (!together.value.empty()) CHECK(same_bits(again.value, together.value));
    together = again;
  });
  // The second row alone, its pages elsewhere.
  Case one{7, 1, 64, {280}};
  Cache alone = cache_of(one);
  const auto width = static_cast<std::size_t>(7 * 64);
  alone.q.assign(cache.q.begin() + static_cast<std::ptrdiff_t>(width),
                 cache.q.begin() + static_cast<std::ptrdiff_t>(2 * width));
  for (std::int64_t p = 0; p < 280; ++p)
    for (const bool value : {false, true})
      std::copy_n(cache.arena.begin() + static_cast<std::ptrdiff_t>(place(all, cache, 1, p, 0, value)), 64,
                  alone.arena.begin() + static_cast<std::ptrdiff_t>(place(one, alone, 0, p, 0, value)));
  const Output apart = run(one, alone);
  CHECK(same_bits(apart.value, {together.value.begin() + static_cast<std::ptrdiff_t>(width),
                                together.value.begin() + static_cast<std::ptrdiff_t>(2 * width)}));
  CHECK(same_bits(apart.log_sum, {together.log_sum.begin() + 7, together.log_sum.begin() + 14}));
}

TEST_CASE("What the attention kernel cannot do is an error of its launcher") {
  const Memory<float> memory(64);
  const auto launched = [&](cuda::DecodeAttention a) {
    a.q = reinterpret_cast<const std::uint16_t*>(memory.data());
    a.arena = reinterpret_cast<const std::uint16_t*>(memory.data());
    a.rows = 1;
    return cuda::decode_attention(a, nullptr);
  };
  CHECK(launched({.heads = 3, .kv_heads = 2, .head_dim = 64}) == cudaErrorInvalidValue);
  CHECK(launched({.heads = 2, .kv_heads = 2, .head_dim = 264}) == cudaErrorInvalidValue);
  CHECK(launched({.heads = 2, .kv_heads = 2, .head_dim = 20}) == cudaErrorInvalidValue);
  CHECK(launched({.heads = 2, .kv_heads = 2, .head_dim = 64, .pages = {.position_stride = 20}}) ==
        cudaErrorInvalidValue);
  CHECK(cuda::decode_attention({}, nullptr) == cudaSuccess);
}
