// The table of kernels: what is switched off, and how large the memory is that callers bring.
#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/cuda/kernels.hpp>

namespace cuda = rlalgo::cuda;

TEST_CASE("A kernel is in use until it is switched off, each by itself") {
  CHECK(cuda::in_use(cuda::Kernel::rotate));
  cuda::use(cuda::Kernel::rotate, false);
  CHECK_FALSE(cuda::in_use(cuda::Kernel::rotate));
  CHECK(cuda::in_use(cuda::Kernel::draw));
  cuda::use(cuda::Kernel::rotate, true);
  CHECK(cuda::in_use(cuda::Kernel::rotate));
  CHECK(cuda::kernel_names[static_cast<std::size_t>(cuda::Kernel::draw)] == "draw");
}

TEST_CASE("Memory that callers bring is as large as its shapes ask") {
  CHECK(cuda::rms_norm_chunks(0) == 0);
  CHECK(cuda::rms_norm_chunks(1) == 1);
  CHECK(cuda::rms_norm_chunks(33) == 2);
  CHECK(cuda::rms_norm_chunks(1'000'000) == 128);
  CHECK(cuda::decode_width(8) == 64);
  CHECK(cuda::decode_width(80) == 128);
  CHECK(cuda::decode_chunks(0) == 0);
  CHECK(cuda::decode_chunks(8) == 1);
  CHECK(cuda::decode_chunks(9) == 2);
  CHECK(cuda::decode_partial_floats(3, 14, 64, 9) == 3 * 14 * 2 * 66);
  CHECK(cuda::product_8bit_groups(896) == 28);
  CHECK(cuda::product_8bit_groups(40) == 2);
}
