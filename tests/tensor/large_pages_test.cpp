#include <rlalgo/tensor/large_pages.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/resident.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::number_raised_by;
using support::resident;
using tensor::LargePages;

namespace {

std::uintptr_t address(const at::Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.const_data_ptr()); }

}  // namespace

TEST_CASE("tensors lie behind each other from a cache line on, zero, and are written independently") {
  const std::vector<std::vector<std::int64_t>> shapes = {{3, 5}, {700, 1001}, {}, {0, 4}, {17}};
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    std::size_t bytes = 0;
    for (const auto& shape : shapes) bytes += LargePages::bytes_of(shape, dtype);
    LargePages memory(bytes);
    std::vector<at::Tensor> all;
    for (const auto& shape : shapes) all.push_back(memory.take(shape, dtype));
    std::uintptr_t next = address(all[0]);
    for (std::size_t i = 0; i < all.size(); ++i) {
      INFO(c10::toString(dtype) << " tensor " << i);
      CHECK(all[i].sizes() == at::IntArrayRef(shapes[i]));
      CHECK(all[i].scalar_type() == dtype);
      CHECK(all[i].is_contiguous());
      CHECK(all[i].eq(0).all().item<bool>());
      if (all[i].numel() == 0) continue;
      CHECK(address(all[i]) % 64 == 0);
      CHECK(address(all[i]) == next);
      next += LargePages::bytes_of(shapes[i], dtype);
    }
    for (std::size_t i = 0; i < all.size(); ++i) all[i].fill_(static_cast<double>(i + 1));
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i].eq(static_cast<double>(i + 1)).all().item<bool>());
  }
}

TEST_CASE("memory outlives what gave it, and is given back tensor by tensor") {
  constexpr std::int64_t many = std::int64_t{8} << 20U;  // 32 MiB of float32
  const std::int64_t before = resident();
  std::optional<at::Tensor> first, second;
  {
    LargePages memory(2 * LargePages::bytes_of({many}, at::kFloat));
    first = memory.take({many}, at::kFloat).fill_(1.0);
    second = memory.take({many}, at::kFloat).fill_(2.0);
  }
  constexpr std::int64_t half = many * 4, some = half / 4;
  CHECK(resident() - before > 2 * half - some);
  first.reset();
  CHECK(resident() - before < half + some);
  CHECK(second->eq(2.0).all().item<bool>());
  second.reset();
  CHECK(resident() - before < some);
}

TEST_CASE("what there is not is refused") {
  LargePages memory(LargePages::bytes_of({10}, at::kFloat));
  const at::Tensor one = memory.take({5}, at::kFloat);
  CHECK(number_raised_by([&] { (void)memory.take({17}, at::kFloat); }) == "tensor.7");
  CHECK(memory.take({0}, at::kFloat).numel() == 0);
  CHECK(number_raised_by([] { const LargePages all(std::size_t{1} << 60U); }) == "os.10");
}
