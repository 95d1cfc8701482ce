// What a device gives, tests/far has.
#include <rlalgo/tensor/reading.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("tensors of the host, and none at all, stay as they are") {
  auto x = at::tensor({1.0F, 2.0F}), none = at::Tensor();
  const auto* const memory = x.const_data_ptr();
  tensor::Reading reading;
  reading.add(x);
  reading.add(none);
  reading.fetch();
  CHECK(x.const_data_ptr() == memory);
  CHECK_FALSE(none.defined());
  tensor::Reading().fetch();
}
