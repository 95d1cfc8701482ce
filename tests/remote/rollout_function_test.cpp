#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/rollout_function.hpp>

using namespace rlalgo;
using data::Json;
using data::TokenId;
using remote::RolloutFunction;
using support::lacks;
using support::raised_by;

namespace {

constexpr TokenId end_id = 256;

std::vector<TokenId> bytes(const std::string& text) {
  std::vector<TokenId> out;
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}
std::string letters(std::span<const TokenId> ids, bool skip_special = true) {
  std::string out;
  for (const TokenId id : ids)
    if (id < 256)
      out += static_cast<char>(id);
    else if (!skip_special)
      out += "<end>";
  return out;
}

// Says "<n" for a prompt of n tokens, drawn at index i; ended where there is room for the end token.
struct Counting {
  static constexpr inference::WeightSource weights = inference::WeightSource::erased;
  static constexpr inference::GeneratorHooks hooks{.quantizes = true};
  std::vector<inference::Request> asked;
  std::vector<inference::SamplingConfig> samplings;
  inference::WeightSource where = inference::WeightSource::shared;
  bool quantized = false;

  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request> requests,
                                                      const inference::SamplingConfig& sampling, inference::DrawKey) {
    std::vector<std::vector<data::Completion>> out;
    samplings.push_back(sampling);
    for (const inference::Request& request : requests) {
      asked.push_back(request);
      out.emplace_back();
      for (std::int64_t j = 0; j < request.count; ++j) {
        data::Completion one;
        one.ids = request.given.empty() ? bytes("<" + std::to_string(request.prompt.size())) : request.given;
        if (request.given.empty()) one.ids.push_back(end_id);
        if (request.given.empty() && static_cast<std::int64_t>(one.ids.size()) > sampling.max_new_tokens)
          one.ids.resize(static_cast<std::size_t>(sampling.max_new_tokens));
        for (std::size_t t = 0; t < one.ids.size(); ++t) one.log_probs.push_back(-0.5f * static_cast<float>(t + 1));
        one.weights_version = 7;
        out.back().push_back(std::move(one));
      }
    }
    return out;
  }
  [[nodiscard]] inference::WeightSource source() const { return where; }
  [[nodiscard]] bool quantizes() const { return quantized; }
};

remote::RolloutTexts byte_texts() {
  remote::RolloutTexts out;
  out.prompt = [](const Json& prompt) { return bytes(prompt.is_string() ? prompt.get<std::string>() : prompt.dump()); };
  out.encode = [](const std::string& text, bool special) {
    std::vector<TokenId> ids = bytes(text);
    if (special) ids.insert(ids.begin(), TokenId{'^'});
    return ids;
  };
  out.decode = [](std::span<const TokenId> ids, bool skip) { return letters(ids, skip); };
  out.render = [](const Json& messages, bool generation_prompt, const Json&, const Json& variables) {
    std::string text = variables.value("system", "");
    for (const Json& m : messages)
      text += m.at("role").get<std::string>() + ":" + m.at("content").get<std::string>() + ";";
    return text + (generation_prompt ? "assistant:" : "");
  };
  out.max_positions = 200;
  out.vocab_size = 257;
  out.model = {{"tokenizer", "/nowhere"}, {"base_model", "m"},   {"eos_id", end_id},
               {"eos_token", "<end>"},    {"pad_id", 0},         {"pad_token", "<pad>"},
               {"bos_id", nullptr},       {"bos_token", nullptr}};
  return out;
}

const inference::SamplingConfig sampling{.temperature = 0.5, .max_new_tokens = 20, .stop_ids = {end_id}};

struct Played {
  std::vector<std::vector<data::Completion>> groups;
  Counting generator;
};

// The function `name` of `source` over two prompts with two completions each.
Played play(const std::string& source, const std::string& name,
            inference::WeightSource where = inference::WeightSource::shared, double seconds = 30,
            bool quantized = false) {
  const support::ScratchDirectory folder;
  folder.write("rollouts.py", source);
  RolloutFunction function("rollouts." + name, {.search_paths = {folder.path()}, .call_seconds = seconds});
  Played out;
  out.generator.where = where;
  out.generator.quantized = quantized;
  inference::AnyGenerator any(out.generator);
  function.draw_from(any, byte_texts());
  const data::TokenizedPrompt chat{.row = 3,
                                   .ids = bytes("chat"),
                                   .prompt = Json::array({{{"role", "user"}, {"content", "Hi"}}}),
                                   .columns = {{"answer", "4"}}};
  const data::TokenizedPrompt text{.row = 4, .ids = bytes("text"), .prompt = "Hello", .columns = {{"answer", "5"}}};
  const std::vector<inference::Request> requests = {
      {.prompt = chat.ids, .count = 2, .first_index = 2, .source = &chat},
      {.prompt = text.ids, .count = 2, .first_index = 4, .source = &text}};
  out.groups = function.generate(requests, sampling, {.seed = 1, .step = 5});
  return out;
}

std::string error(const std::string& source, double seconds = 30) {
  return raised_by([&] { play(source, "f", inference::WeightSource::shared, seconds); });
}

// A function that thinks in steps, written as axolotl's page on rollout functions has it.
constexpr const char* steps = R"(
def f(model, processing_class, prompts, generation_config=None):
    out = []
    for prompt in prompts:
        text = processing_class.apply_chat_template(prompt.get("messages", []), processing_class=False,
                                                    add_generation_prompt=True)
        said = ""
        for _ in range(2):
            inputs = processing_class(text + said + "\nNext step:", return_tensors="pt").to(model.device)
            outputs = model.generate(**inputs, max_new_tokens=9, generation_config=generation_config)
            said += processing_class.decode(outputs[0][inputs.input_ids.shape[1]:], skip_special_tokens=True) + "\n"
        out.append(said)
    return out
)";

// A generator whose server is away.
struct Broken {
  static constexpr inference::WeightSource weights = inference::WeightSource::shared;
  std::vector<std::vector<data::Completion>> generate(std::span<const inference::Request>,
                                                      const inference::SamplingConfig&, inference::DrawKey) {
    core::raise("http", 2, {.what = "the server is away"});
  }
};

}  // namespace

TEST_CASE("a function that returns texts: template, generate and decode are the trainer's") {
  const Played played = play(steps, "f");
  REQUIRE(played.groups.size() == 2);
  REQUIRE(played.groups[0].size() == 2);
  // ^user:Hi;assistant: + \nNext step: has 30 tokens, and 34 with what was said in between; Hello has 3 more than Hi
  const data::Completion& first = played.groups[0][0];
  CHECK(letters(first.ids, false) == "<30\n<34\n<end>");
  CHECK(letters(played.groups[1][1].ids) == "<33\n<37\n");
  CHECK(first.interaction->messages == Json("<30\n<34\n"));
  CHECK(first.interaction->last_text == "<30\n<34\n");
  CHECK(std::isnan(first.interaction->reward));
  CHECK(first.finish == data::Finish::stop);
  CHECK(first.log_probs.empty());
  CHECK(first.weights_version == 7);
  REQUIRE(played.generator.asked.size() == 8);
  CHECK(letters(played.generator.asked[0].prompt) == "^user:Hi;assistant:\nNext step:");
  // every draw has an index of its own, above those of other generations
  for (std::size_t i = 0; i < 8; ++i) CHECK(played.generator.asked[i].first_index == (2U << 20U) + i);
  CHECK(played.generator.samplings[0].temperature == 0.5);
  CHECK(played.generator.samplings[0].max_new_tokens == 9);
  CHECK(played.generator.samplings[0].stop_ids == std::vector<TokenId>{end_id});
}

TEST_CASE("texts drawn by a copy of the weights, or by quantized ones, get the log-probs of those") {
  const bool quantized = GENERATE(false, true);
  const Played played =
      play(steps, "f", quantized ? inference::WeightSource::shared : inference::WeightSource::snapshot, 30, quantized);
  const data::Completion& first = played.groups[0][0];
  REQUIRE(first.log_probs.size() == first.ids.size());
  CHECK(first.log_probs[2] == -1.5f);
  CHECK(played.generator.asked.size() == 12);
  CHECK(played.generator.asked[8].given == first.ids);
  CHECK(letters(played.generator.asked[8].prompt) == "chat");
}

TEST_CASE("generate() has transformers' arguments: rows with masks, several sequences, ends, lengths, greedy") {
  const Played played = play(R"(
def f(model, processing_class, prompts, generation_config):
    batch = processing_class(["abc", "a"], return_tensors="pt", padding=True, add_special_tokens=False)
    assert batch["input_ids"].tolist() == [[97, 98, 99], [0, 0, 97]], batch
    assert batch.attention_mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    out = model.generate(**batch, num_return_sequences=2, do_sample=False, eos_token_id=[9, 8], max_length=5, pad_token_id=0)
    assert tuple(out.shape) == (4, 5), out.shape
    assert out[:, 3:].tolist() == [[60, 51]] * 2 + [[60, 49]] * 2
    assert [row.tolist() for row in out][3] == [0, 0, 97, 60, 49]
    once = model.generate(batch.input_ids[0].unsqueeze(0), temperature=0.25, top_k=3, top_p=0.5)
    assert once[0, 3:].tolist() == [60, 51, 256]
    assert processing_class.batch_decode(once, skip_special_tokens=True) == ["abc<3"]
    assert processing_class.decode(once[0]) == "abc<3<end>"
    assert generation_config.max_new_tokens == 20 and generation_config.temperature == 0.5
    assert [p["answer"] for p in prompts] == ["4", "4", "5", "5"]
    assert prompts[2]["messages"] == [{"role": "user", "content": "Hello"}]
    assert processing_class.apply_chat_template(prompts[0]["messages"], tokenize=True) == list(b"user:Hi;")
    try:
        model.generate(batch.input_ids, penalty_alpha=0.6)
    except TypeError as error:
        assert "penalty_alpha" in str(error)
    else:
        raise AssertionError("it took penalty_alpha")
    try:
        model.generate([[300]])
    except ValueError as error:
        assert "300" in str(error)
    else:
        raise AssertionError("it took the token 300")
    return ["x", {"content": "y"}, [{"role": "assistant", "content": "z"}], ""]
)",
                             "f");
  CHECK(letters(played.groups[0][0].ids, false) == "x");
  CHECK(letters(played.groups[0][1].ids) == "y");
  CHECK(letters(played.groups[1][0].ids) == "z");
  CHECK(played.groups[0][0].finish == data::Finish::length);
  // nothing said: a row without gradient
  CHECK(played.groups[1][1].ids == std::vector<TokenId>{end_id});
  CHECK(played.groups[1][1].loss_mask == std::vector<std::uint8_t>{0});
  CHECK(played.generator.samplings[0].temperature == 0.0);
  CHECK(played.generator.samplings[0].stop_ids == std::vector<TokenId>{9, 8});
  CHECK(played.generator.samplings[0].max_new_tokens == 2);
  CHECK(played.generator.samplings[1].top_k == 3);
  CHECK(played.generator.samplings[1].max_new_tokens == 20);
  CHECK(played.generator.asked[1].prompt == bytes("a"));
}

TEST_CASE("TRL's form: tokens with their log-probs and mask, and columns for the rewards") {
  const Played played = play(R"(
from trl.experimental.openenv import generate_rollout_completions

def f(prompts, trainer):
    assert trainer.args.max_completion_length == 20 and trainer.state.global_step == 5 and trainer.num_generations == 2
    assert prompts[0] == [{"role": "user", "content": "Hi"}] and prompts[2:] == ["Hello", "Hello"]
    drawn = generate_rollout_completions(trainer, prompts, generation_overrides={"temperature": 0.75})
    assert drawn[2]["text"] == "<5"
    assert trainer.processing_class.decode(drawn[2]["completion_ids"], skip_special_tokens=True) == "<5"
    return {
        "prompt_ids": [d["prompt_ids"] for d in drawn],
        "completion_ids": [d["completion_ids"] + [33] for d in drawn],
        "logprobs": [[[p, -9.0] for p in d["logprobs"]] + [0.0] for d in drawn],
        "env_mask": [[1] * len(d["completion_ids"]) + [0] for d in drawn],
        "env_reward": [0.5, 1.5, None],
        "name": "dice",
    }
)",
                             "f");
  const data::Completion& third = played.groups[1][0];
  CHECK(letters(third.ids, false) == "<5<end>!");
  CHECK(letters(third.prompt_ids) == "Hello");
  CHECK(third.log_probs == std::vector<float>{-0.5f, -1.0f, -1.5f, 0.0f});
  CHECK(third.loss_mask == std::vector<std::uint8_t>{1, 1, 1, 0});
  CHECK(played.groups[0][1].interaction->columns == Json{{"env_reward", 1.5}, {"name", "dice"}});
  CHECK(played.groups[1][1].interaction->columns == Json{{"name", "dice"}});
  CHECK(played.groups[0][1].interaction->messages.is_null());
  CHECK(played.generator.samplings[0].temperature == 0.75);
}

TEST_CASE("what a function gets wrong is said with its place") {
  CHECK(lacks(error("def g(): pass\n"), {"remote.61", "has no function 'f'", "it has: g"}) == "");
  CHECK(lacks(error("def f(questions): pass\n"), {"remote.61", "f' takes (questions)", "(prompts, trainer)"}) == "");
  CHECK(lacks(error("async def f(prompts, trainer): pass\n"), {"remote.61", "coroutine"}) == "");
  CHECK(lacks(error("def f(model, prompts):\n  return 1 / 0\n"),
              {"remote.62", "ZeroDivisionError", "rollouts.py\", line 2", "generation 5"}) == "");
  CHECK(lacks(error("def f(model, prompts):\n  return ['x']\n"), {"remote.63", "1 entries for 4 prompts"}) == "");
  CHECK(lacks(error("def f(model, prompts):\n  return 'text'\n"), {"remote.63", "is str"}) == "");
  CHECK(lacks(error("def f(model, prompts):\n  return [1, 2, 3, 4]\n"), {"remote.63", "completion 0 is 1"}) == "");
  CHECK(lacks(error("def f(prompts, trainer):\n  return []\n"), {"remote.63", "list, not a dict"}) == "");
  CHECK(lacks(error("def f(prompts, trainer):\n  return {'prompt_ids': []}\n"), {"remote.63", "no completion_ids"}) ==
        "");
  const std::string ids = "def f(prompts, trainer):\n  return {'prompt_ids': [[1]] * 4, 'completion_ids': ";
  CHECK(lacks(error(ids + "[[300]] * 4}\n"), {"remote.66", "300", "0 to 256"}) == "");
  CHECK(lacks(error(ids + "[[1] * 200] * 4}\n"), {"remote.66", "1 tokens of the prompt and 200", "dataset row 3"}) ==
        "");
  CHECK(lacks(error(ids + "[[1]] * 4, 'logprobs': [[0.0, 0.0]] * 4}\n"), {"remote.63", "2 entries for 1 tokens"}) ==
        "");
  const std::string probs = ids + "[[1, 2]] * 4, 'logprobs': [[-1.0, -0.5]] * 2 + ";
  CHECK(lacks(error(probs + "[[-1.0, 0.5], [0, 0]]}\n"),
              {"remote.63", "logprobs of row 2 holds 0.5 at token 1", "at most 0"}) == "");
  CHECK(lacks(error(probs + "[[0, 0], [float('nan'), 0]]}\n"),
              {"remote.63", "logprobs of row 3 holds nan at token 0"}) == "");
  CHECK(lacks(error(probs + "[[0, 0], [0, float('-inf')]]}\n"), {"remote.63", "row 3 holds -inf at token 1"}) == "");
  CHECK(lacks(error(ids + "[[1, 2]] * 4, 'env_mask': [[1, 257]] * 4}\n"),
              {"remote.63", "env_mask of row 0 holds 257 at token 1", "0 or 1"}) == "");
  CHECK(lacks(error(ids + "[[1, float('nan')]] * 4}\n"),
              {"remote.63", "completion_ids of row 0 holds nan at token 1"}) == "");
  CHECK(lacks(error("import os\ndef f(model, prompts):\n  os._exit(3)\n"), {"remote.65", "3"}) == "");
  CHECK(lacks(error("def f(model, prompts):\n  return [model.generate([[1] * 200])]\n"),
              {"remote.62", "200 tokens", "room for 200"}) == "");
}

TEST_CASE("a function that does not get on is ended, and one that asks goes on for as long as it asks") {
  const os::Stopwatch watch;
  CHECK(lacks(error("import time\ndef f(model, prompts):\n  time.sleep(60)\n", 0.5),
              {"remote.64", "environment_timeout"}) == "");
  CHECK(watch.seconds() < 20);
  const Played slow = play(
      "import time\ndef f(model, prompts):\n  for _ in range(6):\n    time.sleep(0.3)\n    model.generate([[1]])\n"
      "  return ['x'] * 4\n",
      "f", inference::WeightSource::shared, 1.0);
  CHECK(slow.groups.size() == 2);
}

TEST_CASE("an error of the generator ends the function and is passed on") {
  const support::ScratchDirectory folder;
  folder.write("rollouts.py",
               "def f(model, prompts):\n  try:\n    model.generate([[1]])\n  except Exception:\n    pass\n");
  Broken broken;
  RolloutFunction function("rollouts.f", {.search_paths = {folder.path()}, .call_seconds = 20});
  inference::AnyGenerator any(broken);
  function.draw_from(any, byte_texts());
  const data::TokenizedPrompt row{.row = 0, .ids = bytes("a"), .prompt = "a", .columns = {}};
  const std::vector<inference::Request> requests = {{.prompt = row.ids, .count = 1, .source = &row}};
  CHECK(lacks(raised_by([&] { function.generate(requests, sampling, {}); }), {"http.2", "the server is away"}) == "");
  CHECK(lacks(raised_by([&] { function.generate(requests, sampling, {}); }), {"remote.65"}) == "");
}
