// SwiGLU and GeGLU, and their gradients, against float64.
#include <functional>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/gated.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;
using cuda::Activation;

double value(double x, Activation activation) {
  if (activation == Activation::silu) return x / (1.0 + std::exp(-x));
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
// By a difference of second order.
double slope(double x, Activation activation) {
  constexpr double h = 1e-5;
  return (value(x + h, activation) - value(x - h, activation)) / (2 * h);
}

template <class T>
void check(std::int64_t count, Activation activation, std::size_t offset, bool in_place) {
  CAPTURE(count, offset, in_place, sizeof(T), static_cast<int>(activation));
  const auto n = static_cast<std::size_t>(count);
  auto gate = normal<T>(n, 1, 3.0);
  const auto up = normal<T>(n, 2), grad = normal<T>(n, 3);
  if (n > 4) gate[0] = as<T>(-100.0), gate[1] = as<T>(100.0), gate[2] = as<T>(0.0), gate[3] = as<T>(-30.0);
  std::vector<double> out, of_gate, of_up;
  for (std::size_t i = 0; i < n; ++i) {
    const double g = wide(gate[i]), act = wide(as<T>(value(g, activation)));
    out.push_back(act * wide(up[i]));
    of_up.push_back(act * wide(grad[i]));
    of_gate.push_back(wide(as<T>(wide(grad[i]) * wide(up[i]))) * slope(g, activation));
  }
  const Memory<T> gate_there(gate, offset), up_there(up, offset), grad_there(grad, offset), out_there(n, offset);
  const Memory<T> gate_again(gate, offset);
  must_work(cuda::gated({.gate = gate_again.data(),
                         .up = up_there.data(),
                         .out = in_place ? gate_again.data() : out_there.data(),
                         .count = count,
                         .activation = activation,
                         .element = element_of<T>},
                        nullptr));
  CHECK(distance((in_place ? gate_again : out_there).values(), out, 1e-3) <= 2.5 * rounding<T> + 4e-6);
  must_work(cuda::gated_gradient({.grad = grad_there.data(),
                                  .gate = gate_there.data(),
                                  .up = up_there.data(),
                                  .count = count,
                                  .activation = activation,
                                  .element = element_of<T>},
                                 nullptr));
  CHECK(distance(up_there.values(), of_up, 1e-3) <= 2.5 * rounding<T> + 4e-6);
  CHECK(distance(gate_there.values(), of_gate, 3e-2) <= 2.5 * rounding<T> + 4e-6);
}

// Rows of gate and up side by side in one product: the bits of rows one after the other.
template <class T>
void check_apart(std::int64_t rows, std::int64_t width, std::size_t offset) {
  CAPTURE(rows, width, offset, sizeof(T));
  const std::int64_t stride = 2 * width + 8, count = rows * width;
  const auto n = static_cast<std::size_t>(count);
  const auto gate = normal<T>(n, 1), up = normal<T>(n, 2), grad = normal<T>(n, 3);
  auto joined = normal<T>(static_cast<std::size_t>(rows * stride), 4);
  const auto each = [&](auto&& f) {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t i = 0; i < width; ++i)
        f(static_cast<std::size_t>(r * width + i), static_cast<std::size_t>(r * stride + i));
  };
  const auto half = static_cast<std::size_t>(width);
  each([&](std::size_t i, std::size_t at) { joined[at] = gate[i], joined[at + half] = up[i]; });
  const Memory<T> gate_there(gate), up_there(up), grad_there(grad), joined_there(joined, offset), out(n), out_apart(n);
  for (const bool apart : {false, true})
    must_work(cuda::gated({.gate = apart ? joined_there.data() : gate_there.data(),
                           .up = apart ? joined_there.data() + width : up_there.data(),
                           .out = apart ? out_apart.data() : out.data(),
                           .count = count,
                           .width = apart ? width : 0,
                           .stride = apart ? stride : 0,
                           .element = element_of<T>},
                          nullptr));
  CHECK(same_bits(out_apart.values(), out.values()));
  for (const bool apart : {false, true})
    must_work(cuda::gated_gradient({.grad = grad_there.data(),
                                    .gate = apart ? joined_there.data() : gate_there.data(),
                                    .up = apart ? joined_there.data() + width : up_there.data(),
                                    .count = count,
                                    .width = apart ? width : 0,
                                    .stride = apart ? stride : 0,
                                    .element = element_of<T>},
                                   nullptr));
  const auto of_gate = gate_there.values(), of_up = up_there.values();
  each([&](std::size_t i, std::size_t at) { joined[at] = of_gate[i], joined[at + half] = of_up[i]; });
  CHECK(same_bits(joined_there.values(), joined));  // and what is between the rows stays
}

}  // namespace

TEST_CASE("Gate and up of one product are those of two") {
  for (const std::int64_t width : {8, 24, 7, 300})
    for (const std::size_t offset : {0, 1}) {
      check_apart<float>(3, width, offset);
      check_apart<Bfloat16>(5, width, offset);
    }
}

TEST_CASE("Gated activations and their gradients are those of float64") {
  for (const std::int64_t count : {0, 1, 7, 8, 250, 256, 257, 2048, 2056, 5000})
    for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
      check<float>(count, activation, count == 256 ? 1 : 0, count % 2 == 0);
      check<Bfloat16>(count, activation, count == 2048 ? 1 : 0, count % 2 == 1);
    }
}
