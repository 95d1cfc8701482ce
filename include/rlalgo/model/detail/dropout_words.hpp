// The random words of a dropout mask (operations.hpp), element after element of the tensor that it is applied to.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/operations.hpp>

namespace rlalgo::model::detail {

// visit(i, dropped) for each of n elements in rows of `width`.
template <class F>
void visit_dropout(const DropoutMask& mask, std::uint64_t n, std::uint64_t width, F&& visit) {
  const core::PhiloxKey key{mask.seed, core::Stream::dropout};
  const auto threshold = static_cast<std::uint32_t>(mask.probability * 0x1.0p32);
  const auto words = [&](std::uint64_t block) { return core::philox(key, mask.draw, mask.module << 40U | block); };
  // Elements from `begin` on are numbered from `number` on.
  const auto run = [&](std::uint64_t begin, std::uint64_t count, std::uint64_t number) {
    for (std::uint64_t i = 0; i < count;) {
      const core::PhiloxBlock block = words((number + i) / 4);
      for (std::uint64_t word = (number + i) % 4; word < 4 && i < count; ++word, ++i)
        visit(begin + i, block[word] < threshold);
    }
  };
  if (mask.rows == nullptr) return run(0, n, 0);
  for (std::size_t r = 0; r < mask.rows->size(); ++r)
    run(r * width, width, static_cast<std::uint64_t>((*mask.rows)[r]) * width);
}

}  // namespace rlalgo::model::detail
