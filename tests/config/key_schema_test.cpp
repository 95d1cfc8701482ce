#include <support/scratch.hpp>

#include <algorithm>
#include <string>

#include <rlalgo/config/key_schema.hpp>

using namespace rlalgo::config;
using rlalgo::data::Json;

namespace {

const Json& schema() {
  static const Json all = key_schema();
  return all;
}
const Json& property(const std::string& name) {
  const Json* at = &schema();
  std::string rest = name;
  for (std::size_t dot = rest.find('.'); dot != std::string::npos; dot = rest.find('.')) {
    at = &at->at("properties").at(rest.substr(0, dot));
    if (at->contains("anyOf")) at = &at->at("anyOf").at(0);  // a section, or a text
    if (at->contains("items")) at = &at->at("items");
    rest.erase(0, dot + 1);
  }
  return at->at("properties").at(rest);
}

}  // namespace

TEST_CASE("every row is a property, and what else is known is deprecated with its reason") {
  for (const Key& row : every_key()) {
    std::string name(row.name);
    if (const std::size_t list = name.find("[]"); list != std::string::npos) name.erase(list, 2);
    INFO(name);
    CHECK_NOTHROW(property(name));
  }
  for (const auto& table : {idle_keys(), lacking_keys()})
    for (const RecognisedKey& key : each_key(table)) CHECK_NOTHROW(property(std::string(key.key)));
  for (const char* section : {"lr_scheduler_kwargs", "bnb_config_kwargs", "optim_args"})
    CHECK_FALSE(property(section).at("description").get<std::string>().empty());
  CHECK(property("flash_attention").at("deprecated") == true);
  CHECK(property("flash_attention").at("description").get<std::string>().starts_with("no effect: "));
  CHECK(property("relora").at("description").get<std::string>().starts_with("not here: "));
  for (const char* name : {"bnb_config_kwargs.bnb_4bit_quant_storage", "bnb_config_kwargs.llm_int8_threshold",
                           "bnb_config_kwargs.llm_int8_enable_fp32_cpu_offload",
                           "bnb_config_kwargs.llm_int8_has_fp16_weight", "optim_args.relative_step"})
    CHECK(property(name).at("deprecated") == true);
  CHECK_FALSE(schema().at("properties").contains("rope_scaling"));  // refused where it stands
  CHECK(schema().at("additionalProperties") == false);
}

TEST_CASE("forms, ranges and words become what a schema says of values") {
  CHECK(property("use_tensorboard").at("type") == Json({"boolean", "null"}));
  CHECK(property("use_tensorboard").at("default") == true);
  const Json& rate = property("learning_rate").at("anyOf");
  CHECK(rate.at(0) == Json({{"type", "number"}, {"minimum", 0}}));
  CHECK(rate.at(1).at("$ref") == "#/$defs/number");
  CHECK(property("trl.epsilon").at("anyOf").at(0) ==
        Json({{"type", "number"}, {"exclusiveMinimum", 0}, {"maximum", 1}}));
  CHECK(property("evals_per_epoch").at("anyOf").at(0).at("minimum") == 0);  // 0 is the same as nothing
  CHECK(property("micro_batch_size").at("anyOf").at(0).at("minimum") == 1);
  const Json words = property("trl.loss_type").at("enum");
  for (const char* word : {"grpo", "vespo", "alphapo"})
    CHECK(std::find(words.begin(), words.end(), word) != words.end());
  const Json strategies = property("save_strategy").at("enum");
  CHECK(std::find(strategies.begin(), strategies.end(), Json(false)) != strategies.end());  // YAML's bare no
  const Json sizes = property("bnb_config_kwargs.blocksize").at("enum");
  CHECK(std::find(sizes.begin(), sizes.end(), Json(64)) != sizes.end());  // a number, or a text that is one
  CHECK(std::find(sizes.begin(), sizes.end(), Json("64")) != sizes.end());
  CHECK(property("trl.reward_funcs").at("items").at("type") == "string");
  CHECK(property("datasets.shards").at("anyOf").at(0).at("minimum") == 1);
  CHECK(property("lr_scheduler_kwargs.num_decay_steps").at("anyOf").at(0).at("type") == "integer");
}
