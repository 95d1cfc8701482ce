#include <rlalgo/model/anchored_tree.hpp>

#include <memory>
#include <string>

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

using namespace rlalgo;

TEST_CASE("branches see the document up to their anchor, at its positions") {
  const std::vector<std::int32_t> document = {7, 8, 9, 10, 11, 12}, one = {1, 2}, two = {3, 4};
  model::TokenTree tree;
  const auto places = model::append_document(tree, document, std::vector<model::Branch>{{2, one}, {2, two}, {6, one}});
  CHECK(tree.ids == std::vector<std::int64_t>{7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 1, 2});
  CHECK(tree.positions == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 2, 3, 2, 3, 6, 7});
  CHECK(places.begin == 0);
  CHECK(places.branches == std::vector<std::int64_t>{6, 8, 10});
  REQUIRE(tree.segments.size() == 4);
  CHECK(tree.segments[3].parent == 0);
  CHECK(tree.segments[3].prefix_length == 6);

  const auto second = model::append_document(tree, one, std::vector<model::Branch>{{1, two}});
  CHECK(second.begin == 12);
  CHECK(tree.segments[5].parent == 4);
  CHECK(tree.positions.back() == 2);
}

TEST_CASE("a branch needs a token before it") {
  const std::vector<std::int32_t> document = {7, 8}, ids = {1};
  for (const std::int64_t start : {0, 3}) {
    model::TokenTree tree;
    CHECK_THROWS_WITH((void)model::append_document(tree, document, std::vector<model::Branch>{{start, ids}}),
                      Catch::Contains("[rlalgo.model.34]"));
  }
}

// Hidden states of every branch are those of an ordinary pass over document[0, start) and the branch.
TEST_CASE("an anchored tree computes what separate sequences do") {
  const c10::NoGradGuard no_grad;
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    const auto decoder =
        model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 3, at::kDouble);
    std::vector<std::int32_t> document, ids;
    for (std::int32_t i = 0; i < 37; ++i) document.push_back((i * i + 5) % 23);
    for (std::int32_t i = 0; i < 40; ++i) ids.push_back((7 * i + 3) % 23);
    std::vector<model::Branch> branches;
    for (std::int64_t start = 1; start <= 37; start += 4)
      for (std::size_t j = 0; j < 2; ++j)
        branches.push_back({start, std::span(ids).subspan(static_cast<std::size_t>(start) + j, 1 + (start % 3))});
    model::TokenTree tree;
    const auto places = model::append_document(tree, document, branches);
    const at::Tensor states = decoder->hidden_states(tree);
    for (std::size_t b = 0; b < branches.size(); ++b) {
      std::vector<std::int32_t> plain(document.begin(), document.begin() + branches[b].start);
      plain.insert(plain.end(), branches[b].ids.begin(), branches[b].ids.end());
      model::TokenTree one;
      (void)model::append_document(one, plain, {});
      const auto length = static_cast<std::int64_t>(branches[b].ids.size());
      const at::Tensor expected = decoder->hidden_states(one).slice(0, branches[b].start);
      const at::Tensor found = states.slice(0, places.branches[b], places.branches[b] + length);
      CHECK((expected - found).abs().max().item<double>() < 1e-12);
    }
  }
}
