#include <rlalgo/trainer/samples_log.hpp>

#include <support/catch.hpp>

#include "trainer/files.hpp"

using namespace rlalgo::trainer;

TEST_CASE("prompts are shown as people read them") {
  CHECK(readable_prompt("2+2?") == "2+2?");
  CHECK(readable_prompt(Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"2+2?"}])")) ==
        "system: Be brief.\nuser: 2+2?");
  CHECK(readable_prompt(Json::parse(R"([{"role":"user","content":[{"type":"text","text":"hi"}]}])")) ==
        R"(user: [{"type":"text","text":"hi"}])");
  CHECK(readable_prompt(Json()) == "null");
}

TEST_CASE("a rollout becomes a sample with one named reward per function") {
  rlalgo::data::Rollout rollout;
  rollout.prompt = "2+2?";
  rollout.text = "4";
  rollout.rewards = {1.0, no_value};
  rollout.advantage = -0.5;
  rollout.finish = rlalgo::data::Finish::length;
  rollout.logged = {{"parsed", 4}};
  const std::vector<rlalgo::data::Rollout> rollouts(3, rollout);
  const auto samples = to_samples(rollouts, {"accuracy", "format"}, 2);
  REQUIRE(samples.size() == 2);
  CHECK(samples[0].prompt == "2+2?");
  CHECK(samples[0].cut);
  CHECK(samples[0].logged == Json{{"parsed", 4}});
  REQUIRE(samples[0].rewards.size() == 2);
  CHECK(samples[0].rewards[0] == std::pair<std::string, double>{"accuracy", 1.0});
  CHECK(std::isnan(samples[0].rewards[1].second));
  CHECK(to_samples(rollouts, {}, 9).size() == 3);
}

TEST_CASE("samples.jsonl holds one object per sample and is cut back on resume") {
  const fake::TempDir dir;
  SamplesLog log(dir.path);
  log.restart(0);
  log.append(1, {{"p", "a\"b\n\xFF", {{"accuracy", 1.0}, {"format", no_value}}, 0.5, true, {}},
                 {"q", "b", {}, 0, false, {{"note", "\xFF"}, {"n", nullptr}}}});
  const std::string first =
      "{\"step\": 1, \"prompt\": \"p\", \"completion\": \"a\\\"b\\n\xEF\xBF\xBD\", \"rewards\": {\"accuracy\": 1.0, "
      "\"format\": null}, \"advantage\": 0.5, \"cut\": true}\n"
      "{\"step\": 1, \"prompt\": \"q\", \"completion\": \"b\", \"rewards\": {}, \"advantage\": 0.0, \"cut\": false, "
      "\"logged\": {\"note\":\"\xEF\xBF\xBD\",\"n\":null}}\n";
  CHECK(fake::read(dir.path / "samples.jsonl") == first);
  log.append(4, {{"p", "later", {}, 0, false, {}}});
  std::ofstream(dir.path / "samples.jsonl", std::ios::app) << "{\"step\": 1, \"prom";
  SamplesLog resumed(dir.path);
  resumed.restart(3);
  CHECK(fake::read(dir.path / "samples.jsonl") == first);
  resumed.restart(0);
  CHECK(fake::read(dir.path / "samples.jsonl").empty());
}
