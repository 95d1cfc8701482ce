#include <support/catch.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include <rlalgo/inference/prefix_cache.hpp>

using rlalgo::data::TokenId;
using rlalgo::inference::KvCache;
using rlalgo::inference::PrefixCache;
using rlalgo::inference::TokenView;

namespace {

std::vector<TokenId> tokens_of(std::int64_t length, std::int32_t salt) {
  std::vector<TokenId> out;
  for (std::int32_t i = 0; i < length; ++i) out.push_back(i * 3 + salt * (i / 32));
  return out;
}

// A sequence that was computed: its pages are as full as its tokens.
KvCache::Sequence computed(KvCache& cache, const std::vector<TokenId>& tokens) {
  KvCache::Sequence out;
  cache.extend(out, static_cast<std::int64_t>(tokens.size()));
  return out;
}

}  // namespace

TEST_CASE("the longest known prefix is found, in whole pages and within the limit") {
  KvCache cache(1, 1, 8);
  PrefixCache prefixes(cache);
  const std::vector<TokenId> a = tokens_of(100, 1);
  KvCache::Sequence first = computed(cache, a);
  prefixes.insert(1, {a}, first);
  CHECK(prefixes.known() == 3);
  CHECK(first.indexed == 3);
  const std::vector<std::byte*> pages = first.pages;
  cache.release(first);
  CHECK(prefixes.kept() == 3);
  CHECK(cache.pages_in_use() == 0);

  const auto match = [&](std::uint64_t tree, const std::vector<TokenId>& tokens, std::int64_t limit) {
    KvCache::Sequence found;
    const std::int64_t length = prefixes.match(tree, {tokens}, limit, found);
    CHECK(length == found.length);
    CHECK(prefixes.known_length(tree, {tokens}, limit) == length);
    CHECK(std::equal(found.pages.begin(), found.pages.end(), pages.begin()));
    cache.release(found);
    return length;
  };
  CHECK(match(1, a, 100) == 96);
  CHECK(match(1, a, 95) == 64);
  CHECK(match(1, a, 31) == 0);
  CHECK(match(2, a, 100) == 0);
  std::vector<TokenId> other = a;
  other[40] = 9999;
  CHECK(match(1, other, 100) == 32);
  other[0] = 9999;
  CHECK(match(1, other, 100) == 0);
  // A prompt and its completion are one sequence of tokens.
  KvCache::Sequence found;
  const TokenView split{std::span(a).first(50), std::span(a).subspan(50)};
  CHECK(prefixes.match(1, split, 100, found) == 96);
  cache.release(found);
}

TEST_CASE("a page computed twice is kept once") {
  KvCache cache(1, 1, 8);
  PrefixCache prefixes(cache);
  const std::vector<TokenId> a = tokens_of(80, 1);
  KvCache::Sequence first = computed(cache, a), second = computed(cache, a);
  prefixes.insert(1, {a}, first);
  prefixes.insert(1, {a}, second);
  CHECK(prefixes.known() == 2);
  CHECK(second.pages[0] == first.pages[0]);
  CHECK(second.pages[1] == first.pages[1]);
  CHECK(second.pages[2] != first.pages[2]);
  CHECK(cache.pages_in_use() == 4);
  cache.release(first);
  CHECK(cache.pages_in_use() == 3);
  cache.release(second);
  CHECK(prefixes.kept() == 2);
}

TEST_CASE("pages are given up only when the cache has no other, the least recently used leaf first") {
  KvCache cache(1, 1, 8);
  PrefixCache prefixes(cache);
  cache.limit(6);
  const std::vector<TokenId> old = tokens_of(64, 1), recent = tokens_of(96, 2);
  for (const auto* tokens : {&old, &recent}) {  // they have their first page in common
    KvCache::Sequence s;
    prefixes.match(1, {*tokens}, 32, s);
    cache.extend(s, static_cast<std::int64_t>(tokens->size()) - s.length);
    prefixes.insert(1, {*tokens}, s);
    cache.release(s);
  }
  CHECK(prefixes.known() == 4);
  KvCache::Sequence big;
  CHECK(cache.available(6));
  REQUIRE(cache.extend(big, 64));  // two pages have never been used
  CHECK(prefixes.known() == 4);
  REQUIRE(cache.extend(big, 32));
  CHECK(prefixes.known() == 3);
  KvCache::Sequence found;
  CHECK(prefixes.match(1, {old}, 64, found) == 32);  // its second page has gone
  cache.release(found);
  REQUIRE(cache.extend(big, 64));
  CHECK(prefixes.match(1, {recent}, 96, found) == 32);
  CHECK_FALSE(cache.extend(big, 32));  // somebody uses the last one
  CHECK(big.length == 160);
  cache.release(found);
  REQUIRE(cache.extend(big, 32));
  CHECK(prefixes.known() == 0);
  CHECK_FALSE(cache.extend(big, 1));
  cache.release(big);
}

TEST_CASE("a dropped tree is found no more; pages in use are freed with their last user") {
  KvCache cache(1, 1, 8);
  PrefixCache prefixes(cache);
  const std::vector<TokenId> a = tokens_of(64, 1), b = tokens_of(64, 2);
  KvCache::Sequence one = computed(cache, a), two = computed(cache, b), three = computed(cache, b);
  prefixes.insert(1, {a}, one);
  prefixes.insert(2, {b}, two);
  prefixes.insert(3, {b}, three);
  CHECK(prefixes.known() == 6);
  cache.release(one);
  prefixes.drop(1);
  prefixes.drop(2);
  CHECK(prefixes.known() == 2);
  CHECK(prefixes.kept() == 0);
  CHECK(cache.pages_in_use() == 4);
  cache.release(two);
  CHECK(cache.pages_in_use() == 2);
  cache.release(three);
  KvCache::Sequence found;
  CHECK(prefixes.match(1, {a}, 64, found) == 0);
  CHECK(prefixes.match(3, {b}, 64, found) == 64);
  cache.release(found);
  prefixes.clear();
  CHECK(prefixes.known() == 0);
  CHECK(cache.pages_in_use() == 0);
  CHECK(prefixes.match(3, {b}, 64, found) == 0);
}

TEST_CASE("a random life: what is found is what was put in") {
  std::mt19937 random(3);
  KvCache cache(1, 1, 8);
  PrefixCache prefixes(cache);
  cache.limit(40);
  // The first number of a page names the tokens that it was filled for.
  const auto name = [](const std::vector<TokenId>& tokens, std::size_t page) {
    std::uint32_t h = 1;
    for (std::size_t i = 0; i < (page + 1) * 32; ++i) h = h * 31 + static_cast<std::uint32_t>(tokens[i]);
    return h;
  };
  const auto first_of = [](std::byte* page) -> std::uint32_t& { return *reinterpret_cast<std::uint32_t*>(page); };
  std::int64_t hits = 0;
  std::vector<KvCache::Sequence> live;
  for (int round = 0; round < 4000; ++round) {
    std::vector<TokenId> tokens;
    for (int p = 0; p < 6; ++p) tokens.insert(tokens.end(), 32, static_cast<TokenId>(random() % 3));
    tokens.resize(32 + random() % 160);
    KvCache::Sequence s;
    const std::int64_t found = prefixes.match(7, {tokens}, static_cast<std::int64_t>(tokens.size()), s);
    hits += found;
    for (std::size_t p = 0; p < s.pages.size(); ++p) REQUIRE(first_of(s.pages[p]) == name(tokens, p));
    if (cache.extend(s, static_cast<std::int64_t>(tokens.size()) - found)) {
      for (std::size_t p = static_cast<std::size_t>(found) / 32; (p + 1) * 32 <= tokens.size(); ++p)
        first_of(s.pages[p]) = name(tokens, p);
      prefixes.insert(7, {tokens}, s);
    }
    live.push_back(std::move(s));
    while (live.size() > 4 || (!live.empty() && random() % 3 == 0)) {
      const std::size_t which = random() % live.size();
      cache.release(live[which]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
    }
    if (random() % 500 == 0) {
      for (KvCache::Sequence& one : live) cache.release(one);
      live.clear();
      prefixes.drop(7);
    }
    REQUIRE(cache.pages_allocated() <= 40);
  }
  CHECK(hits > 10000);
}
