#include <rlalgo/run/model_card.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;

TEST_CASE("the card of an adapter has PEFT's keys and tags, in their order") {
  const std::string text = run::to_text({.base_model = "Qwen/Qwen3-0.6B",
                                         .adapter = true,
                                         .method = "dpo",
                                         .summary = "pairs",
                                         .datasets = {"trl-lib/pairs"},
                                         .settings = {{"learning_rate", "1e-06"}}});
  CHECK(text.substr(0, text.find("\n# ")) ==
        "---\nbase_model: Qwen/Qwen3-0.6B\ndatasets:\n- trl-lib/pairs\nlibrary_name: peft\n"
        "pipeline_tag: text-generation\ntags:\n- base_model:adapter:Qwen/Qwen3-0.6B\n- dpo\n- generated_from_trainer\n"
        "- lora\n- rlalgo\n- transformers\n---\n");
  CHECK(lacks(text, {"# Qwen3-0.6B, trained by dpo\n", "Method: `dpo`, pairs.", "- learning_rate: 1e-06\n"}) == "");
  CHECK(run::is_generated_card(text));
}

TEST_CASE("the card of a whole model names transformers, and no adapter") {
  const std::string text = run::to_text({.base_model = "/models/base/", .method = "grpo"});
  CHECK(lacks(text, {"base_model: /models/base/\n", "library_name: transformers\n", "# base, trained by grpo"}) == "");
  CHECK(text.find("lora") == std::string::npos);
  CHECK(run::is_generated_card(text));
  CHECK(run::to_text({.base_model = "a", .merged = true}).find("Training procedure") == std::string::npos);
}

TEST_CASE("a text that YAML would read as something else is in quotation marks") {
  for (const char* plain : {"org/model", "/models/a-b_c.1", "qwen2.5"}) CHECK(run::yaml_scalar(plain) == plain);
  CHECK(run::yaml_scalar("./m") == "\"./m\"");
  CHECK(run::yaml_scalar("12") == "\"12\"");
  CHECK(run::yaml_scalar("a: b") == "\"a: b\"");
  CHECK(run::yaml_scalar("No") == "\"No\"");
  CHECK(run::yaml_scalar("") == "\"\"");
  CHECK(run::yaml_scalar("a\n\"b") == "\"a\\n\\\"b\"");
  CHECK(lacks(run::to_text({.base_model = "my models/x#1", .adapter = true}),
              {"base_model: \"my models/x#1\"\n", "- \"base_model:adapter:my models/x#1\"\n"}) == "");
}

TEST_CASE("a README.md of somebody else's is no generated card") {
  CHECK_FALSE(run::is_generated_card(""));
  CHECK_FALSE(run::is_generated_card("# Notes\n\nlibrary_name: peft, generated_from_trainer\n"));
  CHECK_FALSE(run::is_generated_card("---\ntitle: mine\n---\ngenerated_from_trainer\n"));
  CHECK_FALSE(run::is_generated_card("---\ntags: [generated_from_trainer]\n"));
  CHECK(run::is_generated_card("---\r\nlibrary_name: peft\r\n---\r\n"));
  CHECK(run::is_generated_card("---\ntags:\n- trl\n- generated_from_trainer\n---\n# Model Card\n"));
}
