// The rotation against the same operations one by one, to the bit, and back again.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/rotate.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

// Rounded to float32: no operation with a single rounding for two.
float times(float a, float b) {
  volatile float out = a * b;
  return out;
}

template <class T>
void check(std::int64_t tokens, std::int64_t heads, std::int64_t half, bool backward, std::int64_t beyond = 0,
           bool interleaved = false) {
  CAPTURE(tokens, heads, half, backward, beyond, interleaved, sizeof(T));
  const std::int64_t width = 2 * half + beyond;
  const auto n = static_cast<std::size_t>(tokens * heads * width), angles = static_cast<std::size_t>(tokens * half);
  const auto x = normal<T>(n, 1), given = x;
  std::vector<float> cosine(angles), sine(angles);
  for (std::size_t i = 0; i < angles; ++i) {
    cosine[i] = std::cos(0.37F * static_cast<float>(i));
    sine[i] = std::sin(0.37F * static_cast<float>(i));
  }
  std::vector<T> expected = x;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < half; ++i) {
        const auto at = static_cast<std::size_t>((t * heads + h) * width + (interleaved ? 2 * i : i)),
                   other = at + static_cast<std::size_t>(interleaved ? 1 : half),
                   angle = static_cast<std::size_t>(t * half + i);
        const float c = cosine[angle], s = backward ? -sine[angle] : sine[angle];
        const auto low = static_cast<float>(wide(x[at])), high = static_cast<float>(wide(x[other]));
        expected[at] = as<T>(times(low, c) - times(high, s));
        expected[other] = as<T>(times(high, c) + times(low, s));
      }
  const Memory<T> there(x);
  const Memory<float> cosine_there(cosine), sine_there(sine);
  const auto turn = [&](bool back) {
    must_work(cuda::rotate({.x = there.data(),
                            .cosine = cosine_there.data(),
                            .sine = sine_there.data(),
                            .tokens = tokens,
                            .heads = heads,
                            .half = half,
                            .width = width,
                            .backward = back,
                            .interleaved = interleaved,
                            .element = element_of<T>},
                           nullptr));
  };
  turn(backward);
  CHECK(same_bits(there.values(), expected));
  turn(!backward);
  std::vector<double> before;
  for (const T& one : given) before.push_back(wide(one));
  CHECK(distance(there.values(), before, 2.0) <= 4 * rounding<T>);
}

}  // namespace

TEST_CASE("Rotated pairs have the bits of separate operations, and come back") {
  for (const std::int64_t tokens : {0, 1, 3, 7})
    for (const std::int64_t heads : {1, 5})
      for (const std::int64_t half : {1, 3, 32, 64}) {
        check<float>(tokens, heads, half, false);
        check<Bfloat16>(tokens, heads, half, true);
        check<float>(tokens, heads, half, true, 3);
        check<Bfloat16>(tokens, heads, half, false, 2, true);
      }
}
