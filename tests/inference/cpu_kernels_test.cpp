#include <rlalgo/inference/cpu_kernels.hpp>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the kernels in use are those asked for, else the fastest of this CPU") {
  const char* const wish = std::getenv("RLALGO_CPU");
  std::string expected = wish != nullptr ? wish : "";
  const std::vector<const cpu::Kernels*> usable = cpu::usable_kernels();
  for (const std::string name : {"amx_bf16", "avx512_bf16", "avx512", "avx2", "portable"})  // the fastest first
    if (expected.empty() && std::any_of(usable.begin(), usable.end(), [&](const auto* k) { return k->name == name; }))
      expected = name;
  CHECK(inference::cpu_kernels() == expected);
}
