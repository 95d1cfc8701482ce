// Elements in float32 and bfloat16: widened to be computed with, rounded to be stored; and sixteen bytes of them at once.
//
// A number is rounded to the nearest bfloat16, to the even one of two as near; NaN stays NaN.
#pragma once

#include <cstdint>

#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/cuda/language.cuh>

namespace rlalgo::cuda {

struct Bfloat16 {
  std::uint16_t bits;
};

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bfloat16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16U); }

template <class T>
__device__ inline T rounded(float x);
template <>
__device__ inline float rounded<float>(float x) {
  return x;
}
template <>
__device__ inline Bfloat16 rounded<Bfloat16>(float x) {
  const std::uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U)};
}

// N neighbours, which lie at a multiple of their size.
template <class T, int N>
struct alignas(sizeof(T) * N) Neighbours {
  T at[N];
};
template <class T>
inline constexpr int sixteen_bytes = 16 / static_cast<int>(sizeof(T));

// Whether rows of `width` elements at these addresses can be read sixteen bytes at a time; null is no address.
template <class T, class... P>
inline bool in_sixteens(std::int64_t width, const P*... memory) {
  return width % sixteen_bytes<T> == 0 && ((reinterpret_cast<std::uintptr_t>(memory) % 16 == 0) && ...);
}

// use.operator()<T, N>() for the type of `element` and as many neighbours N as these addresses allow: sixteen bytes, or one.
template <class Use, class... P>
inline cudaError_t in_runs(Element element, std::int64_t width, const Use& use, const P*... memory) {
  const auto of = [&]<class T>() {
    return in_sixteens<T>(width, memory...) ? use.template operator()<T, sixteen_bytes<T>>()
                                            : use.template operator()<T, 1>();
  };
  return element == Element::float32 ? of.template operator()<float>() : of.template operator()<Bfloat16>();
}

}  // namespace rlalgo::cuda
