#include <rlalgo/tensor/host_block.hpp>

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("handles of a block have their values, shapes and dtypes once it is sent, and versions of their own") {
  tensor::HostBlock block(at::TensorOptions().dtype(at::kFloat));
  const auto ids = block.add(std::vector<std::int64_t>{3, -1, 7});
  const auto numbers = block.add_numbers({0.1, 2.0});
  const auto exact = block.add_numbers({0.1}, at::kDouble);
  const auto narrow = block.add_numbers({1.0 / 3.0}, at::kBFloat16);
  const auto none = block.add_numbers({});
  const auto square = block.add(at::arange(6).view({2, 3}).t());
  const auto flags = block.add(at::tensor({1, 0}, at::kLong).to(at::kBool));
  CHECK_FALSE(block.sent());
  CHECK(ids.numel() == 0);
  block.send();
  CHECK(block.sent());
  CHECK(ids.equal(at::tensor({3, -1, 7}, at::kLong)));
  CHECK(numbers.equal(at::tensor({0.1F, 2.0F})));
  CHECK(exact.item<double>() == 0.1);
  CHECK(narrow.equal(at::tensor({1.0 / 3.0}, at::kDouble).to(at::kBFloat16)));
  CHECK(none.sizes() == at::IntArrayRef{0});
  CHECK(square.equal(at::arange(6).view({2, 3}).t()));
  CHECK(flags.equal(at::tensor({1, 0}, at::kLong).to(at::kBool)));
  for (const auto& x : {ids, numbers, exact, narrow, square}) {
    CHECK(x.is_contiguous());
    CHECK(reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 64 ==
          reinterpret_cast<std::uintptr_t>(ids.const_data_ptr()) % 64);
    CHECK(x.storage().is_alias_of(ids.storage()));
  }
  const auto version = numbers._version();
  ids.add_(1);
  CHECK(numbers._version() == version);
  block.send();  // once
  CHECK(ids[0].item<std::int64_t>() == 4);
  CHECK(support::lacks(support::raised_by([&] { (void)block.add_numbers({1.0}); }), {"tensor.17", "sent"}) == "");
}

TEST_CASE("a block goes to its device, and an empty one nowhere") {
  tensor::HostBlock block(at::TensorOptions().dtype(at::kDouble).device(at::kMeta));
  CHECK(block.number_type() == at::kDouble);
  const auto x = block.add_numbers({1.0, 2.0, 3.0});
  CHECK(x.is_meta());
  block.send();
  CHECK(x.sizes() == at::IntArrayRef{3});
  CHECK(x.is_meta());
  tensor::HostBlock empty(at::TensorOptions().dtype(at::kFloat));
  empty.send();
  CHECK(empty.sent());
}
