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
}

TEST_CASE("every byte comes back, and no other character is a digit") {
  std::vector<unsigned char> bytes;
  for (int i = 0; i < 256; ++i)
    bytes.insert(bytes.end(), {static_cast<unsigned char>(i), static_cast<unsigned char>(i * 7)});
  CHECK(from_base64(base64(bytes)) == bytes);
  for (int c = 0; c < 256; ++c) {
    const char character = static_cast<char>(c);
    const bool digit = rlalgo::core::base64_digits.find(character) != std::string_view::npos;
    CHECK(from_base64(std::string("Zm9") + character).has_value() == (digit || character == '='));
  }
}
