// Definitions of quantised_weight.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/cpu/features.hpp>
#include <rlalgo/cpu/lanes.hpp>
#include <rlalgo/cuda/kernels.hpp>
#include <rlalgo/model/quantised_weight.hpp>
#include <rlalgo/tensor/blockwise_8bit.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/on_threads.hpp>

namespace rlalgo::model {

namespace detail {

inline constexpr std::array<float, 16> nf4_values = {-1.0F,
                                                     -0.6961928009986877F,
                                                     -0.5250730514526367F,
                                                     -0.39491748809814453F,
                                                     -0.28444138169288635F,
                                                     -0.18477343022823334F,
                                                     -0.09105003625154495F,
                                                     0.0F,
                                                     0.07958029955625534F,
                                                     0.16093020141124725F,
                                                     0.24611230194568634F,
                                                     0.33791524171829224F,
                                                     0.44070982933044434F,
                                                     0.5626170039176941F,
                                                     0.7229568362236023F,
                                                     1.0F};
// A sign, two bits of an exponent and one of a fraction: of 0, 1/16, 8, 12, 4, 6, 2, 3, divided by 12.
inline constexpr std::array<float, 16> fp4_values = {
    0.0F,  0.0625F / 12.0F,  8.0F / 12.0F,  1.0F,  4.0F / 12.0F,  0.5F,  2.0F / 12.0F,  0.25F,
    -0.0F, -0.0625F / 12.0F, -8.0F / 12.0F, -1.0F, -4.0F / 12.0F, -0.5F, -2.0F / 12.0F, -0.25F};

inline constexpr std::int64_t elements_of_a_task = std::int64_t{1} << 16U;

// The nearest code of a number: its values in rising order with the halves between neighbours.
struct CodeSearch {
  std::array<float, 15> halves{};
  std::array<std::uint8_t, 16> codes{};

  explicit CodeSearch(WeightCode code) {
    const auto values = values_of(code);
    std::iota(codes.begin(), codes.end(), std::uint8_t{0});
    // Of the two zeros of fp4 the one with the sign bit comes second.
    std::stable_sort(codes.begin(), codes.end(), [&](std::uint8_t a, std::uint8_t b) { return values[a] < values[b]; });
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = (values[codes[i]] + values[codes[i + 1]]) / 2.0F;
  }

  [[nodiscard]] std::uint8_t operator()(float x) const {
    std::size_t at = 0;
    for (const float half : halves) at += half < x ? 1 : 0;
    return codes[at];
  }
};

[[noreturn]] inline void refuse_weight(const std::string& name, double found, const char* expected) {
  core::raise("model", 48,
              {.what = "a weight that is to be quantised cannot be",
               .found = std::to_string(found),
               .expected = expected,
               .where = "tensor " + name,
               .remedy = "repair the checkpoint, or load the model whole (load_in_8bit and load_in_4bit: false)"});
}

// Blocks of `weight` (n elements): codes and scales.
template <class T>
void quantise_blocks(const T* weight, std::int64_t n, std::int64_t block, WeightCode code, std::uint8_t* codes,
                     float* scales) {
  const CodeSearch nearest(code);
  const std::int64_t blocks = (n + block - 1) / block, at_once = std::max<std::int64_t>(1, elements_of_a_task / block);
  tensor::on_stretches(blocks, at_once, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> found(static_cast<std::size_t>(block + 1));
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t first = b * block, count = std::min(block, n - first);
      const T* const from = weight + first;
      float most = 0.0F;
      for (std::int64_t i = 0; i < count; ++i) most = std::max(most, std::abs(static_cast<float>(from[i])));
      const bool whole = count == block;
      const float least = std::max(most, 1e-38F), factor = 1.0F / least;
      scales[b] = whole ? most : least;
      for (std::int64_t i = 0; i < count; ++i) {
        const auto w = static_cast<float>(from[i]);
        found[static_cast<std::size_t>(i)] = nearest(std::clamp(whole ? w * factor : w / least, -1.0F, 1.0F));
      }
      if (count % 2 != 0) found[static_cast<std::size_t>(count)] = nearest(0.0F);
      for (std::int64_t i = 0; i < count; i += 2)
        codes[(first + i) / 2] = static_cast<std::uint8_t>(found[static_cast<std::size_t>(i)] << 4U |
                                                           found[static_cast<std::size_t>(i) + 1]);
    }
  });
}

// Codes of scales less their mean, in groups of 256. bitsandbytes' library for CPUs looks a number up in 65,536 even steps of [−1, 1].
inline QuantisedWeight::Nested nest(Tensor& scales) {
  constexpr std::int64_t steps = 65536, group = 256;
  static const std::vector<std::uint8_t> table = [] {
    const auto values = tensor::DynamicCode::with_sign().values();
    std::vector<std::uint8_t> out(steps);
    std::size_t code = 0;
    for (std::int64_t i = 0; i < steps; ++i) {
      const float x = -1.0F + (2.0F * static_cast<float>(i)) / static_cast<float>(steps - 1);
      while (code + 1 < values.size() && 0.5F * (values[code] + values[code + 1]) < x) ++code;
      out[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
    }
    return out;
  }();
  const Tensor mean = scales.mean();
  const Tensor apart = scales.sub(mean).contiguous();
  const std::int64_t n = apart.numel(), groups = (n + group - 1) / group;
  Tensor codes = tensor::empty({n}, at::TensorOptions().dtype(at::kByte));
  QuantisedWeight::Nested out{.scales = tensor::empty({groups}, at::TensorOptions().dtype(at::kFloat)),
                              .values = tensor::from_values<float>(tensor::DynamicCode::with_sign().values(),
                                                                   at::TensorOptions().dtype(at::kFloat)),
                              .offset = mean.item<float>(),
                              .group = group};
  const float* const from = apart.const_data_ptr<float>();
  auto* const to = codes.mutable_data_ptr<std::uint8_t>();
  float* const scale = out.scales.mutable_data_ptr<float>();
  tensor::on_threads(groups, [&](std::int64_t g) {
    const std::int64_t begin = g * group, end = std::min(n, begin + group);
    float most = 0.0F;
    for (std::int64_t i = begin; i < end; ++i) most = std::max(most, std::abs(from[i]));
    scale[g] = most;
    const float factor = most == 0.0F ? 0.0F : 1.0F / most;
    for (std::int64_t i = begin; i < end; ++i) {
      // Rounded after each operation, whatever the compiler contracts.
      const float x = std::clamp(from[i] * factor, -1.0F, 1.0F), half = (x + 1.0F) * 0.5F;
      const auto scaled = static_cast<float>(static_cast<double>(half) * static_cast<double>(steps - 1));
      to[i] = most == 0.0F ? std::uint8_t{0} : table[static_cast<std::size_t>(scaled + 0.5F)];
    }
  });
  scales = codes;
  return out;
}

inline void require_finite(const Tensor& weight, double most, const std::string& name, const char* expected) {
  const double largest = weight.numel() == 0 ? 0.0 : weight.abs().max().item<double>();
  if (!(largest <= most)) refuse_weight(name, largest, expected);
}

// c[q]·a of the codes [first, first + count) of one block.
template <class T>
void write_codes(const std::uint8_t* codes, const float* values, float scale, std::int64_t first, std::int64_t count,
                 T* out) {
  std::int64_t i = 0;
  const auto one = [&](std::int64_t at) {
    const std::uint8_t byte = codes[at / 2];
    out[at - first] = static_cast<T>(values[at % 2 == 0 ? byte >> 4U : byte & 0xFU] * scale);
  };
  if (count > 0 && first % 2 != 0) one(first + i++);
  for (; i + 1 < count; i += 2) {
    const std::uint8_t byte = codes[(first + i) / 2];
    out[i] = static_cast<T>(values[byte >> 4U] * scale);
    out[i + 1] = static_cast<T>(values[byte & 0xFU] * scale);
  }
  if (i < count) one(first + i);
}

#if defined(__x86_64__)
// The same, sixteen at a time, from an even one on.
template <class T>
[[RLALGO_LANES]] inline void write_codes_in_lanes(const std::uint8_t* codes, const float* values, float scale,
                                                  std::int64_t first, std::int64_t count, T* out) {
  const __m512 table = _mm512_loadu_ps(values), factor = _mm512_set1_ps(scale);
  const __m128i low = _mm_set1_epi8(0x0F);
  std::int64_t i = 0;
  for (; i + cpu::lanes::count <= count; i += cpu::lanes::count) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + (first + i) / 2));
    const __m128i both = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), low), _mm_and_si128(bytes, low));
    const __m512 x = _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_cvtepu8_epi32(both), table), factor);
    cpu::lanes::store(out + i, 0xFFFF, x);
  }
  if (i < count) write_codes(codes, values, scale, first + i, count - i, out + i);
}
#endif

template <class T>
void write_stretch(const std::uint8_t* codes, const float* values, float scale, std::int64_t first, std::int64_t count,
                   T* out) {
#if defined(__x86_64__)
  static const bool in_lanes = cpu::has_lanes();
  if (in_lanes && first % 2 == 0) return write_codes_in_lanes(codes, values, scale, first, count, out);
#endif
  write_codes(codes, values, scale, first, count, out);
}

}  // namespace detail

RLALGO_INLINE std::span<const float, 16> values_of(WeightCode code) {
  return code == WeightCode::fp4 ? detail::fp4_values : detail::nf4_values;
}

RLALGO_INLINE QuantisedWeight::QuantisedWeight(WeightCode code, std::int64_t rows, std::int64_t columns,
                                               std::int64_t block, Tensor codes, Tensor scales, Nested nested,
                                               at::ScalarType compute)
    : code_(code),
      rows_(rows),
      columns_(columns),
      block_(block),
      codes_(std::move(codes)),
      scales_(std::move(scales)),
      nested_(std::move(nested)),
      compute_(compute) {}

RLALGO_INLINE std::size_t QuantisedWeight::bytes() const {
  std::size_t out = 0;
  for (const Tensor* one : {&codes_, &scales_, &nested_.scales, &nested_.values})
    if (one->defined()) out += one->nbytes();
  return out;
}

RLALGO_INLINE QuantisedWeight QuantisedWeight::to(at::Device device) const {
  QuantisedWeight out = *this;
  if (device.is_cpu()) return out;
  for (Tensor* one : {&out.codes_, &out.scales_, &out.nested_.scales, &out.nested_.values})
    if (one->defined()) *one = one->to(device);
  if (code_ != WeightCode::int8) out.pairs_ = out.pairs();
  return out;
}

template <class T>
void QuantisedWeight::write(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                            T* out) const {
  if (code_ == WeightCode::int8) {
    const auto* const from = codes_.const_data_ptr<std::int8_t>();
    const float* const scale = scales_.const_data_ptr<float>();
    for (std::int64_t r = row; r < row + rows; ++r, out += columns) {
      const float factor = scale[r] * static_cast<float>(1.0 / 127.0);
      for (std::int64_t j = 0; j < columns; ++j)
        out[j] = static_cast<T>(static_cast<float>(from[r * columns_ + column + j]) * factor);
    }
    return;
  }
  const auto* const from = codes_.const_data_ptr<std::uint8_t>();
  const float* const values = values_of(code_).data();
  const bool nested = nested_.scales.defined();
  const float* const plain = nested ? nullptr : scales_.const_data_ptr<float>();
  const auto* const inner = nested ? scales_.const_data_ptr<std::uint8_t>() : nullptr;
  const float* const outer = nested ? nested_.scales.const_data_ptr<float>() : nullptr;
  const float* const table = nested ? nested_.values.const_data_ptr<float>() : nullptr;
  const auto offset = static_cast<float>(nested_.offset);
  const auto scale_of = [&](std::int64_t b) {
    if (!nested) return plain[b];
    const auto product = static_cast<double>(table[inner[b]]) * static_cast<double>(outer[b / nested_.group]);
    return static_cast<float>(product) + offset;  // rounded twice: a product of two float32 is exact in double
  };
  for (std::int64_t r = row; r < row + rows; ++r) {
    const std::int64_t end = r * columns_ + column + columns;
    for (std::int64_t at = r * columns_ + column; at < end;) {
      const std::int64_t b = at / block_, next = std::min(end, (b + 1) * block_);
      detail::write_stretch(from, values, scale_of(b), at, next - at, out);
      out += next - at;
      at = next;
    }
  }
}

namespace detail {

[[nodiscard]] inline const cuda::Kernels* dequantises(const QuantisedWeight& w, at::ScalarType type) {
  if (w.codes().device().is_cpu() || !w.codes().is_contiguous() || !w.scales().is_contiguous()) return nullptr;
  if (w.scales().dim() == 2) return nullptr;  // scales of blocks of a row
  const bool powers =
      w.code() == WeightCode::int8 || (std::has_single_bit(static_cast<std::uint64_t>(w.block())) &&
                                       std::has_single_bit(static_cast<std::uint64_t>(w.nested().group)));
  return powers ? tensor::own_kernels().take(cuda::Kernel::dequantise, w.codes().new_empty({0}, type)) : nullptr;
}

// Into `out` [rows, columns], which is contiguous; false where there is no kernel for it.
[[nodiscard]] inline bool write_part_by_kernel(const QuantisedWeight& w, std::int64_t row, std::int64_t column,
                                               const Tensor& out) {
  const cuda::Kernels* const own = dequantises(w, out.scalar_type());
  const std::int64_t rows = out.size(0), columns = out.size(1);
  if (own == nullptr || rows * columns >= cuda::dequantise_most) return false;
  cuda::Dequantise a{.codes = static_cast<const std::uint8_t*>(w.codes().const_data_ptr()),
                     .scales = w.scales().const_data_ptr(),
                     .bits = w.code() == WeightCode::int8 ? 8 : 4,
                     .width = w.columns(),
                     .row = row,
                     .rows = rows,
                     .column = column,
                     .columns = columns,
                     .block = w.block(),
                     .group = w.nested().group,
                     .out = out.mutable_data_ptr(),
                     .element = tensor::element_of(out)};
  if (a.bits == 4) std::ranges::copy(values_of(w.code()), a.values);
  if (const QuantisedWeight::Nested& nested = w.nested(); nested.scales.defined()) {
    a.scale_values = nested.values.const_data_ptr<float>();
    a.scale_scales = nested.scales.const_data_ptr<float>();
    a.scale_offset = static_cast<float>(nested.offset);
  }
  tensor::launch(*own, own->dequantise, a, cuda::Kernel::dequantise, out);
  return true;
}

// Undefined where there is no kernel for it.
[[nodiscard]] inline Tensor part_by_kernel(const QuantisedWeight& w, std::int64_t row, std::int64_t rows,
                                           std::int64_t column, std::int64_t columns, at::ScalarType type) {
  if (dequantises(w, type) == nullptr) return {};
  const Tensor out = tensor::empty({rows, columns}, at::TensorOptions().dtype(type).device(w.codes().device()));
  return write_part_by_kernel(w, row, column, out) ? out : Tensor();
}

}  // namespace detail

RLALGO_INLINE std::int64_t QuantisedWeight::tile() const {
  constexpr std::int64_t few = std::int64_t{1} << 22U, many = std::int64_t{1} << 26U;
  return detail::dequantises(*this, compute_) != nullptr ? many : few;
}

RLALGO_INLINE Tensor QuantisedWeight::part(std::int64_t row, std::int64_t rows, std::int64_t column,
                                           std::int64_t columns, at::ScalarType type) const {
  if (const Tensor out = detail::part_by_kernel(*this, row, rows, column, columns, type); out.defined()) return out;
  if (!codes_.device().is_cpu() || scales_.dim() == 2) return part_by_operators(row, rows, column, columns, type);
  const bool low = type == at::kBFloat16;
  const Tensor out = tensor::empty({rows, columns}, at::TensorOptions().dtype(low ? at::kBFloat16 : at::kFloat));
  const std::int64_t at_once =
      std::max<std::int64_t>(1, detail::elements_of_a_task / std::max<std::int64_t>(1, columns));
  const auto fill = [&](auto* to) {
    tensor::on_stretches(rows, at_once, [&](std::int64_t begin, std::int64_t end) {
      write(row + begin, end - begin, column, columns, to + begin * columns);
    });
  };
  low ? fill(out.mutable_data_ptr<c10::BFloat16>()) : fill(out.mutable_data_ptr<float>());
  return out.to(type);
}

RLALGO_INLINE Tensor QuantisedWeight::scales_by_operators(std::int64_t first, std::int64_t count) const {
  const Tensor scales = scales_.narrow(0, first, count);
  if (!nested_.scales.defined()) return scales;
  const std::int64_t group = nested_.group, begin = first / group, end = (first + count + group - 1) / group;
  const Tensor outer =
      nested_.scales.narrow(0, begin, end - begin).unsqueeze(1).expand({end - begin, group}).reshape({-1});
  return nested_.values.index_select(0, scales.to(at::kInt))
      .mul_(outer.narrow(0, first - begin * group, count))
      .add_(static_cast<float>(nested_.offset));
}

RLALGO_INLINE Tensor QuantisedWeight::pairs() const {
  if (pairs_.defined()) return pairs_;
  std::vector<float> out;
  const auto values = values_of(code_);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    out.push_back(values[byte >> 4U]);
    out.push_back(values[byte & 0xFU]);
  }
  return tensor::from_values(out, at::TensorOptions().dtype(at::kFloat).device(codes_.device())).view({256, 2});
}

RLALGO_INLINE Tensor QuantisedWeight::flat_by_operators(std::int64_t first, std::int64_t count) const {
  const std::int64_t begin = first / block_, end = (first + count + block_ - 1) / block_, half = block_ / 2;
  const std::int64_t bytes = std::min(codes_.numel(), end * half) - begin * half;
  Tensor out = pairs().index_select(0, codes_.narrow(0, begin * half, bytes).to(at::kInt)).view({-1});
  if (const std::int64_t lacking = (end - begin) * block_ - out.numel(); lacking > 0)
    out = tensor::concatenate({out, tensor::zeros({lacking}, out.options())}, 0);
  out = out.view({end - begin, block_}).mul_(scales_by_operators(begin, end - begin).unsqueeze(1)).view({-1});
  return out.narrow(0, first - begin * block_, count);
}

RLALGO_INLINE Tensor QuantisedWeight::part_by_operators(std::int64_t row, std::int64_t rows, std::int64_t column,
                                                        std::int64_t columns, at::ScalarType type) const {
  if (scales_.dim() == 2)
    return codes_.narrow(0, row, rows)
        .to(at::kFloat)
        .view({rows, -1, block_})
        .mul_(scales_.narrow(0, row, rows).unsqueeze(2))
        .view({rows, -1})
        .narrow(1, column, columns)
        .to(type)
        .contiguous();
  if (code_ == WeightCode::int8)
    return codes_.narrow(0, row, rows)
        .narrow(1, column, columns)
        .to(at::kFloat)
        .mul_(scales_.narrow(0, row, rows).mul(static_cast<float>(1.0 / 127.0)).unsqueeze(1))
        .to(type);
  const bool aligned = columns_ % block_ == 0 && column % block_ == 0 && columns % block_ == 0;
  if (columns == columns_ || !aligned) {
    const Tensor whole = flat_by_operators(row * columns_, rows * columns_).view({rows, columns_});
    return whole.narrow(1, column, columns).to(type).contiguous();
  }
  const std::int64_t blocks = columns_ / block_;  // of a row
  const Tensor bytes = codes_.view({rows_, columns_ / 2}).narrow(0, row, rows).narrow(1, column / 2, columns / 2);
  const Tensor scales = scales_by_operators(row * blocks, rows * blocks)
                            .view({rows, blocks})
                            .narrow(1, column / block_, columns / block_);
  return pairs()
      .index_select(0, bytes.to(at::kInt).reshape({-1}))
      .view({rows, columns / block_, block_})
      .mul_(scales.unsqueeze(2))
      .view({rows, columns})
      .to(type);
}

RLALGO_INLINE QuantisedWeight quantise(const Tensor& given, const Quantisation& how, const std::string& name) {
  const c10::NoGradGuard no_grad;
  const at::ScalarType type = given.scalar_type();
  const bool wide = type != at::kFloat && type != at::kBFloat16 && type != at::kHalf;
  const Tensor weight = (wide ? given.to(at::kFloat) : given).contiguous();
  const std::int64_t rows = weight.size(0), columns = weight.size(1), n = weight.numel();
  const at::ScalarType compute = how.products == ProductsIn::float32    ? at::kFloat
                                 : how.products == ProductsIn::bfloat16 ? at::kBFloat16
                                                                        : type;
  if (how.code == WeightCode::int8) {
    const Tensor codes = tensor::empty({rows, columns}, at::TensorOptions().dtype(at::kChar));
    const Tensor scales = tensor::empty({rows}, at::TensorOptions().dtype(at::kFloat));
    detail::require_finite(weight, 65504.0, name, "at most 65504, as 8 bits are made of float16");
    const std::int64_t at_once =
        std::max<std::int64_t>(1, detail::elements_of_a_task * 16 / std::max<std::int64_t>(1, columns));
    for (std::int64_t begin = 0; begin < rows; begin += at_once) {
      const std::int64_t count = std::min(at_once, rows - begin);
      const Tensor half = weight.narrow(0, begin, count).to(at::kHalf);
      const Tensor most = half.abs().amax(1).to(at::kFloat);
      scales.narrow(0, begin, count).copy_(most);
      // A row of zeros has the codes 0, whatever 0/0 would give.
      const Tensor factor = most.reciprocal().mul_(127.0).masked_fill_(most.eq(0.0), 0.0).unsqueeze(1);
      codes.narrow(0, begin, count).copy_(half.to(at::kFloat).mul_(factor).round_());
    }
    return {how.code, rows, columns, how.block, codes, scales, {}, compute};
  }
  detail::require_finite(weight, std::numeric_limits<float>::max(), name, "a finite number");
  const Tensor codes = tensor::empty({(n + 1) / 2}, at::TensorOptions().dtype(at::kByte));
  Tensor scales = tensor::empty({(n + how.block - 1) / how.block}, at::TensorOptions().dtype(at::kFloat));
  const auto run = [&](const auto* from) {
    detail::quantise_blocks(from, n, how.block, how.code, codes.mutable_data_ptr<std::uint8_t>(),
                            scales.mutable_data_ptr<float>());
  };
  if (weight.scalar_type() == at::kFloat)
    run(weight.const_data_ptr<float>());
  else if (weight.scalar_type() == at::kHalf)
    run(weight.const_data_ptr<c10::Half>());
  else
    run(weight.const_data_ptr<c10::BFloat16>());
  QuantisedWeight::Nested nested;
  if (how.nested) nested = detail::nest(scales);
  return {how.code, rows, columns, how.block, codes, scales, std::move(nested), compute};
}

RLALGO_INLINE Tensor stand_in(at::IntArrayRef shape, const at::TensorOptions& options) {
  return tensor::empty({1}, options).fill_(std::numeric_limits<double>::quiet_NaN()).expand(shape);
}

}  // namespace rlalgo::model
