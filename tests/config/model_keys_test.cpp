#include <support/catch.hpp>

#include <rlalgo/config/model_keys.hpp>

using namespace rlalgo::config;

TEST_CASE("changes of tokens are those of the keys") {
  ModelConfig m;
  CHECK(m.token_changes().roles.empty());
  m.eos_token = "<|end|>";
  m.tokens = {"<a>"};
  m.added_tokens_overrides = {{"128002", "<think>"}};
  const auto changes = m.token_changes();
  CHECK(changes.roles.at("eos_token") == "<|end|>");
  CHECK(changes.tokens == std::vector<std::string>{"<a>"});
  CHECK(changes.renamed.at(128002) == "<think>");
}

TEST_CASE("offloading is what gradient_checkpointing does here") {
  ModelConfig m;
  for (const Key& row : model_keys(m)) {
    if (row.name != "gradient_checkpointing") continue;
    CHECK(row.synonyms.size() == 2);
    CHECK(row.synonyms[0].first == "offload");
  }
}
