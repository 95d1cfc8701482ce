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

TEST_CASE("the older words of gradient_checkpointing say where the inputs of layers lie, too") {
  for (const auto& [text, on, place] :
       {std::tuple{"offload", true, "host"}, {"offload_disk", true, "disk"}, {"true", true, "none"}}) {
    ModelConfig m;
    Node node;
    node.kind = std::string(text) == "true" ? Kind::boolean : Kind::string;
    node.boolean = true;
    node.text = text;
    for (const Key& row : model_keys(m))
      if (row.name == "gradient_checkpointing") row.reader(node);
    CHECK(m.gradient_checkpointing == on);
    CHECK(m.activation_offloading == place);
  }
}
