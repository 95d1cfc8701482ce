#include <support/catch.hpp>

#include <string>
#include <string_view>

#include <rlalgo/core/digest.hpp>

using rlalgo::core::Digest;

namespace {
std::string hex_of(std::string_view bytes) { return Digest().update(bytes).hex(); }

// 0, 1, 2, … modulo 251.
std::string counted(std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i % 251);
  return out;
}
}  // namespace

// Made with the reference implementation: python-xxhash 3, xxhash.xxh64(bytes).hexdigest().
TEST_CASE("digests are those of the reference implementation, at every length of a block and its rest") {
  CHECK(hex_of("") == "ef46db3751d8e999");
  CHECK(hex_of("a") == "d24ec4f1a98c6e5b");
  CHECK(hex_of("abc") == "44bc2cf5ad770999");
  CHECK(hex_of("Nobody inspects the spammish repetition") == "fbcea83c8a378bf1");
  CHECK(hex_of(counted(3)) == "e5c7bb4533bc65dd");
  CHECK(hex_of(counted(4)) == "ffced8604453cc1e");
  CHECK(hex_of(counted(7)) == "14cc643f630c72d2");
  CHECK(hex_of(counted(8)) == "884a173614b81b8d");
  CHECK(hex_of(counted(11)) == "652a564a95365aca");
  CHECK(hex_of(counted(12)) == "424af23f1f08dca5");
  CHECK(hex_of(counted(31)) == "c346d2b59b4d8ee1");
  CHECK(hex_of(counted(32)) == "cbf59c5116ff32b4");
  CHECK(hex_of(counted(33)) == "0c535d1acafb8ead");
  CHECK(hex_of(counted(36)) == "dde0ef85e3aef05c");
  CHECK(hex_of(counted(40)) == "f5da40f1b11741e9");
  CHECK(hex_of(counted(44)) == "a733d156db2bb292");
  CHECK(hex_of(counted(63)) == "e26aa9e2a95f8e4f");
  CHECK(hex_of(counted(64)) == "f7c67301db6713f0");
  CHECK(hex_of(counted(100)) == "6ac1e58032166597");
  CHECK(hex_of(counted(255)) == "566d96b832b967c1");
  CHECK(hex_of(counted(1000)) == "f306f04aa88b54d3");
}

TEST_CASE("a stream is the same in any pieces") {
  const std::string bytes = counted(1000);
  for (std::size_t piece = 1; piece < 100; ++piece) {
    Digest digest;
    for (std::size_t at = 0; at < bytes.size(); at += piece) digest.update(std::string_view(bytes).substr(at, piece));
    CHECK(digest.hex() == hex_of(bytes));
  }
}

TEST_CASE("fields do not run together") {
  CHECK(Digest().add("ab").add("c").value() != Digest().add("a").add("bc").value());
  CHECK(Digest().add("").value() != Digest().value());
  CHECK(Digest().add("ab").value() == Digest().add("ab").value());
}

TEST_CASE("every flipped bit is seen") {
  const std::string bytes = counted(200), before = hex_of(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    CHECK(hex_of(flipped) != before);
  }
}
