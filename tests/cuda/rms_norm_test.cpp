// RMSNorm and its gradient against float64, over widths that are a warp's, a block's, and no multiple of sixteen bytes.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/rms_norm.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Shape {
  std::int64_t rows, width;
  std::size_t offset = 0;
};
const std::vector<Shape> shapes = {{0, 8},    {1, 1},    {1, 8},     {3, 7},      {9, 64},   {5, 128},
                                   {2, 256},  {17, 512}, {3, 1024},  {2, 1032},   {2, 1111}, {1, 2050},
                                   {1, 4096}, {33, 16},  {3, 64, 1}, {2, 1536, 1}};
constexpr double epsilon = 1e-6;

template <class T>
struct Forward {
  std::vector<double> x, y, scale;  // x with the residual
};
template <class T>
Forward<T> expected(const Shape& s, const std::vector<T>& x, const std::vector<T>* residual, const std::vector<T>& w,
                    bool one_more) {
  Forward<T> out;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    double squares = 0.0;
    for (std::int64_t i = 0; i < s.width; ++i) {
      const auto at = static_cast<std::size_t>(r * s.width + i);
      out.x.push_back(residual == nullptr ? wide(x[at]) : wide(as<T>(wide(x[at]) + wide((*residual)[at]))));
      squares += out.x.back() * out.x.back();
    }
    out.scale.push_back(1.0 / std::sqrt(squares / static_cast<double>(s.width) + epsilon));
    for (std::int64_t i = 0; i < s.width; ++i) {
      const double normed = out.x[static_cast<std::size_t>(r * s.width + i)] * out.scale.back();
      out.y.push_back(normed * (wide(w[static_cast<std::size_t>(i)]) + (one_more ? 1.0 : 0.0)));
    }
  }
  return out;
}

template <class T>
void check_forward(const Shape& s, bool one_more, bool with_residual, bool once = false) {
  CAPTURE(s.rows, s.width, s.offset, one_more, with_residual, sizeof(T));
  const auto n = static_cast<std::size_t>(s.rows * s.width), width = static_cast<std::size_t>(s.width);
  const auto x = normal<T>(n, 1, 3.0), residual = normal<T>(n, 2), w = normal<T>(width, 3);
  const auto want = expected(s, x, with_residual ? &residual : nullptr, w, one_more);
  const Memory<T> x_there(x, s.offset), residual_there(residual, s.offset), w_there(w, s.offset), y(n, s.offset);
  const Memory<float> scale(static_cast<std::size_t>(s.rows));
  must_work(cuda::rms_norm({.x = x_there.data(),
                            .residual = with_residual ? residual_there.data() : nullptr,
                            .weight = w_there.data(),
                            .y = y.data(),
                            .scale = scale.data(),
                            .rows = s.rows,
                            .width = s.width,
                            .epsilon = static_cast<float>(epsilon),
                            .one_more = one_more,
                            .once = once,
                            .element = element_of<T>},
                           nullptr));
  CHECK(distance(x_there.values(), want.x, 0.0) <= (with_residual ? 0x1p-23 : 0.0));
  CHECK(distance(y.values(), want.y, 0.0) <= (once || one_more ? 1.05 : 2.5) * rounding<T> + 2e-6);
  CHECK(distance(scale.values(), want.scale, 0.0) <= 1e-6);
}

template <class T>
void check_gradient(const Shape& s, bool one_more, bool add, bool of_weight) {
  CAPTURE(s.rows, s.width, s.offset, one_more, add, sizeof(T));
  const auto n = static_cast<std::size_t>(s.rows * s.width), width = static_cast<std::size_t>(s.width);
  const auto x = normal<T>(n, 4), grad = normal<T>(n, 5), before = normal<T>(n, 6), w = normal<T>(width, 7),
             before_w = normal<T>(width, 8);
  const auto forward = expected<T>(s, x, nullptr, w, one_more);
  std::vector<double> want(n), want_w;
  for (std::size_t i = 0; i < width; ++i) want_w.push_back(wide(before_w[i]));
  std::vector<float> scales;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const double scale = forward.scale[static_cast<std::size_t>(r)];
    scales.push_back(static_cast<float>(scale));
    double along = 0.0;
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = static_cast<std::size_t>(r) * width + i;
      along += wide(grad[at]) * (wide(w[i]) + (one_more ? 1.0 : 0.0)) * wide(x[at]);
      want_w[i] += wide(grad[at]) * wide(x[at]) * scale;
    }
    for (std::size_t i = 0; i < width; ++i) {
      const std::size_t at = static_cast<std::size_t>(r) * width + i;
      want[at] = wide(grad[at]) * (wide(w[i]) + (one_more ? 1.0 : 0.0)) * scale -
                 wide(x[at]) * scale * scale * scale * along / static_cast<double>(width) +
                 (add ? wide(before[at]) : 0.0);
    }
  }
  const Memory<T> x_there(x, s.offset), grad_there(grad, s.offset), w_there(w, s.offset), grad_x(before, s.offset),
      grad_w(before_w);
  const Memory<float> scale(scales), partial(static_cast<std::size_t>(cuda::rms_norm_chunks(s.rows) * s.width));
  must_work(cuda::rms_norm_gradient({.grad_y = grad_there.data(),
                                     .x = x_there.data(),
                                     .weight = w_there.data(),
                                     .scale = scale.data(),
                                     .grad_x = grad_x.data(),
                                     .grad_weight = of_weight ? grad_w.data() : nullptr,
                                     .partial = partial.data(),
                                     .rows = s.rows,
                                     .width = s.width,
                                     .one_more = one_more,
                                     .add = add,
                                     .element = element_of<T>},
                                    nullptr));
  if (s.rows == 0) return;
  CHECK(distance(grad_x.values(), want, 1.0) <= 1.5 * rounding<T> + 4e-6);
  if (of_weight)
    CHECK(distance(grad_w.values(), want_w, std::sqrt(static_cast<double>(s.rows))) <= 1.5 * rounding<T> + 4e-6);
  else
    CHECK(same_bits(grad_w.values(), before_w));
}

}  // namespace

TEST_CASE("RMSNorm of rows is that of float64") {
  for (const Shape& s : shapes)
    for (const bool one_more : {false, true}) {
      in_orders([&] { check_forward<float>(s, one_more, false); }, 1);
      in_orders([&] { check_forward<rlalgo::cuda::Bfloat16>(s, one_more, one_more); }, 1);
    }
  in_orders([&] { check_forward<float>({5, 2048}, false, true); }, 4);
  check_forward<Bfloat16>({9, 512}, false, false, true);
}

TEST_CASE("The gradient of RMSNorm is that of float64") {
  for (const Shape& s : shapes) {
    check_gradient<float>(s, false, false, true);
    check_gradient<Bfloat16>(s, true, true, true);
  }
  // As many rows as make one chunk, one more than that, and more than there are chunks for.
  for (const std::int64_t rows : {31, 32, 65, 4100}) check_gradient<float>({rows, 8}, false, true, true);
  check_gradient<float>({4, 64}, true, true, false);
  in_orders([&] { check_gradient<float>({70, 33}, true, true, true); }, 4);
}

TEST_CASE("The bits of a normalised row do not depend on other rows") {
  const std::int64_t width = 1280, rows = 3;
  const auto x = normal<float>(static_cast<std::size_t>(rows * width), 1),
             w = normal<float>(static_cast<std::size_t>(width), 2);
  const auto run = [&](const std::vector<float>& some) {
    const Memory<float> there(some), weight(w), y(some.size());
    must_work(cuda::rms_norm({.x = there.data(),
                              .weight = weight.data(),
                              .y = y.data(),
                              .rows = static_cast<std::int64_t>(some.size()) / width,
                              .width = width,
                              .epsilon = 1e-6F},
                             nullptr));
    return y.values();
  };
  const auto all = run(x), last = run({x.end() - width, x.end()});
  CHECK(same_bits(last, {all.end() - width, all.end()}));
}
