// Dropout against the host's generator, element by element, to the bit.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cuda/dropout.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;
namespace core = rlalgo::core;

// `rows`: their numbers; empty: x is all of the input.
template <class T>
void check(std::int64_t width, std::int64_t count, const std::vector<std::int64_t>& rows, float probability) {
  CAPTURE(width, count, rows, probability, sizeof(T));
  constexpr std::uint64_t seed = 0x123456789ABCULL, draw = (std::uint64_t{5} << 32U) | 3, module = 70;
  const auto n = static_cast<std::size_t>(count);
  auto x = normal<T>(n, 1);
  if (n > 2) x[2] = as<T>(std::numeric_limits<double>::infinity());
  const auto threshold = static_cast<std::uint32_t>(static_cast<double>(probability) * 0x1.0p32);
  const float keep = 1.0F / (1.0F - probability);
  std::vector<T> expected;
  std::size_t zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t number = rows.empty() ? i : rows[static_cast<std::size_t>(i / width)] * width + i % width;
    const auto words =
        core::philox({seed, core::Stream::dropout}, draw, (module << 40U) | static_cast<std::uint64_t>(number / 4));
    const bool dropped = words[static_cast<std::size_t>(number % 4)] < threshold;
    zeros += dropped;
    expected.push_back(as<T>(dropped ? 0.0 : static_cast<float>(wide(x[static_cast<std::size_t>(i)])) * keep));
  }
  if (count > 500) CHECK(static_cast<double>(zeros) == Approx(static_cast<double>(n) * probability).epsilon(0.3));
  const Memory<T> there(x), out(n);
  const Memory<std::int64_t> numbers(rows);
  cuda::Dropout asked{.x = there.data(),
                      .out = out.data(),
                      .rows = rows.empty() ? nullptr : numbers.data(),
                      .count = count,
                      .width = width,
                      .seed = seed,
                      .draw = draw,
                      .module = module,
                      .threshold = threshold,
                      .keep = keep,
                      .element = element_of<T>};
  must_work(cuda::dropout(asked, nullptr));
  CHECK(same_bits(out.values(), expected));
  asked.out = there.data();  // in place
  must_work(cuda::dropout(asked, nullptr));
  CHECK(same_bits(there.values(), expected));
}

}  // namespace

TEST_CASE("What is dropped is what the host's generator says") {
  in_orders([] {
    for (const std::int64_t count : {0, 1, 3, 4, 6, 1023, 1024, 1030}) check<float>(count, count, {}, 0.25F);
    check<Bfloat16>(6, 60, {}, 0.5F);
    for (const std::int64_t width : {1, 2, 3, 4, 5, 8, 301}) {
      check<float>(width, 4 * width, {7, 0, 3, 3}, 0.25F);
      check<Bfloat16>(width, 2 * width, {1, 100000000000}, 0.1F);
    }
  });
}
