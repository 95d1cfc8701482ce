#include <rlalgo/data/document.hpp>

#include <support/catch.hpp>

TEST_CASE("a document of its own has neither prompt nor padding") {
  const rlalgo::data::Document document{.row = 3, .ids = {1, 2}, .loss_mask = {1, 1}};
  CHECK_FALSE(document.prompt_length.has_value());
  CHECK(document.ids.size() == document.loss_mask.size());
}

TEST_CASE("the texts of a document") {
  using rlalgo::data::text_spans;
  using Spans = std::vector<rlalgo::data::TextSpan>;
  CHECK((text_spans({.ids = {1, 2, 3}}) == Spans{{0, 3}}));
  CHECK((text_spans({}) == Spans{{0, 0}}));
  CHECK((text_spans({.ids = {1, 2, 3, 4}, .texts = {0, 3}}) == Spans{{0, 3}, {3, 4}}));
}
