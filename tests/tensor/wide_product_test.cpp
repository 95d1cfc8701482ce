#include <rlalgo/tensor/wide_product.hpp>

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("products of narrow numbers are added in the dtype of the sum, one by one and in batches") {
  for (const bool batches : {false, true})
    for (const auto narrow : {at::kBFloat16, at::kHalf, at::kFloat}) {
      CAPTURE(batches, c10::toString(narrow));
      const auto shape = [&](std::int64_t rows, std::int64_t columns) {
        return batches ? std::vector<std::int64_t>{3, rows, columns} : std::vector<std::int64_t>{rows, columns};
      };
      const at::Tensor a = at::randn(shape(5, 70)).to(narrow), b = at::randn(shape(70, 4)).to(narrow);
      const at::Tensor before = at::randn(shape(5, 4)), product = at::matmul(a.to(at::kDouble), b.to(at::kDouble));
      for (const double beta : {0.0, 1.0}) {
        at::Tensor out = before.clone();
        if (beta == 0.0) out.fill_(std::numeric_limits<double>::quiet_NaN());  // what is there is not read
        tensor::addmm_wide_(out, a, b, beta, 0.5);
        CHECK(out.scalar_type() == at::kFloat);
        const at::Tensor expected = (beta == 0.0 ? at::zeros_like(before) : before).to(at::kDouble) + 0.5 * product;
        // A sum that was rounded to bfloat16 or half would be a thousandth off.
        CHECK((out.to(at::kDouble) - expected).abs().max().item<double>() < 2e-5);
      }
    }
}
