#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/assembly/rolled_out.hpp>

using namespace rlalgo;
using data::Json;

TEST_CASE("a rollout function is told of the run's tokenizer, its template and what it may draw") {
  assembly::LanguageModelConfig run;
  run.model.name =
      (std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model").string();
  run.chat_template = "qwen3";
  const Json kwargs = {{"enable_thinking", false}};
  const assembly::LanguageModel model = assembly::LanguageModel::load(run);
  const remote::RolloutTexts texts = assembly::rollout_texts(model, kwargs, distributed::World());
  const Json messages = Json::array({{{"role", "user"}, {"content", "2 and 3"}}});
  CHECK(texts.prompt(messages) == model.encode(messages, kwargs));
  CHECK(texts.prompt("2 and 3") == model.encode("2 and 3"));
  CHECK(texts.encode("2 and 3", false) == model.tokenizer.encode("2 and 3", false));
  CHECK(texts.decode(model.stop_ids, true).empty());
  CHECK(texts.decode(model.stop_ids, false) == model.tokenizer.decode(model.stop_ids, false));
  const std::string brief = texts.render(messages, true, nullptr, Json::object());
  const std::string thinking = texts.render(messages, true, nullptr, {{"enable_thinking", true}});
  CHECK(brief == model.render(messages, true, kwargs));
  CHECK(thinking == model.render(messages, true, Json{{"enable_thinking", true}}));
  CHECK(brief != thinking);
  CHECK(texts.max_positions == model.max_positions);
  CHECK(texts.vocab_size == model.decoder->config().vocab_size);
  CHECK(texts.model.at("eos_id") == Json(*model.tokenizer.eos_id()));
  CHECK(texts.model.at("tokenizer") == Json(std::filesystem::absolute(model.directory).string()));
  CHECK(texts.ranks == 1);
}
