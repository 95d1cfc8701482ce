#include <support/catch.hpp>
#include <support/process_ranks.hpp>
#include <support/thread_world.hpp>

#include <memory>
#include <string>

#include <rlalgo/config/language_model.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/distributed/world.hpp>

using namespace rlalgo;

namespace {

config::RunConfig parse(const std::string& more, int ranks = 1) {
  return config::parse_run_config(
      config::parse_document("base_model: ./m\nrl: dpo\ndatasets: [{path: rows.jsonl}]\nlearning_rate: 1e-6\n" + more,
                             "c.yaml"),
      ranks);
}

}  // namespace

TEST_CASE("what a file says of its model arrives there, with the places that say it") {
  const assembly::LanguageModelConfig plain = config::language_model_of(parse(""));
  CHECK(plain.model.name == "./m");
  CHECK(plain.model.where == "c.yaml:1");
  CHECK_FALSE(plain.tokenizer);
  CHECK_FALSE(plain.adapter);
  CHECK_FALSE(plain.sharded);
  CHECK(plain.tokens_where == "c.yaml");
  const assembly::LanguageModelConfig full = config::language_model_of(parse(
      "tokenizer_config: ./t\nchat_template: chatml\nseed: 9\nfloat32: true\ngradient_checkpointing: true\n"
      "adapter: lora\nlora_model_dir: ./a\nlora_r: 4\nlora_target_linear: true\nspecial_tokens: {eos_token: <end>}\n"));
  CHECK(full.tokenizer->where == "c.yaml:5");
  CHECK(full.adapter->name == "./a");
  CHECK(full.adapter->where == "c.yaml:11");
  CHECK(full.chat_template == "chatml");
  CHECK(full.seed == 9);
  CHECK(full.save_as_computed);
  CHECK(full.gradient_checkpointing);
  CHECK(full.tokens.roles.at("eos_token") == "<end>");
  CHECK(full.tokens_where == "c.yaml:14");
}

TEST_CASE("weights are sharded where the file asks for it and there are ranks") {
  CHECK(config::sharding_of(parse("fsdp_config: {reshard_after_forward: true}\n"),
                            std::make_shared<distributed::World>()) == nullptr);
  support::with_ranks(2, [](const std::shared_ptr<distributed::World>& world) {
    RANK_CHECK(config::sharding_of(parse("", 2), world) == nullptr);
    const auto sharding =
        config::sharding_of(parse("fsdp_config: {reshard_after_forward: false}\ndp_shard_size: 2\n", 2), world);
    RANK_CHECK(sharding != nullptr);
    RANK_CHECK(sharding->weights());
  });
}
