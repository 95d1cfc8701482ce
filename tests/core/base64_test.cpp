#include <rlalgo/core/base64.hpp>

#include <support/catch.hpp>

using rlalgo::core::base64;
using rlalgo::core::from_base64;

TEST_CASE("the vectors of RFC 4648, both ways") {
  for (const auto& [plain, coded] : std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                                                     {"f", "Zg=="},
                                                                                     {"fo", "Zm8="},
                                                                                     {"foo", "Zm9v"},
                                                                                     {"foob", "Zm9vYg=="},
                                                                                     {"fooba", "Zm9vYmE="},
                                                                                     {"foobar", "Zm9vYmFy"}}) {
    const std::vector<unsigned char> bytes(plain.begin(), plain.end());
    CHECK(base64(bytes) == coded);
    CHECK(from_base64(coded) == bytes);
  }
  CHECK(base64(std::vector<unsigned char>{0xfb, 0xff, 0x00}) == "+/8A");
  CHECK_FALSE(from_base64("Zm9*"));
}
