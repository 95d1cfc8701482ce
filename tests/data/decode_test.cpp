#include <vector>

#include <support/catch.hpp>

#include <rlalgo/data/decode.hpp>

using namespace rlalgo;

TEST_CASE("ids without a tokenizer are shown as numbers") {
  const data::Decode decode = data::ids_as_text;
  CHECK(decode(std::vector<data::TokenId>{3, 14, 15}) == "3 14 15");
  CHECK(decode({}).empty());
}
