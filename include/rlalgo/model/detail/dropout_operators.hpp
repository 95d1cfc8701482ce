// Masks of dropout (operations.hpp) made on the device of what is dropped from, by operators: the words of dropout_words.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/operations.hpp>
#include <rlalgo/tensor/functions.hpp>
#include <rlalgo/tensor/tensor.hpp>

namespace rlalgo::model::detail {

// The four words of each block `index` [B] int64 of (key; step, index): [4, B] int64.
inline Tensor philox_words(core::PhiloxKey key, std::uint64_t step, const Tensor& index) {
  constexpr std::int64_t low = 0xFFFFFFFF;
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32U) ^ (static_cast<std::uint32_t>(key.stream) * 0x9E3779B9U);
  const auto one = [&](std::uint64_t word) { return index.new_full({1}, static_cast<std::int64_t>(word & low)); };
  std::array<Tensor, 4> c = {index.bitwise_and(low), index.bitwise_right_shift(32), one(step), one(step >> 32U)};
  // The upper 32 bits of a product, which may be above 2⁶³.
  const auto upper = [&](const Tensor& product) { return product.bitwise_right_shift(32).bitwise_and_(low); };
  for (int round = 0; round < 10; ++round) {
    const Tensor p0 = c[0].mul(std::int64_t{0xD2511F53}), p1 = c[2].mul(std::int64_t{0xCD9E8D57});
    c = {c[1].bitwise_xor(upper(p1)).bitwise_xor_(static_cast<std::int64_t>(k0)), p1.bitwise_and(low),
         c[3].bitwise_xor(upper(p0)).bitwise_xor_(static_cast<std::int64_t>(k1)), p0.bitwise_and(low)};
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  return tensor::stack({c[0], c[1], c[2], c[3]});
}

// Whether elements are dropped, [n] bool, of n in rows of `width`, on the device of `like`.
inline Tensor dropped_there(const DropoutMask& mask, std::int64_t n, std::int64_t width, const Tensor& like) {
  constexpr std::int64_t at_once = std::int64_t{1} << 20U;  // blocks: some 100 MB of words
  const core::PhiloxKey key{mask.seed, core::Stream::dropout};
  const auto threshold = static_cast<std::int64_t>(static_cast<std::uint32_t>(mask.probability * 0x1.0p32));
  const auto longs = like.options().dtype(at::kLong).requires_grad(false);
  const auto words = [&](const Tensor& block) {
    return philox_words(key, mask.draw, block.add(static_cast<std::int64_t>(mask.module << 40U)));
  };
  const Tensor out = tensor::empty({n}, longs.dtype(at::kBool));
  // Elements from `begin` on, of these whole blocks.
  const auto fill = [&](const Tensor& block, std::int64_t begin) {
    const std::int64_t count = std::min(4 * block.size(0), n - begin);
    out.narrow(0, begin, count).copy_(words(block).lt(threshold).t().reshape({-1}).narrow(0, 0, count));
  };
  if (mask.rows == nullptr) {
    for (std::int64_t begin = 0; begin < (n + 3) / 4; begin += at_once)
      fill(tensor::arange(begin, std::min(begin + at_once, (n + 3) / 4), 1, longs), 4 * begin);
    return out;
  }
  const Tensor rows = mask.rows_there != nullptr ? *mask.rows_there : tensor::from_values(*mask.rows, longs);
  const std::int64_t each = width % 4 == 0 ? 4 : 1;  // elements that are numbered together
  const Tensor numbers =
      rows.mul(width / each).unsqueeze(1).add(tensor::arange(0, width / each, 1, longs)).reshape({-1});
  for (std::int64_t begin = 0; begin < numbers.size(0); begin += at_once) {
    const Tensor some = numbers.narrow(0, begin, std::min(at_once, numbers.size(0) - begin));
    if (each == 4)
      fill(some, 4 * begin);
    else
      out.narrow(0, begin, some.size(0))
          .copy_(
              words(some.bitwise_right_shift(2)).gather(0, some.bitwise_and(3).unsqueeze(0)).squeeze(0).lt(threshold));
  }
  return out;
}

}  // namespace rlalgo::model::detail
