#include <filesystem>
#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/config/rollout_function.hpp>

using namespace rlalgo;
using data::Json;

TEST_CASE("a rollout function is told of the run's tokenizer, its template and what it may draw") {
  config::RunConfig run;
  run.base_model =
      (std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model").string();
  run.chat_template = "qwen3";
  run.trl.chat_template_kwargs = {{"enable_thinking", false}};
  const config::LanguageModel model = config::load_language_model(run);
  const remote::RolloutTexts texts = config::rollout_texts(run, model);
  const Json messages = Json::array({{{"role", "user"}, {"content", "2 and 3"}}});
  CHECK(texts.prompt(messages) == model.encode(messages, run.trl.chat_template_kwargs));
  CHECK(texts.prompt("2 and 3") == model.encode("2 and 3"));
  CHECK(texts.encode("2 and 3", false) == model.tokenizer.encode("2 and 3", false));
  CHECK(texts.decode(model.stop_ids, true).empty());
  CHECK(texts.decode(model.stop_ids, false) == model.tokenizer.decode(model.stop_ids, false));
  const std::string brief = texts.render(messages, true, nullptr, Json::object());
  const std::string thinking = texts.render(messages, true, nullptr, {{"enable_thinking", true}});
  CHECK(brief == model.render(messages, true, run.trl.chat_template_kwargs));
  CHECK(thinking == model.render(messages, true, Json{{"enable_thinking", true}}));
  CHECK(brief != thinking);
  CHECK(texts.max_positions == model.max_positions);
  CHECK(texts.vocab_size == model.decoder->config().vocab_size);
  CHECK(texts.model.at("eos_id") == Json(*model.tokenizer.eos_id()));
  CHECK(texts.model.at("tokenizer") == Json(std::filesystem::absolute(model.directory).string()));
  CHECK(texts.ranks == 1);
}

TEST_CASE("a rollout function comes from the configuration, or not at all") {
  const support::ScratchDirectory folder;
  folder.write("plays.py", "def texts(model, prompts):\n  return []\n\ndef ids(prompts, trainer):\n  return {}\n");
  config::RunConfig run;
  CHECK(config::rollout_function(run, {folder.path()}) == nullptr);
  run.trl.rollout_func = "plays.texts";
  CHECK(config::rollout_function(run, {folder.path()})->draws_texts());
  run.trl.rollout_func = "plays.ids";
  CHECK_FALSE(config::rollout_function(run, {folder.path()})->draws_texts());
}
