#include <support/scratch.hpp>

#include <rlalgo/data/prompt.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
std::string error_of(const std::string& prompt) {
  return raised_by([&] { check_prompt(Json::parse(prompt), "rows.jsonl:3"); });
}
}  // namespace

TEST_CASE("texts and lists of messages are prompts") {
  CHECK(error_of(R"("How many?")") == "nothing");
  CHECK(error_of(R"([{"role": "user", "content": "How many?"}])") == "nothing");
  CHECK(error_of(R"([{"role": "user", "content": ""}, {"role": "assistant", "content": null, "tool_calls": [{}]}])") ==
        "nothing");
}

TEST_CASE("anything else names the row, the message and the field") {
  CHECK(lacks(error_of(R"("")"), {"data.11: ", "rows.jsonl:3", "empty"}) == "");
  CHECK(lacks(error_of("[]"), {"data.11: ", "rows.jsonl:3", "no messages"}) == "");
  CHECK(lacks(error_of("7"), {"data.11: ", "rows.jsonl:3", "found 7"}) == "");
  CHECK(lacks(error_of(R"({"role": "user", "content": "x"})"),
              {"data.11: ", "rows.jsonl:3", "neither a text nor a list"}) == "");
  CHECK(lacks(error_of(R"(["x"])"), {"data.11: ", "rows.jsonl:3", "message 0"}) == "");
  CHECK(lacks(error_of(R"([{"role": "user", "content": "x"}, {"content": "y"}])"),
              {"data.11: ", "rows.jsonl:3", "message 1", "role"}) == "");
  CHECK(lacks(error_of(R"([{"role": "user", "content": 5}])"),
              {"data.11: ", "rows.jsonl:3", "content of message 0", "found 5"}) == "");
  CHECK(lacks(error_of(R"([{"role": "user"}])"), {"data.11: ", "rows.jsonl:3", "no such field"}) == "");
  CHECK(lacks(error_of(R"([{"role": "user", "content": null}])"), {"data.11: ", "rows.jsonl:3"}) == "");
  CHECK(lacks(error_of(R"([{"role": "user", "content": [{"type": "image"}]}])"), {"data.11: ", "rows.jsonl:3"}) == "");
}

TEST_CASE("prompts keep the other columns, in order, for the rewards") {
  Table table;
  table.append(Json::parse(R"({"id": 7, "prompt": "p", "completion": "c", "completion_ids": [1], "answer": "18"})"),
               {});
  table.append(Json::parse(R"({"prompt": [{"role": "user", "content": "q"}], "answer": null})"), {});
  const std::vector<TokenizedPrompt> prompts = prompts_of(table);
  REQUIRE(prompts.size() == 2);
  CHECK(prompts[0].prompt == "p");
  CHECK(prompts[0].columns.dump() == R"({"id":7,"answer":"18"})");
  CHECK(prompts[0].ids.empty());
  CHECK(prompts[1].row == 1);
  CHECK(prompts[1].prompt->at(0)["content"] == "q");
}

TEST_CASE("a row without a prompt names its columns") {
  Table table;
  table.append(Json::parse(R"({"question": "q", "answer": "a"})"),
               {std::make_shared<const std::string>("rows.jsonl"), 1, -1});
  CHECK(lacks(raised_by([&] { (void)prompts_of(table); }),
              {"data.10: ", "columns question, answer", "rows.jsonl:1", "field_prompt"}) == "");
  table.row(0)["prompt"] = nullptr;
  CHECK(lacks(raised_by([&] { (void)prompts_of(table); }), {"data.10: "}) == "");
}
