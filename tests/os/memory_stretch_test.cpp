#include <rlalgo/os/memory_stretch.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <support/catch.hpp>
#include <support/resident.hpp>
#include <support/scratch.hpp>

using rlalgo::os::MemoryStretch;
using rlalgo::os::release_pages;
using rlalgo::support::number_raised_by;
using rlalgo::support::resident;

TEST_CASE("a stretch is zero, begins at 2 MiB, and can be written to its last byte") {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{100000}, std::size_t{5} << 20U}) {
    const MemoryStretch stretch(bytes);
    CHECK(stretch.size() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(stretch.begin()) % (std::size_t{2} << 20U) == 0);
    for (std::size_t i = 0; i < bytes; i += 4096) CHECK(stretch.begin()[i] == std::byte{0});
    stretch.begin()[0] = stretch.begin()[bytes - 1] = std::byte{7};
    CHECK(stretch.begin()[bytes - 1] == std::byte{7});
  }
}

TEST_CASE("who moves a stretch keeps its place, and it ends once") {
  constexpr std::size_t bytes = std::size_t{32} << 20U;
  const std::int64_t before = resident();
  std::optional<MemoryStretch> second;
  {
    MemoryStretch first(bytes);
    for (std::size_t i = 0; i < bytes; i += 4096) first.begin()[i] = std::byte{3};
    std::byte* const place = first.begin();
    second.emplace(std::move(first));
    CHECK(second->begin() == place);
  }
  CHECK(second->begin()[bytes / 2] == std::byte{3});
  CHECK(resident() - before > std::int64_t{30} << 20U);
  second.reset();
  CHECK(resident() - before < std::int64_t{8} << 20U);
}

TEST_CASE("pages inside of a range are given back, those it shares are not") {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const MemoryStretch stretch(8 * page);
  std::byte* const all = stretch.begin();
  const auto write = [&] {
    for (std::size_t i = 0; i < 8 * page; ++i) all[i] = std::byte{1};
  };
  write();
  release_pages(all + page + 1, 3 * page - 1);  // pages 2 and 3
  for (std::size_t i = 0; i < 8; ++i) {
    INFO("page " << i);
    CHECK(all[i * page + page / 2] == std::byte(i == 2 || i == 3 ? 0 : 1));
  }
  write();
  release_pages(all + 1, page);  // no page lies inside
  release_pages(all + page, 0);
  for (std::size_t i = 0; i < 8; ++i) CHECK(all[i * page] == std::byte{1});
}

TEST_CASE("a stretch that there is not is refused") {
  CHECK(number_raised_by([] { const MemoryStretch all(std::size_t{1} << 60U); }) == "os.10");
}
