#include <rlalgo/tensor/side_stream.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a device without streams computes in order") {
  tensor::SideStream side{at::Device(at::kCPU)};
  CHECK(side.handle() == nullptr);
  int done = 0;
  {
    const tensor::SideStream::Scope scope(side);
    ++done;
  }
  CHECK_FALSE(side.launch([&] { ++done; }).has_value());
  CHECK(done == 2);
  CHECK_FALSE(side.stream().has_value());
}
