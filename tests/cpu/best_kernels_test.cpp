#include <rlalgo/cpu/best_kernels.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <support/catch.hpp>
#include <support/not_run.hpp>

using namespace rlalgo;
using namespace rlalgo::cpu;

TEST_CASE("the kernels of this CPU are named the fastest first, and those of others are not tested here") {
  const std::vector<const Kernels*> usable = usable_kernels();
  std::size_t next = 0;
  for (const std::string name : {"amx_bf16", "avx512_bf16", "avx512", "avx2", "portable"})
    if (next < usable.size() && usable[next]->name == name)
      ++next;
    else
      support::not_run_in_part("a processor without the instructions of the kernels " + name);
  CHECK(next == usable.size());
}

TEST_CASE("kernels are chosen by name among those of this CPU") {
  CHECK(&kernels_named("") == usable_kernels().front());
  for (const Kernels* kernels : usable_kernels()) CHECK(&kernels_named(kernels->name) == kernels);
  CHECK_THROWS_WITH(kernels_named("avx3"), Catch::Contains("[rlalgo.cpu.1]") && Catch::Contains("'avx3'") &&
                                               Catch::Contains("portable") && Catch::Contains("RLALGO_CPU"));
}

TEST_CASE("the kernels in use are those that RLALGO_CPU names, else the fastest of this CPU") {
  const char* const wish = std::getenv("RLALGO_CPU");
  const std::string_view expected = wish != nullptr ? wish : usable_kernels().front()->name;
  CHECK(best_kernels().name == expected);
  CHECK(&best_kernels() == &best_kernels());
}
