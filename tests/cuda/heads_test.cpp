// Queries, keys and values of one product against norm, rotation and writes to pages by kernels of their own.
#include <support/catch.hpp>
#include <support/heads_one_by_one.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/heads.cuh>
#include <rlalgo/cuda/page_write.cuh>

#include <support/float8.hpp>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Case {
  std::vector<std::int64_t> positions;
  std::int64_t heads, kv_heads, dim, half;
  bool norm = false, one_more = false, once = false, interleaved = false, bias = false;
};

template <class T>
std::vector<double> widened(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T& x : values) out.push_back(wide(x));
  return out;
}

template <class T, class Stored = T>
void check(const Case& c) {
  CAPTURE(c.positions, c.heads, c.kv_heads, c.dim, c.half, c.norm, c.one_more, c.once, c.interleaved, c.bias,
          sizeof(T));
  const auto rows = static_cast<std::int64_t>(c.positions.size());
  const std::int64_t all = c.heads + 2 * c.kv_heads, part = 32 * c.kv_heads * c.dim;
  const cuda::Pages pages{4 * part, 2 * part, 3 * part, c.kv_heads * c.dim, c.dim, sizeof(Stored) == 1};
  const auto joined = normal<T>(static_cast<std::size_t>(rows * all * c.dim), 1, 2.0);
  const auto q_weight = normal<T>(static_cast<std::size_t>(c.dim), 2),
             k_weight = normal<T>(static_cast<std::size_t>(c.dim), 3);
  const auto before = normal<Stored>(static_cast<std::size_t>((rows + 1) * pages.page_stride), 4);
  std::vector<float> cosine, sine;
  for (std::int64_t i = 0; i < 64 * c.half; ++i) {
    cosine.push_back(std::cos(0.37F * static_cast<float>(i)));
    sine.push_back(std::sin(0.37F * static_cast<float>(i)));
  }
  const auto bias = normal<T>(static_cast<std::size_t>(all * c.dim), 5);
  auto summed = joined;
  if (c.bias)
    for (std::size_t i = 0; i < joined.size(); ++i)
      summed[i] = as<T>(static_cast<float>(wide(joined[i])) + static_cast<float>(wide(bias[i % bias.size()])));
  // One by one, of the rows that have a position.
  std::vector<T> q, k, v;
  std::vector<float> row_cosine, row_sine;
  std::vector<std::int64_t> page, place, real_page, real_place, real;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t position = c.positions[static_cast<std::size_t>(r)];
    page.push_back(position < 0 ? 0 : rows - r);
    place.push_back(position < 0 ? 0 : position % 32);
    if (position < 0) continue;
    real.push_back(r);
    real_page.push_back(page.back());
    real_place.push_back(place.back());
    const auto begin = summed.begin() + r * all * c.dim;
    q.insert(q.end(), begin, begin + c.heads * c.dim);
    k.insert(k.end(), begin + c.heads * c.dim, begin + (c.heads + c.kv_heads) * c.dim);
    v.insert(v.end(), begin + (c.heads + c.kv_heads) * c.dim, begin + all * c.dim);
    for (std::int64_t i = 0; i < c.half; ++i) {
      row_cosine.push_back(cosine[static_cast<std::size_t>(position * c.half + i)]);
      row_sine.push_back(sine[static_cast<std::size_t>(position * c.half + i)]);
    }
  }
  const auto tokens = static_cast<std::int64_t>(real.size());
  const Memory<T> q_there(q), k_there(k), v_there(v), q_weights(q_weight), k_weights(k_weight);
  const Memory<Stored> arena(before);
  const Memory<float> row_cosines(row_cosine), row_sines(row_sine);
  const Memory<std::int64_t> real_pages(real_page), real_places(real_place);
  norm_and_rotate(c, 1e-6F, q_there, q_weights, row_cosines, row_sines, tokens, c.heads);
  norm_and_rotate(c, 1e-6F, k_there, k_weights, row_cosines, row_sines, tokens, c.kv_heads);
  must_work(cuda::page_write({.k = k_there.data(),
                              .v = v_there.data(),
                              .arena = arena.data(),
                              .page = real_pages.data(),
                              .place = real_places.data(),
                              .rows = tokens,
                              .heads = c.kv_heads,
                              .head_dim = c.dim,
                              .pages = pages,
                              .element = element_of<T>},
                             nullptr));
  std::vector<T> expected_q(static_cast<std::size_t>(rows * c.heads * c.dim), as<T>(0.0));
  const auto found_q = q_there.values();
  for (std::size_t i = 0; i < real.size(); ++i)
    std::copy_n(found_q.begin() + static_cast<std::ptrdiff_t>(i) * c.heads * c.dim, c.heads * c.dim,
                expected_q.begin() + real[i] * c.heads * c.dim);

  const Memory<T> joined_there(joined), bias_there(bias), q_out(expected_q.size());
  const Memory<Stored> arena_there(before);
  const Memory<float> cosines(cosine), sines(sine);
  const Memory<std::int64_t> positions(c.positions), page_there(page), place_there(place);
  must_work(cuda::heads({.joined = joined_there.data(),
                         .bias = c.bias ? bias_there.data() : nullptr,
                         .q_weight = c.norm ? q_weights.data() : nullptr,
                         .k_weight = c.norm ? k_weights.data() : nullptr,
                         .epsilon = 1e-6F,
                         .one_more = c.one_more,
                         .once = c.once,
                         .cosine = c.half > 0 ? cosines.data() : nullptr,
                         .sine = sines.data(),
                         .positions = positions.data(),
                         .half = c.half,
                         .interleaved = c.interleaved,
                         .q = q_out.data(),
                         .arena = arena_there.data(),
                         .page = page_there.data(),
                         .place = place_there.data(),
                         .rows = rows,
                         .heads = c.heads,
                         .kv_heads = c.kv_heads,
                         .head_dim = c.dim,
                         .pages = pages,
                         .element = element_of<T>},
                        nullptr));
  if (!c.norm) {
    CHECK(same_bits(q_out.values(), expected_q));
    CHECK(same_bits(arena_there.values(), arena.values()));
    return;
  }
  // In bfloat16 a sum in another order seldom changes a rounded number.
  const auto found_queries = q_out.values();
  std::size_t others = 0;
  for (std::size_t i = 0; i < expected_q.size(); ++i) others += wide(found_queries[i]) != wide(expected_q[i]) ? 1 : 0;
  if (sizeof(T) == 2) CHECK(others * 30 <= expected_q.size());
  CHECK(distance(q_out.values(), widened(expected_q), 1.0) <=
        3.0 * rounding<T> + 6e-7);  // sums of squares in another order
  CHECK(distance(widened(arena_there.values()), widened(arena.values()), 1.0) <= 3.0 * rounding<Stored> + 6e-7);
}

}  // namespace

TEST_CASE("Heads of one product are normalised, rotated and written as by kernels of their own") {
  const std::vector<std::int64_t> some{5, -1, 40, 0, 63};
  for (const Case& c :
       {Case{some, 14, 2, 64, 32}, Case{some, 4, 2, 128, 64, true}, Case{some, 2, 1, 256, 128, true, true},
        Case{some, 3, 3, 40, 12, true, false, true}, Case{some, 2, 1, 24, 10, false, false, false, true},
        Case{some, 2, 2, 7, 0}, Case{some, 6, 2, 16, 8, false, false, false, false, true},
        Case{some, 2, 1, 40, 20, true, false, false, false, true}, Case{{9}, 1, 1, 8, 4}, Case{{}, 2, 1, 8, 4},
        Case{{-1}, 2, 1, 8, 4}}) {
    in_orders([&] { check<float>(c); }, 1);
    check<Bfloat16>(c);
    check<Bfloat16, Float8>(c);
  }
}

TEST_CASE("What the kernel of heads cannot do is an error of its launcher") {
  CHECK(cuda::heads({.rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 264}, nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::heads({.half = 9, .rows = 1, .heads = 1, .kv_heads = 1, .head_dim = 16}, nullptr) ==
        cudaErrorInvalidValue);
  CHECK(cuda::heads({}, nullptr) == cudaSuccess);
}
