// A body (instruction_set.hpp): all kernels of a set, and its table. The set has registers, `most_heads` and `eight` (page_attention.hpp) and
// `most_rows` (strip_tile.hpp).
#ifdef RLALGO_CPU_SET

#include <rlalgo/cpu/detail/exponentials.hpp>
#include <rlalgo/cpu/detail/row_kernels.hpp>

#include <rlalgo/cpu/detail/page_attention.hpp>
#include <rlalgo/cpu/detail/strip_tile.hpp>

namespace rlalgo::cpu::RLALGO_CPU_SET {

template <class W>
inline void linear(const LinearArgs& a) {
  LinearStrips<StripTile<float, W>>(a, a.x, a.ldx).run();
}

[[nodiscard]] constexpr Kernels table(std::string_view name, void (*linear_int8)(const LinearArgs&)) {
  return {.name = name,
          .linear_f32 = linear<float>,
          .linear_bf16 = linear<std::uint16_t>,
          .linear_int8 = linear_int8,
          .attention = attention,
          .rms_norm = rms_norm,
          .silu_multiply = gated_multiply<false>,
          .gelu_tanh_multiply = gated_multiply<true>,
          .add = add,
          .rotate = rotate,
          .maximum = maximum,
          .exp_sum = exp_sum};
}

}  // namespace rlalgo::cpu::RLALGO_CPU_SET

#endif
