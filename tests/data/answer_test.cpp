#include <cmath>

#include <support/catch.hpp>

#include <rlalgo/data/answer.hpp>

TEST_CASE("an answer is a prompt and its completion") {
  rlalgo::data::Answer a;
  a.ids = {1, 2, 3, 4, 5};
  a.prompt_tokens = 2;
  CHECK(a.prompt().size() == 2);
  CHECK(a.completion()[0] == 3);
  CHECK(a.tokens() == 5);
  CHECK(a.completion_tokens() == 3);
  CHECK(std::isnan(a.reference_row));
}
