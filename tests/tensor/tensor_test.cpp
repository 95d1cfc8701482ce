#include <support/catch.hpp>

#include <type_traits>

#include <rlalgo/tensor/tensor.hpp>

TEST_CASE("the tensor of this library is ATen's") {
  STATIC_REQUIRE(std::is_same_v<rlalgo::tensor::Tensor, at::Tensor>);
}
