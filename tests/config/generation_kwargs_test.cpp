// trl.generation_kwargs (config/detail/read_generation_kwargs.hpp), read with everything else and as a sampling.
#include <string>
#include <vector>

#include <rlalgo/config/online.hpp>
#include <rlalgo/config/parse.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

RunConfig parse(const std::string& kwargs, const std::string& more = "", const std::string& top = "") {
  return parse_run_config(parse_document(
      "base_model: ./m\nrl: grpo\ndatasets:\n  - path: rows.jsonl\nlearning_rate: 1e-6\nmicro_batch_size: 8\n" + top +
          "trl:\n  reward_funcs: [rewards.correct]\n  max_completion_length: 64\n" + more + "  generation_kwargs: {" +
          kwargs + "}\n",
      "c.yaml"));
}
std::string error_of(const std::string& kwargs, const std::string& more = "", const std::string& top = "") {
  return raised_by([&] { (void)parse(kwargs, more, top); });
}
rlalgo::inference::SamplingConfig sampled(const std::string& kwargs, const std::string& more = "") {
  return sampling(parse(kwargs, more), {2, 4});
}
using Ids = std::vector<rlalgo::data::TokenId>;
using Texts = std::vector<std::string>;
const std::string server = "  use_vllm: true\n";

}  // namespace

TEST_CASE("what ends a completion means the same without a server and with one") {
  for (const std::string& where : {std::string(), server}) {
    INFO(where);
    CHECK(sampled("", where).stop_ids == Ids{2, 4});
    CHECK(sampled("stop_token_ids: [5, 4]", where).stop_ids == Ids{2, 4, 5});
    CHECK(sampled("stop_token_ids: 5", where).stop_ids == Ids{2, 4, 5});
    CHECK(sampled("ignore_eos: true", where).stop_ids.empty());
    CHECK(sampled("ignore_eos: true, stop_token_ids: [5]", where).stop_ids == Ids{5});
    CHECK(sampled("stop: END", where).stop_strings == Texts{"END"});
    CHECK(sampled("stop: [END, \"\\n\"]", where).stop_strings == Texts{"END", "\n"});
    CHECK(sampled("stop_strings: [END], stop: [X, END]", where).stop_strings == Texts{"X", "END"});
    CHECK(sampled("max_tokens: 9", where).max_new_tokens == 9);
    CHECK(sampled("max_new_tokens: 128", where).max_new_tokens == 128);
    CHECK(sampled("", where).max_new_tokens == 64);
    CHECK(sampled("min_new_tokens: 3", where).min_new_tokens == 3);
    CHECK(sampled("min_tokens: 3", where).min_new_tokens == 3);
    CHECK(sampled("do_sample: false, top_k: 7", where).top_k == 1);
  }
  CHECK(sampled("eos_token_id: [7, 8]").stop_ids == Ids{7, 8});
  CHECK(lacks(error_of("eos_token_id: 7", server), {"config.10: ", "eos_token_id", "stop_token_ids"}) == "");
}

TEST_CASE("of several turns a length is that of one message") {
  const RunConfig config = parse("max_new_tokens: 9", "  tools: [calculator]\n");
  CHECK(sampling(config, {}).max_new_tokens == 64);
  CHECK(config.trl.max_new_tokens == 9);
}

TEST_CASE("a server gets its own names, and nothing twice") {
  const auto kwargs = [](const std::string& text) { return parse(text, server).trl.generation_kwargs; };
  CHECK(
      kwargs("stop: [a], stop_token_ids: [1], max_new_tokens: 3, min_new_tokens: 1, seed: 3, logit_bias: {'5': 1.0}") ==
      rlalgo::data::Json{{"seed", 3}, {"logit_bias", {{"5", 1.0}}}});
  CHECK(kwargs("ignore_eos: true, do_sample: true") == rlalgo::data::Json{{"ignore_eos", true}});
  CHECK(kwargs("do_sample: false, top_k: 5") == rlalgo::data::Json{{"top_k", 1}});
}

TEST_CASE("what this process does not do is refused by name, what asks for nothing is not") {
  for (const char* one : {"num_beams: 4", "presence_penalty: 0.5", "n: 2", "logit_bias: {'1': 2}", "max_length: 30",
                          "early_stopping: true", "seed: 1", "bad_words: [x]", "typical_p: 0.9"}) {
    INFO(one);
    CHECK(lacks(error_of(one),
                {"config.10: ", "trl.generation_kwargs." + std::string(one).substr(0, std::string(one).find(':')),
                 "c.yaml:10"}) == "");
  }
  for (const char* one : {"num_beams: 1", "presence_penalty: 0", "n: 1", "early_stopping: false", "seed: null",
                          "no_repeat_ngram_size: 0", "bad_words: []", "length_penalty: 1.0"}) {
    INFO(one);
    CHECK(parse(one).warnings.empty());
  }
  for (const char* one : {"use_cache: true", "pad_token_id: 0", "include_stop_str_in_output: true"}) {
    const RunConfig config = parse(one);
    REQUIRE(config.warnings.size() == 1);
    CHECK(lacks(config.warnings[0], {"trl.generation_kwargs.", "has no effect"}) == "");
  }
  CHECK(lacks(error_of("stop_string: x"), {"config.4: ", "trl.generation_kwargs.stop_string", "stop_strings"}) == "");
}

TEST_CASE("values out of range, and two spellings that differ") {
  CHECK(lacks(error_of("stop: ['']"), {"config.6: ", "generation_kwargs.stop"}) == "");
  CHECK(lacks(error_of("stop: 5"), {"config.5: ", "generation_kwargs.stop"}) == "");
  CHECK(lacks(error_of("stop_token_ids: [-1]"), {"config.6: ", "stop_token_ids"}) == "");
  CHECK(lacks(error_of("max_new_tokens: 0"), {"config.6: ", "max_tokens"}) == "");
  CHECK(lacks(error_of("min_tokens: 65"), {"config.6: ", "min_tokens", "64"}) == "");
  CHECK(lacks(error_of("max_tokens: 3, max_new_tokens: 4"), {"config.8: ", "3 and 4"}) == "");
  CHECK(error_of("max_tokens: 3, max_new_tokens: 3") == "nothing");
}

TEST_CASE("agents and blocks are not told what they would not do") {
  const std::string agents = "nemo_gym_enabled: true\nnemo_gym_multi_turn: true\nnemo_gym_config_paths: [a.yaml]\n";
  CHECK(lacks(error_of("stop: [x]", "", agents),
              {"rlalgo.config.10]", "generation_kwargs.stop", "nemo_gym_multi_turn"}) == "");
  CHECK(lacks(error_of("top_k: 3", server, agents), {"rlalgo.config.10]", "generation_kwargs.top_k"}) == "");
  CHECK(error_of("top_k: 3", "", agents).find("generation_kwargs") == std::string::npos);
}

TEST_CASE("what ends a completion is compared by a resume") {
  const auto settings =
      parse("stop: [a], stop_token_ids: [3], max_new_tokens: 5, min_tokens: 2, ignore_eos: true").settings;
  CHECK(settings["trl.generation_kwargs.stop"] == rlalgo::data::Json(Texts{"a"}));
  CHECK(settings["trl.generation_kwargs.stop_token_ids"] == rlalgo::data::Json(Ids{3}));
  CHECK(settings["trl.generation_kwargs.max_tokens"] == 5);
  CHECK(settings["trl.generation_kwargs.min_tokens"] == 2);
  CHECK(settings["trl.generation_kwargs.ignore_eos"] == true);
}
