#include <cmath>
#include <utility>
#include <vector>

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

TEST_CASE("what was cut off a completion belongs to no answer, but to the whole completion") {
  AnswerSet set(1);
  set.append(0, true, std::vector<TokenId>{1, 2}, std::vector<TokenId>{3}, std::vector<TokenId>{4, 5});
  set.append(1, false, std::vector<TokenId>{6}, std::vector<TokenId>{7, 8});
  AnswerSet other(1);
  other.append(set, 0);
  const AnswerSet picked = set.selected(std::vector<std::size_t>{1, 0});
  const std::vector<std::pair<const AnswerSet*, std::size_t>> same = {{&set, 0}, {&other, 0}, {&picked, 1}};
  for (const auto& [s, i] : same) {
    CHECK(s->answer(i).ids == std::vector<TokenId>{1, 2, 3});
    CHECK(s->completion(i).size() == 1);
    CHECK(s->rest(i) == 2);
    const auto whole = s->whole_completion(i);
    CHECK(std::vector<TokenId>(whole.begin(), whole.end()) == std::vector<TokenId>{3, 4, 5});
  }
  CHECK(set.whole_completion(1).size() == 2);
  CHECK(set.all_tokens() == 6);
}

TEST_CASE("a selection shares the ids; the same arena is not copied into") {
  AnswerSet set(1);
  for (TokenId i = 0; i < 5; ++i) set.append(i, i % 2 == 0, std::vector<TokenId>{i}, std::vector<TokenId>{i, i});
  const AnswerSet picked = set.selected(std::vector<std::size_t>{4, 1});
  CHECK(picked.arena() == set.arena());
  CHECK(picked.examples() == 2);
  CHECK(picked.row(0) == 4);
  CHECK(picked.desirable(0));
  CHECK_FALSE(picked.desirable(1));
  CHECK(picked.answer(1).ids == std::vector<TokenId>{1, 1, 1});
  CHECK(picked.all_tokens() == 6);
  AnswerSet more = picked;
  more.append(set, 0);
  CHECK(set.arena()->size() == 15);
  CHECK(more.all_tokens() == 9);
  CHECK(more.answer(2).ids == std::vector<TokenId>{0, 0, 0});
  CHECK(picked.examples() == 2);
}
