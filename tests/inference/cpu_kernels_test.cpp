#include <rlalgo/inference/cpu_kernels.hpp>

#include <cstdlib>
#include <string>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the kernels in use are those asked for, else the fastest of this CPU") {
  const char* const wish = std::getenv("RLALGO_CPU");
  const std::string expected = wish != nullptr ? wish : "";
  CHECK(inference::cpu_kernels() ==
        (expected.empty() ? cpu::usable_kernels().front()->name : std::string_view(expected)));
}
