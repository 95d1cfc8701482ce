#include <cmath>

#include <support/catch.hpp>

#include <rlalgo/data/answer_set.hpp>

using namespace rlalgo::data;

TEST_CASE("answers are packed and come back whole") {
  AnswerSet set;
  const std::vector<TokenId> prompt = {1, 2}, chosen = {3}, rejected = {4, 5, 6};
  set.append(7, true, prompt, chosen);
  set.append(7, false, prompt, rejected);
  CHECK(set.examples() == 1);
  CHECK(set.answers() == 2);
  const Answer a = set.answer(1);
  CHECK(a.ids == std::vector<TokenId>{1, 2, 4, 5, 6});
  CHECK(a.prompt_tokens == 2);
  CHECK_FALSE(a.desirable);
  CHECK(a.row == 7);
  CHECK(std::isnan(a.reference_row));
  CHECK(set.completion(1).size() == 3);
  CHECK(set.tokens(0) == 3);

  AnswerSet other;
  other.append(set, 0);
  CHECK(other.answer(1).ids == a.ids);
  other.set_reference({-1.5, -2.5});
  CHECK(other.has_reference());
  CHECK(other.answer(1).reference_row == -2.5);
  CHECK(std::isnan(other.answer(1).mismatched_reference));
}
