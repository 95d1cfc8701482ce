// Sums of segments against sums on the host in the same order, to the bit.
#include <numeric>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/segment_sum.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

// `lengths`: places of each segment of `out`.
template <class T>
void check(const std::vector<int>& lengths, std::int64_t width) {
  CAPTURE(lengths, width, sizeof(T));
  std::vector<std::int64_t> segment;
  for (std::size_t s = 0; s < lengths.size(); ++s)
    segment.insert(segment.end(), static_cast<std::size_t>(lengths[s]), static_cast<std::int64_t>(s));
  const std::size_t places = segment.size(), w = static_cast<std::size_t>(width);
  std::vector<std::int64_t> order(places);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random(1);
  std::shuffle(order.begin(), order.end(), random);
  const auto x = normal<T>(places * w, 2, 10.0), before = normal<T>(lengths.size() * w, 3);
  std::vector<T> expected = before;
  for (std::size_t s = 0, p = 0; s < lengths.size(); ++s) {
    const std::size_t end = p + static_cast<std::size_t>(lengths[s]);
    for (std::size_t i = 0; i < w; ++i) {
      auto sum = static_cast<float>(wide(before[s * w + i]));
      for (std::size_t at = p; at < end; ++at)
        sum += static_cast<float>(wide(x[static_cast<std::size_t>(order[at]) * w + i]));
      expected[s * w + i] = as<T>(sum);
    }
    p = end;
  }
  const Memory<T> x_there(x), out(before);
  const Memory<std::int64_t> order_there(order), segment_there(segment);
  must_work(cuda::segment_sum({.x = x_there.data(),
                               .order = order_there.data(),
                               .segment = segment_there.data(),
                               .out = out.data(),
                               .places = static_cast<std::int64_t>(places),
                               .width = width,
                               .element = element_of<T>},
                              nullptr));
  CHECK(same_bits(out.values(), expected));
}

}  // namespace

TEST_CASE("Rows of a segment are summed in their order") {
  in_orders([] {
    for (const std::int64_t width : {1, 31, 256, 300}) {
      check<float>({}, width);
      check<float>({1}, width);
      check<float>({0, 3, 0, 0, 1, 9, 0}, width);
      check<Bfloat16>({2, 1, 1, 20}, width);
    }
    check<float>({300}, 5);
  });
}
