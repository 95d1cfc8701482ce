#include <rlalgo/data/document.hpp>

#include <support/catch.hpp>

TEST_CASE("a document of its own has neither prompt nor padding") {
  const rlalgo::data::Document document{.row = 3, .ids = {1, 2}, .loss_mask = {1, 1}};
  CHECK_FALSE(document.prompt_length.has_value());
  CHECK(document.ids.size() == document.loss_mask.size());
}
