#include <rlalgo/core/printable.hpp>

#include <string>

#include <support/catch.hpp>

using rlalgo::core::printable;
using rlalgo::core::shortened;

TEST_CASE("text that can be shown stays, to the byte") {
  for (const char* text : {"", "plain", "größer → 世界 🎈", "a\tb\nc", "back\\slash"}) CHECK(printable(text) == text);
}

TEST_CASE("what would act on a terminal is shown as an escape") {
  CHECK(printable("\x1b[31mred\x1b]0;title\x07") == "\\x1b[31mred\\x1b]0;title\\x07");
  CHECK(printable("a\rb\bc\x7f") == "a\\x0db\\x08c\\x7f");
  CHECK(printable(std::string("a\0b", 3)) == "a\\x00b");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\u009b31m");  // CSI in one character
  CHECK(printable("a\xe2\x80\xae"
                  "b\xe2\x81\xa6") == "a\\u202eb\\u2066");  // turns the direction of writing
  CHECK(printable("a\nb", "") == "a\\x0ab");
}

TEST_CASE("bytes that are no UTF-8 are shown one by one") {
  CHECK(printable("a\xff\xfe") == "a\\xff\\xfe");
  CHECK(printable("\xe2\x82") == "\\xe2\\x82");                    // cut short
  CHECK(printable("\xc0\x80") == "\\xc0\\x80");                    // too long a form
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // half a character
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond Unicode
}

TEST_CASE("a long text loses its middle, and says how much") {
  CHECK(shortened("12345678", 8) == "12345678");
  const std::string cut = shortened(std::string(900, 'a') + std::string(100, 'z'), 100);
  CHECK(cut == std::string(75, 'a') + " … (900 bytes left out) … " + std::string(25, 'z'));
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "世";
  const std::string short_one = shortened(wide, 100);
  CHECK(printable(short_one) == short_one);  // no character is cut in two
}
