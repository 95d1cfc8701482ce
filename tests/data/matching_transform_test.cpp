#include <rlalgo/data/matching_transform.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using data::Json;

namespace {

Json one(const std::string& type, const std::string& row) {
  const auto rows = data::matching_rows(type, Json::parse(row), "rows.jsonl:3");
  REQUIRE(rows.size() == 1);
  return rows.front();
}

const char* const dialogue =
    R"({"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}, {"role": "user", "content": "Q2"}, {"role": "assistant", "content": "A2"}], "id": 1})";

}  // namespace

TEST_CASE("input and output of code instructions") {
  CHECK(one("ebft_opencode.transform", R"({"input": "Add", "output": "a+b", "id": 3})") ==
        Json::parse(R"({"prompt": [{"role": "user", "content": "Add"}], "ground_truth": "a+b"})"));
  CHECK_THROWS_WITH(one("ebft_opencode.transform", R"({"input": "Add"})"), Catch::Contains("[rlalgo.data.10]") &&
                                                                               Catch::Contains("output") &&
                                                                               Catch::Contains("rows.jsonl:3"));
}

TEST_CASE("conversations: the first answer, the last, every one") {
  CHECK(
      one("ebft_chat_multiturn.transform", dialogue) ==
      Json::parse(
          R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}], "ground_truth": "A1", "remaining_turns": [{"role": "user", "content": "Q2"}, {"role": "assistant", "content": "A2"}]})"));
  CHECK(
      one("ebft_chat_multiturn.transform_last_turn", dialogue) ==
      Json::parse(
          R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}, {"role": "assistant", "content": "A1"}, {"role": "user", "content": "Q2"}], "ground_truth": "A2"})"));
  const auto all = data::matching_rows("ebft_chat_multiturn.transform_all_turns", Json::parse(dialogue), "");
  REQUIRE(all.size() == 2);
  CHECK(all[0]["ground_truth"] == "A1");
  CHECK(all[0]["prompt"].size() == 2);
  CHECK(all[1]["ground_truth"] == "A2");
  CHECK(all[1]["prompt"].size() == 4);
}

TEST_CASE("conversations without an answer") {
  CHECK(
      one("ebft_chat_multiturn.transform",
          R"({"conversations": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}]})") ==
      Json::parse(
          R"({"prompt": [{"role": "system", "content": "S"}, {"role": "user", "content": "Q1"}], "ground_truth": ""})"));
  CHECK(one("ebft_chat_multiturn.transform", R"({"messages": []})") ==
        Json::parse(R"({"prompt": [], "ground_truth": ""})"));
  CHECK(one("ebft_chat_multiturn.transform_last_turn", R"({})") ==
        Json::parse(R"({"prompt": [], "ground_truth": ""})"));
  CHECK(data::matching_rows("ebft_chat_multiturn.transform_all_turns", Json::parse(R"({"messages": []})"), "").empty());
  CHECK(one("ebft_reasoning.transform", R"({"messages": [{"role": "user", "content": "Q"}]})") ==
        Json::parse(R"({"prompt": [], "ground_truth": ""})"));
}

TEST_CASE("thoughts are kept, taken out, or taken apart") {
  const char* const thought =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>a</think>4"}]})";
  CHECK(one("ebft_reasoning.transform", thought)["ground_truth"] == "<think>a</think>4");
  CHECK(
      one("ebft_reasoning.transform_answer_only",
          R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>a</think>\n\n4 <think>b</think> 5"}]})")
          ["ground_truth"] == "4 5");
  CHECK(
      one("ebft_reasoning.transform_split_thinking",
          R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>a</think>4"}, {"role": "user", "content": "R"}, {"role": "assistant", "content": "<reasoning> b </reasoning> 5 "}]})") ==
      Json::parse(
          R"({"prompt": [{"role": "user", "content": "Q", "reasoning_content": ""}, {"role": "assistant", "content": "4", "reasoning_content": "a"}, {"role": "user", "content": "R", "reasoning_content": ""}], "ground_truth": "<think>\nb\n</think>\n\n5"})"));
}

TEST_CASE("a thought that does not end, or ends before it begins") {
  const auto answer = [](const std::string& type, const std::string& content) {
    const Json row = {{"messages", Json::array({Json{{"role", "assistant"}, {"content", content}}})}};
    return data::matching_rows(type, row, "").front()["ground_truth"].get<std::string>();
  };
  CHECK(answer("ebft_reasoning.transform_answer_only", "<think>a 4") == "<think>a 4");
  CHECK(answer("ebft_reasoning.transform_answer_only", "</think>4") == "</think>4");
  CHECK(answer("ebft_reasoning.transform_split_thinking", "<|begin_of_thought|>a<|end_of_thought|>4") ==
        "<think>\na\n</think>\n\n4");
  CHECK(answer("ebft_reasoning.transform_split_thinking", "<think>a 4") == "<think>a 4");
}

TEST_CASE("what is no list of messages is named") {
  CHECK_THROWS_WITH(one("ebft_reasoning.transform", R"({"messages": "hello"})"), Catch::Contains("[rlalgo.data.10]"));
  CHECK_THROWS_WITH(one("ebft_reasoning.transform", R"({"messages": [{"content": "hello"}]})"),
                    Catch::Contains("no role"));
}

TEST_CASE("a table keeps where its rows came from") {
  data::Table table;
  const auto file = std::make_shared<const std::string>("x.jsonl");
  table.append(Json::parse(dialogue), {file, 7});
  const data::Table out = data::matching_table("ebft_chat_multiturn.transform_all_turns", table);
  CHECK(out.size() == 2);
  CHECK(out.where(1) == "x.jsonl:7");
  for (const std::string& name : data::matching_transform_names())
    if (name.find("opencode") == std::string::npos) CHECK_NOTHROW(data::matching_table(name, table));
}

TEST_CASE("what a prompt is rendered with stays beside it") {
  data::Table table;
  table.append(
      data::Json::parse(
          R"({"input": "q", "output": "a", "other": 1, "tools": [{"name": "f"}], "chat_template_kwargs": {"x": 1}})"),
      {nullptr, 1, -1});
  const data::Json row = data::matching_table("ebft_opencode.transform", table).row(0);
  CHECK(row["tools"][0]["name"] == "f");
  CHECK(row["chat_template_kwargs"]["x"] == 1);
  CHECK_FALSE(row.contains("other"));
}

TEST_CASE("who plays a row is kept with each row that it becomes") {
  data::Table table;
  table.append(data::Json::parse(R"({"input": "q", "output": "o", "environment": "a", "other": 1})"), {nullptr, 1, -1});
  const data::Table made = data::matching_table("ebft_opencode.transform", table);
  CHECK(made.row(0)["environment"] == "a");
  CHECK_FALSE(made.row(0).contains("other"));
}

TEST_CASE("calls of the history stay; of a ground truth they are data.35") {
  const Json history = one("ebft_reasoning.transform_split_thinking", R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}, {"role": "tool", "content": "1"},
      {"role": "assistant", "content": "a"}]})");
  CHECK(history["prompt"][1]["tool_calls"][0]["function"]["name"] == "f");
  CHECK_THROWS_WITH(one("ebft_reasoning.transform", R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]}]})"),
                    Catch::StartsWith("[rlalgo.data.35]") && Catch::Contains("rows.jsonl:3"));
}
