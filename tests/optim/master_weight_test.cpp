#include <support/catch.hpp>

#include <ATen/ATen.h>

#include <rlalgo/optim/master_weight.hpp>

using rlalgo::optim::MasterWeight;

TEST_CASE("a parameter in full precision is its own master") {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor value = at::ones({3}, type).requires_grad_();
    const MasterWeight weight(value);
    CHECK_FALSE(weight.separate());
    CHECK(weight.master().const_data_ptr() == value.const_data_ptr());
    CHECK_FALSE(weight.master().requires_grad());
    CHECK_FALSE(weight.gradient().defined());
    value.mutable_grad() = at::full({3}, 2.0, type);
    CHECK(weight.gradient().const_data_ptr() == value.grad().const_data_ptr());
  }
}

TEST_CASE("a parameter in half precision is the rounding of a master in float32") {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor value = at::ones({3}, type).requires_grad_();
    const MasterWeight weight(value);
    REQUIRE(weight.separate());
    CHECK(weight.master().scalar_type() == at::kFloat);
    const void* const memory = value.const_data_ptr();
    weight.master().add_(1e-5);
    weight.publish();
    CHECK(value.detach().eq(1.0).all().item<bool>());  // too little to be seen in the value
    for (int i = 0; i < 999; ++i) weight.master().add_(1e-5);
    weight.publish();
    CHECK(value.detach()[1].item<double>() == Approx(1.01).epsilon(4e-3));
    CHECK(value.detach()[1].item<double>() > 1.0);  // … but it is not lost
    CHECK(value.const_data_ptr() == memory);
    value.mutable_grad() = at::full({2, 3}, 0.5, type).t().select(1, 0);
    CHECK(weight.gradient().scalar_type() == at::kFloat);
    CHECK(weight.gradient().is_contiguous());
    CHECK(weight.gradient()[2].item<double>() == 0.5);
  }
}
