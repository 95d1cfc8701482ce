#include <fstream>
#include <numeric>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/id_arena.hpp>

using namespace rlalgo::data;

TEST_CASE("ids stay in memory below the limit and move to a file beyond it; nothing is left behind") {
  const rlalgo::support::ScratchDirectory scratch;
  IdArena arena({.directory = scratch.path() / "deep", .memory_bytes = 400});
  std::vector<TokenId> all;
  for (int i = 0; i < 50; ++i) {
    std::vector<TokenId> piece(static_cast<std::size_t>(i % 7));
    std::iota(piece.begin(), piece.end(), 100 * i);
    arena.append(piece);
    all.insert(all.end(), piece.begin(), piece.end());
    CHECK(arena.on_disk() == (all.size() * sizeof(TokenId) > 400));
    REQUIRE(arena.size() == all.size());
    CHECK(std::equal(all.begin(), all.end(), arena.data()));
  }
  CHECK(std::filesystem::is_empty(scratch.path() / "deep"));
}

TEST_CASE("a file that grows keeps its ids, also those whose memory was let go") {
  const rlalgo::support::ScratchDirectory scratch;
  IdArena arena({.directory = scratch.path(), .memory_bytes = 0});
  std::vector<TokenId> piece(1U << 20U);
  for (int i = 0; i < 20; ++i) {
    std::iota(piece.begin(), piece.end(), i * 1000003);
    arena.append(piece);
  }
  for (std::size_t i = 0; i < 20; ++i)
    for (const std::size_t k : {std::size_t{0}, piece.size() / 2, piece.size() - 1})
      CHECK(arena.span(i * piece.size(), piece.size())[k] == static_cast<TokenId>(i * 1000003 + k));
}

TEST_CASE("without a directory everything stays in memory; a directory that cannot be written is os.1") {
  IdArena arena({.directory = {}, .memory_bytes = 0});
  arena.append(std::vector<TokenId>{1, 2});
  CHECK_FALSE(arena.on_disk());
  IdArena bad({.directory = "/proc/self", .memory_bytes = 0});
  CHECK_THROWS_WITH(bad.append(std::vector<TokenId>{1}), Catch::StartsWith("[rlalgo.os.1]"));
}

TEST_CASE("a mapped file") {
  const rlalgo::support::ScratchDirectory scratch;
  CHECK(MappedFile::open(scratch.path() / "nothing") == nullptr);
  CHECK(MappedFile::open(scratch.write("empty", ""))->bytes().empty());
  const std::string path = scratch.write("ids", std::string("head\x01\0\0\0\x02\0\0\0", 12));
  const auto file = MappedFile::open(path);
  const IdArena arena(file, 4, 2);
  file->release();
  CHECK(arena.size() == 2);
  CHECK(arena.span(1, 1)[0] == 2);
}
