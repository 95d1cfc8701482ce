#include <support/catch.hpp>

#include <memory>
#include <string>
#include <vector>

#include <rlalgo/feature/ground_truths.hpp>

using namespace rlalgo;

namespace {

// A text's bytes as token ids.
std::vector<data::TokenId> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

TEST_CASE("a prompt without a ground truth is named before anything is generated") {
  int encoded = 0;
  const auto truths = std::make_shared<feature::GroundTruths>([&](const std::string& text) {
    ++encoded;
    return bytes(text);
  });
  std::vector<data::TokenizedPrompt> prompts(2);
  prompts[0].columns = {{"ground_truth", "1 2"}};
  prompts[1].row = 1;
  for (const data::Json& columns :
       {data::Json::object(), data::Json{{"ground_truth", ""}}, data::Json{{"ground_truth", nullptr}}}) {
    prompts[1].columns = columns;
    CHECK_THROWS_WITH(truths->require(prompts, true),
                      Catch::Contains("[rlalgo.config.33]") && Catch::Contains("row 1"));
  }
  const std::string longer(100, '7');
  prompts[1].columns = {{"ground_truth", longer}};
  truths->require(prompts, true);
  CHECK(prompts[0].answer_ids == bytes("1 2"));
  CHECK(truths->of(prompts[1].columns) == bytes(longer));
  CHECK(truths->of({{"ground_truth", "3"}}).empty());
  CHECK(truths->of({{"truth", "1 2"}}).empty());
  CHECK(encoded == 3);  // "1 2", "" and the longer one, once each
  const auto limit = feature::limit_by_truth(truths, 1.5);
  CHECK(limit(prompts[0]) == 64);
  CHECK(limit(prompts[1]) == 150);
  std::vector<data::TokenizedPrompt> plain(1);
  plain[0].columns = {{"ground_truth", "1 2"}};
  truths->require(plain, false);
  CHECK(plain[0].answer_ids.empty());
}

TEST_CASE("thoughts of ground truths go without a likelihood term") {
  std::vector<data::TokenizedPrompt> prompts(1);
  prompts[0].ids = {1, 2};
  prompts[0].answer_ids = {10, 3, 11, 4};
  const data::DocumentTools tools{.encode = [](const std::string& text, bool) -> std::vector<data::TokenId> {
                                    if (text == "<think>") return {10};
                                    if (text == "</think>") return {11};
                                    return {0, 0};
                                  },
                                  .render = {}};
  feature::mask_thoughts(prompts, tools);
  REQUIRE(prompts[0].answer_mask.size() == 4);
  CHECK(prompts[0].answer_mask[1] == 0);
  CHECK(prompts[0].answer_mask[3] == 1);
}
