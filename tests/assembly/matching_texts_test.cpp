#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/assembly/matching_texts.hpp>

using namespace rlalgo;
using data::Json;

namespace {

const std::filesystem::path quickstart =
    std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::LanguageModel quick() {
  return assembly::load_text_half({.model = {quickstart.string()}, .chat_template = "chatml"},
                                  assembly::find_model({quickstart.string()}));
}

// Answers every request with the same text, and keeps where the draws were.
struct Saying {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    std::vector<std::vector<data::Completion>> out;
    for (const inference::Request& request : requests) {
      positions.push_back(request.first_position);
      indices.push_back(request.first_index);
      out.push_back({{{.ids = ids, .log_probs = {}, .finish = data::Finish::stop}}});
    }
    return out;
  }
  std::vector<data::TokenId> ids;
  std::vector<std::uint32_t> positions = {};
  std::vector<std::uint64_t> indices = {};
};

}  // namespace

TEST_CASE("a prompt is shown as the model was asked it: as text, or through the template") {
  const assembly::LanguageModel model = quick();
  const feature::Texts texts = assembly::matching_texts(model, nullptr);
  const Json chat = Json::array({{{"role", "user"}, {"content", "2 + 2"}}});
  CHECK(texts.render("1 + 1", Json::object()) == "1 + 1");
  CHECK(texts.render(chat, Json::object()) == model.render(chat, true));
  CHECK(texts.encode("1 + 1") == model.tokenizer.encode("1 + 1", false));
  CHECK_FALSE(texts.converse);
}

TEST_CASE("a conversation goes on with the dataset's other side, and draws where no first answer does") {
  const assembly::LanguageModel model = quick();
  Saying drawer{.ids = model.tokenizer.encode("4", false)};
  inference::AnyGenerator generator(drawer);
  const assembly::CarriedConversation carry(model, generator, nullptr, {}, 3);
  const Json turns =
      Json::array({{{"role", "user"}, {"content", "and 2 + 2?"}}, {{"role", "assistant"}, {"content", "5"}}});
  const std::vector<std::string> answers = {"2", "3"};
  const auto out = carry("1 + 1?", Json::object(), turns, "two", answers, 10, 0);
  const auto whole = [&](const std::string& first, const std::string& last) {
    return model.render(Json::array({{{"role", "user"}, {"content", "1 + 1?"}},
                                     {{"role", "assistant"}, {"content", first}},
                                     turns[0],
                                     {{"role", "assistant"}, {"content", last}}}),
                        false);
  };
  REQUIRE(out.size() == 3);
  CHECK(out[0] == whole("two", "5"));
  CHECK(out[1] == whole("2", "4"));
  CHECK(out[2] == whole("3", "4"));
  CHECK(drawer.indices == std::vector<std::uint64_t>{10, 11});
  CHECK(drawer.positions == std::vector<std::uint32_t>{2U << 24U, 2U << 24U});
}
