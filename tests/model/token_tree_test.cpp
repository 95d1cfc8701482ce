#include <rlalgo/model/token_tree.hpp>

#include <support/catch.hpp>

TEST_CASE("a token tree counts its tokens, targets and rows") {
  rlalgo::model::TokenTree tree;
  tree.ids = {4, 5, 6};
  tree.positions = {0, 1, 2};
  tree.segments = {{0, 3, -1, 0}};
  tree.source = {1, 2};
  tree.target = {6, 7};
  tree.row_begin = {0, 2, 2};
  CHECK(tree.tokens() == 3);
  CHECK(tree.targets() == 2);
  CHECK(tree.rows() == 2);
}
