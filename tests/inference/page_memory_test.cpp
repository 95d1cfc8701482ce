#include <rlalgo/inference/page_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <support/catch.hpp>

TEST_CASE("pages of any size lie apart, from a cache line on, and places are used again") {
  auto& host = rlalgo::inference::PageMemory::host();
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{65536}, std::size_t{737280}, std::size_t{20} << 20U}) {
    std::vector<std::byte*> pages;
    for (int i = 0; i < 40; ++i) {
      pages.push_back(host.allocate(bytes));
      CHECK(reinterpret_cast<std::uintptr_t>(pages.back()) % 64 == 0);
      pages.back()[0] = pages.back()[bytes - 1] = std::byte(i + 1);
    }
    for (int i = 0; i < 40; ++i) {
      CHECK(pages[static_cast<std::size_t>(i)][0] == std::byte(i + 1));
      CHECK(pages[static_cast<std::size_t>(i)][bytes - 1] == std::byte(i + 1));
    }
    if (bytes >= 65536) {
      host.free(pages[7], bytes);
      CHECK(host.allocate(bytes) == pages[7]);
    }
    for (std::byte* page : pages) host.free(page, bytes);
  }
}
