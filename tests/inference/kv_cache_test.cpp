#include <support/catch.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include <rlalgo/inference/kv_cache.hpp>

using rlalgo::inference::CacheElement;
using rlalgo::inference::KvCache;

TEST_CASE("keys and values of all layers and heads lie apart, inside the page") {
  struct Case {
    CacheElement element;
    std::int64_t padded, bytes;
  };
  for (const Case& c : {Case{CacheElement::float32, 16, 4}, Case{CacheElement::bfloat16, 32, 2}}) {
    const KvCache cache(3, 2, 10, c.element);
    CHECK(cache.element() == c.element);
    CHECK(cache.padded_head_dim() == c.padded);
    const std::int64_t size = c.padded * 32 * c.bytes;
    std::set<std::int64_t> offsets;
    for (std::int64_t l = 0; l < 3; ++l)
      for (std::int64_t h = 0; h < 2; ++h)
        for (const std::int64_t offset : {cache.key_offset(l, h), cache.value_offset(l, h)}) {
          CHECK(offset % size == 0);
          CHECK(static_cast<std::size_t>(offset + size) <= cache.page_bytes());
          offsets.insert(offset);
        }
    CHECK(offsets.size() == 12);
    CHECK(cache.page_bytes() == static_cast<std::size_t>(12 * size));
  }
}

TEST_CASE("a fork shares full pages, copies the last one, and leaves the parent as it was") {
  KvCache cache(1, 1, 8);
  KvCache::Sequence parent, first, second;
  cache.extend(parent, 70);
  REQUIRE(parent.pages.size() == 3);
  parent.pages[2][5] = std::byte{42};
  cache.fork(parent, first);
  cache.fork(parent, second);
  CHECK(cache.pages_in_use() == 5);
  CHECK(first.length == 70);
  CHECK(first.pages[0] == parent.pages[0]);
  CHECK(first.pages[1] == second.pages[1]);
  CHECK(first.pages[2] != parent.pages[2]);
  CHECK(first.pages[2] != second.pages[2]);
  CHECK(first.pages[2][5] == std::byte{42});
  first.pages[2][5] = std::byte{1};
  CHECK(parent.pages[2][5] == std::byte{42});
  CHECK(second.pages[2][5] == std::byte{42});

  cache.extend(first, 26);
  CHECK(first.pages.size() == 3);
  cache.extend(first, 1);
  CHECK(first.pages.size() == 4);

  cache.release(parent);  // the children keep what they share
  CHECK(cache.pages_in_use() == 5);
  KvCache::Sequence heir;
  const std::vector<std::byte*> pages = second.pages;
  cache.transfer(second, heir);
  CHECK(heir.pages == pages);
  CHECK(heir.length == 70);
  CHECK(second.pages.empty());
  CHECK(second.length == 0);
  CHECK(cache.pages_in_use() == 5);
  cache.release(heir);
  cache.release(first);
  cache.release(second);
  CHECK(cache.pages_in_use() == 0);
}

TEST_CASE("a fork at a page boundary copies nothing") {
  KvCache cache(2, 2, 8);
  KvCache::Sequence parent, child;
  cache.extend(parent, 64);
  cache.fork(parent, child);
  CHECK(cache.pages_in_use() == 2);
  CHECK(child.pages == parent.pages);
  cache.extend(child, 1);
  CHECK(child.pages.size() == 3);
  CHECK(parent.pages.size() == 2);
}

TEST_CASE("freed pages are used again before new ones are made") {
  KvCache cache(1, 1, 8);
  for (int round = 0; round < 5; ++round) {
    KvCache::Sequence a, b;
    cache.extend(a, 100);
    cache.fork(a, b);
    cache.release(a);
    cache.release(b);
  }
  CHECK(cache.pages_allocated() == 5);
  CHECK(cache.pages_in_use() == 0);
}

TEST_CASE("with a limit, what does not fit is refused and changes nothing") {
  KvCache cache(1, 1, 8);
  cache.limit(3);
  KvCache::Sequence a, b;
  CHECK(cache.extend(a, 40));
  CHECK_FALSE(cache.extend(b, 40));
  CHECK(b.length == 0);
  CHECK(b.pages.empty());
  CHECK(cache.extend(b, 32));
  CHECK_FALSE(cache.extend(a, 25));
  CHECK(a.length == 40);
  CHECK(cache.extend(a, 24));
  KvCache::Sequence child;
  CHECK(cache.fork(a, child));  // at a page boundary nothing is copied
  cache.release(child);
  cache.release(b);
  CHECK(cache.extend(a, 1));
  CHECK_FALSE(cache.fork(a, child));
  CHECK(child.pages.empty());
  cache.release(a);
  CHECK(cache.available(3));
  CHECK_FALSE(cache.available(4));
}

TEST_CASE("sequences carry a state: a fork copies it, and what is saved with a page goes with it") {
  KvCache cache(1, 1, 8, CacheElement::float32, rlalgo::inference::PageMemory::host(), 0, 12);
  const auto write = [](std::byte* state, int value) { std::memset(state, value, 12); };
  const auto reads = [](const std::byte* state) { return std::to_integer<int>(state[11]); };
  KvCache::Sequence a, b, c;
  CHECK(a.state == nullptr);
  cache.extend(a, 32);
  write(a.state, 1);
  cache.fork(a, b);
  CHECK(b.state != a.state);
  CHECK(reads(b.state) == 1);
  std::byte* const first = a.state;
  cache.transfer(a, c);
  CHECK((a.state == nullptr && c.state == first));
  CHECK(cache.save(c.ids[0]) == nullptr);  // nothing is kept before there is room for it
  cache.limit_saved(25);                   // two states
  cache.extend(c, 64);
  cache.begin_pass();
  write(cache.save(c.ids[0]), 10);
  write(cache.save(c.ids[1]), 11);
  CHECK(cache.save(c.ids[2]) == nullptr);  // both belong to this pass
  CHECK(cache.saved() == 2);
  cache.begin_pass();
  cache.outdate_saved(c.ids[1]);
  CHECK_FALSE(cache.has_saved(c.ids[1]));
  write(cache.save(c.ids[1]), 12);
  cache.outdate_saved(c.ids[1]);  // of this pass
  CHECK(cache.has_saved(c.ids[1]));
  cache.release(b);
  cache.adopt(b, c.ids[0]);  // used after the other one was
  CHECK(reads(b.state) == 10);
  cache.begin_pass();
  write(cache.save(c.ids[2]), 13);
  CHECK(cache.has_saved(c.ids[0]));
  CHECK_FALSE(cache.has_saved(c.ids[1]));
  cache.move_saved(c.ids[2], c.ids[1]);
  CHECK((cache.has_saved(c.ids[1]) && !cache.has_saved(c.ids[2])));
  cache.move_saved(c.ids[1], c.ids[0]);  // has one
  CHECK(cache.has_saved(c.ids[1]));
  const std::size_t states = cache.states_allocated();
  cache.release(c);  // nobody keeps its pages
  cache.release(b);
  CHECK(cache.saved() == 0);
  cache.extend(a, 1);
  CHECK(cache.states_allocated() == states);
  cache.trim();
  CHECK(cache.states_allocated() == 1);
  // A model without such layers has none.
  KvCache plain(1, 1, 8);
  plain.limit_saved(1000);
  plain.extend(b, 32);
  CHECK(b.state == nullptr);
  CHECK(plain.save(b.ids[0]) == nullptr);
}

TEST_CASE("pages lie in the memory that they are given") {
  struct Counting final : rlalgo::inference::PageMemory {
    PageMemory& host = PageMemory::host();
    int live = 0, copies = 0;
    std::byte* allocate(std::size_t bytes) override {
      ++live;
      return host.allocate(bytes);
    }
    void free(std::byte* page, std::size_t bytes) noexcept override {
      --live;
      host.free(page, bytes);
    }
    void copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
      ++copies;
      host.copy(from, to, bytes);
    }
  } memory;
  {
    KvCache cache(1, 1, 8, CacheElement::float32, memory);
    KvCache::Sequence a, b;
    cache.extend(a, 33);
    cache.fork(a, b);
    CHECK(memory.live == 3);
    CHECK(memory.copies == 1);
    cache.release(a);
    cache.trim();  // b still uses a page of a's and a copy
    CHECK(memory.live == 2);
    cache.release(b);
    CHECK(memory.live == 2);
    cache.trim();
    CHECK(memory.live == 0);
    cache.extend(a, 17);
    CHECK(memory.live == 1);
    for (std::byte* page : a.pages) CHECK(page != nullptr);
    cache.trim();
    CHECK(memory.live == 1);
    cache.release(a);
  }
  CHECK(memory.live == 0);
}
