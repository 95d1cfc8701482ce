// Tests of kernels: as host code, or on a GPU where nvcc compiles them. Included before a kernel's header.
//
// Memory is the device's; on the host each allocation has its exact size, so that AddressSanitizer sees what is beyond.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#else
#include <support/on_host.hpp>
#endif

#include <rlalgo/cuda/elements.cuh>
#include <rlalgo/cuda/kernels.hpp>

namespace rlalgo::support {

using cuda::Bfloat16;
using cuda::Element;

inline void must_work(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error("CUDA error " + std::to_string(static_cast<int>(error)));
}

// Of a device. `offset`: elements before the first, so that addresses are no multiple of 16 bytes.
template <class T>
class Memory {
 public:
  explicit Memory(const std::vector<T>& values, std::size_t offset = 0) : offset_(offset), count_(values.size()) {
    const std::size_t bytes = (offset + count_) * sizeof(T);
    if (bytes == 0) return;
#ifdef __CUDACC__
    void* memory = nullptr;
    must_work(cudaMalloc(&memory, bytes));
    must_work(cudaMemset(memory, 0xFF, bytes));
    memory_.reset(static_cast<char*>(memory));
    must_work(cudaMemcpy(data(), values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
#else
    memory_.reset(static_cast<char*>(::operator new(bytes)));
    std::memset(memory_.get(), 0xFF, bytes);
    std::memcpy(static_cast<void*>(data()), values.data(), count_ * sizeof(T));
#endif
  }
  // Of NaN.
  explicit Memory(std::size_t count, std::size_t offset = 0) : Memory(unset(count), offset) {}

  [[nodiscard]] T* data() const { return memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_.get()) + offset_; }

  // Waits for what was launched.
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(count_);
    if (count_ == 0) return out;
#ifdef __CUDACC__
    must_work(cudaDeviceSynchronize());
    must_work(cudaMemcpy(out.data(), data(), count_ * sizeof(T), cudaMemcpyDeviceToHost));
#else
    std::memcpy(static_cast<void*>(out.data()), data(), count_ * sizeof(T));
#endif
    return out;
  }

 private:
  struct Free {
    void operator()(char* memory) const {
#ifdef __CUDACC__
      cudaFree(memory);
#else
      ::operator delete(memory);
#endif
    }
  };
  static std::vector<T> unset(std::size_t count) {
    std::vector<T> out(count);
    if (count > 0) std::memset(static_cast<void*>(out.data()), 0xFF, count * sizeof(T));
    return out;
  }

  std::size_t offset_, count_;
  std::unique_ptr<char, Free> memory_;
};

// f once for each of a few orders of threads; on a GPU once.
template <class F>
void in_orders(F&& f, [[maybe_unused]] unsigned orders = 2) {
#ifdef __CUDACC__
  f();
#else
  const unsigned before = on_host::seed;
  for (unsigned i = 1; i <= orders; ++i) {
    on_host::seed = i;
    f();
  }
  on_host::seed = before;
#endif
}

// Numbers of an element, in double. Rounded to the nearest, to the even one of two as near.
inline double wide(float x) { return x; }
inline double wide(Bfloat16 x) {
  const std::uint32_t bits = static_cast<std::uint32_t>(x.bits) << 16U;
  float out = 0.0F;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
template <class T>
T as(double x);
template <>
inline float as<float>(double x) {
  return static_cast<float>(x);
}
template <>
inline Bfloat16 as<Bfloat16>(double x) {
  if (std::isnan(x)) return {0x7FC0};
  const auto narrow = static_cast<float>(x);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &narrow, sizeof bits);
  const std::uint32_t below = bits & 0xFFFFU;
  bits >>= 16U;
  if (below > 0x8000U || (below == 0x8000U && bits % 2 == 1)) ++bits;
  return {static_cast<std::uint16_t>(bits)};
}
template <class T>
inline constexpr Element element_of = Element::float32;
template <>
inline constexpr Element element_of<Bfloat16> = Element::bfloat16;
// Half the distance of two neighbours, relative.
template <class T>
inline constexpr double rounding = 0x1p-24;
template <>
inline constexpr double rounding<Bfloat16> = 0x1p-8;

template <class T = float>
std::vector<T> normal(std::size_t count, unsigned seed, double deviation = 1.0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution(0.0, deviation);
  std::vector<T> out(count);
  for (T& x : out) x = as<T>(distribution(random));
  return out;
}

// The largest |found − expected| / (size + |expected|); infinite where one of them alone is no number.
template <class T>
double distance(const std::vector<T>& found, const std::vector<double>& expected, double size) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double worst = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double x = wide(found[i]), y = expected[i];
    if (std::isnan(x) && std::isnan(y)) continue;
    if (x == y) continue;
    const double error = std::abs(x - y) / (size + std::abs(y));
    worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
  }
  return worst;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace rlalgo::support
