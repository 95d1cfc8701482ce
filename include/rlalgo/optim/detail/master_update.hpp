// One pass of AdamW (adamw.hpp) over bfloat16 weights with float32 masters: gradient, moments and master are read once, moments, master
// and the rounded weight written once. The operations are those of ATen's fused kernel in its order, so the bits are its own.
#pragma once

#include <cmath>
#include <cstdint>

#include <c10/util/BFloat16.h>

#include <rlalgo/cpu/lanes.hpp>

namespace rlalgo::optim::detail {

struct MasterMemory {
  const c10::BFloat16* gradient;
  float *master, *m, *v;
  c10::BFloat16* value;
};

// An update's numbers in float32: those of ATen's kernel.
struct AdamWNumbers {
  float kept;               // 1 − lr·λ
  float weight_of_new;      // 1 − β₁
  float beta2, new_square;  // β₂, 1 − β₂
  float correction;         // √(1 − β₂ᵗ)
  float epsilon;
  float step;  // −lr / (1 − β₁ᵗ)

  AdamWNumbers(double learning_rate, double beta1, double b2, double eps, double decay, double t)
      : kept(static_cast<float>(1.0 - learning_rate * decay)),
        weight_of_new(static_cast<float>(1.0 - beta1)),
        beta2(static_cast<float>(b2)),
        new_square(static_cast<float>(1.0 - b2)),
        correction(static_cast<float>(std::sqrt(1.0 - std::pow(b2, t)))),
        epsilon(static_cast<float>(eps)),
        step(static_cast<float>(-(learning_rate / (1.0 - std::pow(beta1, t))))) {}
};

#if defined(__x86_64__)

namespace lanes = cpu::lanes;

[[RLALGO_LANES]] inline void update_masters(const MasterMemory& all, std::int64_t begin, std::int64_t end,
                                            const AdamWNumbers& numbers) {
  const __m512 kept = _mm512_set1_ps(numbers.kept), beta2 = _mm512_set1_ps(numbers.beta2),
               new_square = _mm512_set1_ps(numbers.new_square), correction = _mm512_set1_ps(numbers.correction),
               epsilon = _mm512_set1_ps(numbers.epsilon), step = _mm512_set1_ps(numbers.step);
  // m + (1 − β₁)(g − m), from the nearer end of the two, as lerp does.
  const bool near_m = std::fabs(numbers.weight_of_new) < 0.5f;
  const __m512 share = _mm512_set1_ps(near_m ? numbers.weight_of_new : numbers.weight_of_new - 1.0f);
  for (std::int64_t i = begin; i < end; i += lanes::count) {
    const __mmask16 some = lanes::first(end - i);
    const __m512 g = lanes::load(all.gradient + i, some), old = lanes::load(all.m + i, some);
    const __m512 m = _mm512_fmadd_ps(share, _mm512_sub_ps(g, old), near_m ? old : g);
    const __m512 v =
        _mm512_fmadd_ps(_mm512_mul_ps(new_square, g), g, _mm512_mul_ps(lanes::load(all.v + i, some), beta2));
    const __m512 root = _mm512_maskz_sqrt_ps(some, v);
    const __m512 below = _mm512_add_ps(_mm512_div_ps(root, correction), epsilon);
    // (maskz: g++ makes one operation of a product and a sum otherwise.)
    const __m512 decayed = _mm512_maskz_mul_ps(some, lanes::load(all.master + i, some), kept);
    const __m512 master = _mm512_add_ps(decayed, _mm512_div_ps(_mm512_mul_ps(step, m), below));
    lanes::store(all.m + i, some, m);
    lanes::store(all.v + i, some, v);
    lanes::store(all.master + i, some, master);
    lanes::store(all.value + i, some, master);
  }
}

#endif

}  // namespace rlalgo::optim::detail
