// Keys and values go to their places in pages, and nowhere else.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/page_write.cuh>

#include <support/float8.hpp>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

template <class T, class Stored = T>
void check(const std::vector<std::int64_t>& page, const std::vector<std::int64_t>& place, std::int64_t heads,
           std::int64_t dim, cuda::Pages pages) {
  CAPTURE(page, heads, dim, sizeof(T), sizeof(Stored));
  pages.float8 = sizeof(Stored) == 1;
  const std::size_t rows = page.size(), width = static_cast<std::size_t>(heads * dim);
  const auto k = normal<T>(rows * width, 1), v = normal<T>(rows * width, 2);
  const auto before = normal<Stored>(static_cast<std::size_t>(5 * pages.page_stride), 3);
  std::vector<Stored> expected = before;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t d = 0; d < dim; ++d) {
        const std::size_t from = r * width + static_cast<std::size_t>(h * dim + d);
        const std::int64_t to =
            page[r] * pages.page_stride + place[r] * pages.position_stride + h * pages.head_stride + d;
        expected[static_cast<std::size_t>(to + pages.key_offset)] = as<Stored>(wide(k[from]));
        expected[static_cast<std::size_t>(to + pages.value_offset)] = as<Stored>(wide(v[from]));
      }
  const Memory<T> k_there(k), v_there(v);
  const Memory<Stored> arena(before);
  const Memory<std::int64_t> page_there(page), place_there(place);
  must_work(cuda::page_write({.k = k_there.data(),
                              .v = v_there.data(),
                              .arena = arena.data(),
                              .page = page_there.data(),
                              .place = place_there.data(),
                              .rows = static_cast<std::int64_t>(rows),
                              .heads = heads,
                              .head_dim = dim,
                              .pages = pages,
                              .element = element_of<T>},
                             nullptr));
  CHECK(same_bits(arena.values(), expected));
}

}  // namespace

TEST_CASE("Keys and values are written to their places in pages") {
  // Of two layers: the second; positions side by side, or heads.
  const std::int64_t heads = 3, dim = 20, wide_dim = 24, part = 32 * heads * wide_dim;
  const cuda::Pages by_position{.page_stride = 4 * part,
                                .key_offset = 2 * part,
                                .value_offset = 3 * part,
                                .position_stride = heads * wide_dim,
                                .head_stride = wide_dim};
  const cuda::Pages by_head{.page_stride = 4 * part,
                            .key_offset = 2 * part,
                            .value_offset = 3 * part,
                            .position_stride = wide_dim,
                            .head_stride = 32 * wide_dim};
  for (const cuda::Pages& pages : {by_position, by_head}) {
    check<float>({}, {}, heads, dim, pages);
    check<float>({4}, {31}, heads, dim, pages);
    check<Bfloat16>({3, 0, 1, 1, 4}, {0, 31, 7, 8, 31}, heads, dim, pages);
    check<Bfloat16>({2, 2}, {1, 0}, 1, 8, pages);
    check<Bfloat16, Float8>({3, 0, 1, 1, 4}, {0, 31, 7, 8, 31}, heads, dim, pages);
    check<float, Float8>({4}, {31}, heads, dim, pages);
  }
}
