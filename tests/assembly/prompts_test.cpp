#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>

#include <rlalgo/assembly/prompts.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";
}  // namespace

TEST_CASE("texts, conversations and rows with columns are prompts as token ids") {
  const assembly::LanguageModel model =
      assembly::load_text_half({.model = {quickstart.string()}}, assembly::find_model({quickstart.string()}));
  const data::Json chat = data::Json::array({{{"role", "user"}, {"content", "2 + 2"}}});
  const auto out = assembly::prompts(model, data::Json::array({"1 + 1 =", {{"prompt", chat}, {"answer", 4}}}));
  REQUIRE(out.size() == 2);
  CHECK(out[0].ids == model.encode("1 + 1 ="));
  CHECK(out[0].row == 0);
  CHECK(out[1].ids == model.encode(chat));
  CHECK(out[1].columns.at("answer") == 4);
  CHECK(support::lacks(support::raised_by([&] {
                         (void)assembly::prompts(model, data::Json::array({{{"answer", 4}}}));
                       }),
                       {"data.10"}) == "");
}

TEST_CASE("the place of a prompt is its line, or its number") {
  assembly::PromptRows rows;
  CHECK(rows.where(0, 3) == "dataset row 3");
  rows.origins = {{std::make_shared<const std::string>("a.jsonl"), 7, -1}};
  CHECK(rows.where(0, 3) == "a.jsonl:7");
}
