#include <support/scratch.hpp>

#include <rlalgo/os/memory_limit.hpp>

using namespace rlalgo;

TEST_CASE("the memory that a process may have is the least that anybody grants") {
  const std::uint64_t machine = os::memory_limit();
  CHECK(machine > (std::uint64_t{1} << 20U));
  const support::ScratchDirectory scratch;
  CHECK(os::detail::bytes_in(scratch.write("limit", "12345\n"), 7) == 12345);
  CHECK(os::detail::bytes_in(scratch.write("max", "max\n"), 7) == 7);
  CHECK(os::detail::bytes_in((scratch.path() / "none").string(), 7) == 7);
}
