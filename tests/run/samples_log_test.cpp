#include <fstream>

#include <rlalgo/run/samples_log.hpp>

#include <support/catch.hpp>

#include "run/files.hpp"

using namespace rlalgo::run;

TEST_CASE("prompts are shown as people read them") {
  CHECK(readable_prompt("2+2?") == "2+2?");
  CHECK(readable_prompt(Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"2+2?"}])")) ==
        "system: Be brief.\nuser: 2+2?");
  CHECK(readable_prompt(Json::parse(R"([{"role":"user","content":[{"type":"text","text":"hi"}]}])")) ==
        R"(user: [{"type":"text","text":"hi"}])");
  CHECK(readable_prompt(Json()) == "null");
}

TEST_CASE("a conversation is told in turns") {
  Sample sample{"p", "7 higher 8", {}, 0, false, {}};
  CHECK(SamplesLog::lines(1, {sample}).find("turns") == std::string::npos);
  sample.turns = {{true, "7"}, {false, " \"higher\" "}, {true, "8\xFF"}};
  const Json line = Json::parse(SamplesLog::lines(1, {sample}));
  CHECK(line["completion"] == "7 higher 8");
  CHECK(line["turns"] == Json::parse(R"([{"model": "7"}, {"environment": " \"higher\" "}, {"model": "8\uFFFD"}])"));
}

TEST_CASE("samples.jsonl holds one object per sample and starts over from the copy of a checkpoint") {
  const fake::TempDir dir;
  SamplesLog log(dir.path);
  const fake::TempDir checkpoint;
  log.restart();
  log.copy_to(checkpoint.path);
  CHECK(fake::tree(checkpoint.path).empty());
  log.append(SamplesLog::lines(1, {{"p", "a\"b\n\xFF", {{"accuracy", 1.0}, {"format", no_value}}, 0.5, true, {}},
                                   {"q", "b", {}, 0, false, {{"note", "\xFF"}, {"n", nullptr}}}}));
  const std::string first =
      "{\"step\": 1, \"prompt\": \"p\", \"completion\": \"a\\\"b\\n\xEF\xBF\xBD\", \"rewards\": {\"accuracy\": 1.0, "
      "\"format\": null}, \"advantage\": 0.5, \"cut\": true}\n"
      "{\"step\": 1, \"prompt\": \"q\", \"completion\": \"b\", \"rewards\": {}, \"advantage\": 0.0, \"cut\": false, "
      "\"logged\": {\"note\":\"\xEF\xBF\xBD\",\"n\":null}}\n";
  CHECK(fake::read(dir.path / "samples.jsonl") == first);
  log.copy_to(checkpoint.path);
  CHECK(fake::read(checkpoint.path / "samples.jsonl") == first);
  const std::string later = SamplesLog::lines(4, {{"p", "later", {}, 0, false, {}}});
  log.append(later);
  std::ofstream(dir.path / "samples.jsonl", std::ios::app) << "{\"step\": 1, \"prom";
  SamplesLog resumed(dir.path);
  SECTION("the copy") {
    resumed.restart(checkpoint.path);
    CHECK(fake::read(dir.path / "samples.jsonl") == first);
    resumed.append(later);
    CHECK(fake::read(dir.path / "samples.jsonl") == first + later);
    CHECK(fake::read(checkpoint.path / "samples.jsonl") == first);
  }
  SECTION("a checkpoint without samples") {
    resumed.restart(dir.path / "absent");
    CHECK(fake::read(dir.path / "samples.jsonl").empty());
  }
  SECTION("a checkpoint of before copies: by step") {
    resumed.cut(3);
    CHECK(fake::read(dir.path / "samples.jsonl") == first);
    resumed.cut(0);
    CHECK(fake::read(dir.path / "samples.jsonl").empty());
  }
  SECTION("a fresh run") {
    resumed.restart();
    CHECK(fake::read(dir.path / "samples.jsonl").empty());
  }
}
