#include <support/scratch.hpp>

#include <rlalgo/data/transform.hpp>

using namespace rlalgo::data;
using rlalgo::support::exit_code_of;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Json transformed(const Json& type, const std::string& row) {
  Json out = Json::parse(row);
  make_transform(type)(out, "rows.jsonl:5");
  return out;
}
std::string type_error(const std::string& type) {
  return raised_by([&] { (void)make_transform(Json::parse(type), "config.yaml:4"); });
}
std::string row_error(const Json& type, const std::string& row) {
  return raised_by([&] { (void)transformed(type, row); });
}
}  // namespace

TEST_CASE("the answer is what follows the last marker, trimmed, without commas") {
  CHECK(text_after_last("3*400 = 1,200\n#### 1,200", "####") == "1200");
  CHECK(text_after_last("a #### 1 #### 2 ", "####") == "2");
  CHECK(text_after_last(" 1,5 ", "####") == "15");  // as "".split("####")[-1] does
  CHECK(text_after_last("x ####  ", "####").empty());
}

TEST_CASE("GSM8K rows") {
  const std::string row = R"({"question": "How many?", "answer": "3*400 = 1,200\n#### 1,200", "level": 2})";
  const Json out = transformed("rewards.oai_gsm8k_transform", row);
  CHECK(out["prompt"].dump() == R"([{"role":"user","content":"How many?"}])");
  CHECK(out["answer"] == "1200");
  CHECK(out["level"] == 2);
  CHECK_FALSE(out.contains("question"));
  CHECK(transformed("rewards.prompt_transform", row)["answer"] == "1200");
  CHECK(transformed("rewards.prompt_transform", R"({"question": "q", "answer": " 1,5 "})")["answer"] == " 1,5 ");
  CHECK(transformed("rewards.prompt_transform", R"({"question": "q", "answer": 42})")["answer"] == "42");
  CHECK(transformed("rewards.oai_gsm8k_transform", R"({"question": "q", "answer": " 1,5 "})")["answer"] == "15");
  CHECK(transformed("rewards.prompt_transform", R"({"problem": "p", "solution": "$1,5$", "messages": []})").dump() ==
        R"({"solution":"$1,5$","messages":[],"prompt":[{"role":"user","content":"p"}]})");
}

TEST_CASE("no type leaves rows as they are") {
  for (const Json& none : {Json(nullptr), Json(""), Json::object()})
    CHECK(transformed(none, R"({"x": 1})").dump() == R"({"x":1})");
}

TEST_CASE("a declared mapping") {
  const Json type = Json::parse(
      R"({"field_prompt": "q", "field_answer": "a", "answer_after": "####", "system": "Be brief.", "remove_columns": ["a"]})");
  const Json out = transformed(type, R"({"q": "How many?", "a": "so #### 1,0", "id": 3})");
  CHECK(out["prompt"].dump() == R"([{"role":"system","content":"Be brief."},{"role":"user","content":"How many?"}])");
  CHECK(out["answer"] == "10");
  CHECK_FALSE(out.contains("a"));
  CHECK(out["q"] == "How many?");
  CHECK(out["id"] == 3);
}

TEST_CASE("a declared mapping: formats, plain prompts, system columns, messages") {
  CHECK(transformed(Json::parse(R"({"field_prompt": "q", "plain": true, "prompt_format": "Q: {prompt}\nA:"})"),
                    R"({"q": "2+{prompt}?"})")["prompt"] ==
        "Q: 2+{prompt}?\nA:");  // the inserted text is not searched again
  const Json system = Json::parse(R"({"field_prompt": "q", "system": "A", "field_system": "s"})");
  CHECK(transformed(system, R"({"q": "x", "s": "B"})")["prompt"][0]["content"] == "B");
  CHECK(transformed(system, R"({"q": "x", "s": null})")["prompt"][0]["content"] == "A");
  CHECK(transformed(system, R"({"q": "x", "s": ""})")["prompt"][0]["content"] == "A");
  const Json messages = Json::parse(R"({"field_prompt": "m"})");
  CHECK(transformed(messages, R"({"m": [{"role": "user", "content": "x"}]})")["prompt"][0]["content"] == "x");
  CHECK(transformed(Json::parse(R"({"field_prompt": "prompt", "field_answer": "answer"})"),
                    R"({"prompt": "x", "answer": 7})")
            .dump() == R"({"prompt":[{"role":"user","content":"x"}],"answer":"7"})");
}

TEST_CASE("a type that is not known lists those that are") {
  CHECK(lacks(type_error(R"("rewards.my_transform")"), {"data.9: ", "rewards.my_transform", "config.yaml:4",
                                                        "rewards.oai_gsm8k_transform", "field_prompt"}) == "");
  CHECK(lacks(type_error(R"("chatml.intel")"), {"data.9: "}) == "");
  CHECK(exit_code_of([] { (void)make_transform("x"); }) == 2);
  CHECK(transform_names().size() == 2);
  for (const std::string& name : transform_names()) CHECK_NOTHROW(make_transform(name));
}

TEST_CASE("a mapping that is wrong") {
  CHECK(lacks(type_error(R"({"field_promt": "q"})"), {"data.12: ", "did you mean field_prompt?"}) == "");
  CHECK(lacks(type_error(R"({"field_answer": "a"})"), {"data.12: ", "field_prompt"}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": 3})"), {"data.12: ", "found 3"}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": "q", "plain": "yes"})"), {"data.12: "}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": "q", "remove_columns": "a"})"), {"data.12: "}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": "q", "remove_columns": [1]})"), {"data.12: "}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": "q", "plain": true, "system": "x"})"), {"data.12: ", "plain"}) == "");
  CHECK(lacks(type_error(R"({"field_prompt": "q", "prompt_format": "x"})"), {"data.12: ", "{prompt}"}) == "");
}

TEST_CASE("a row that lacks a field, or has another type there") {
  CHECK(lacks(row_error("rewards.oai_gsm8k_transform", R"({"qestion": "q", "answer": "a"})"),
              {"data.10: ", "\"question\"", "rows.jsonl:5", "did you mean qestion?"}) == "");
  CHECK(lacks(row_error("rewards.oai_gsm8k_transform", R"({"question": 3, "answer": "a"})"),
              {"data.10: ", "found 3"}) == "");
  CHECK(lacks(row_error("rewards.oai_gsm8k_transform", R"({"question": "q", "answer": null})"), {"data.10: "}) == "");
  CHECK(lacks(row_error(Json::parse(R"({"field_prompt": "q"})"), R"({"q": 3})"), {"data.10: "}) == "");
  CHECK(lacks(row_error(Json::parse(R"({"field_prompt": "q", "plain": true})"), R"({"q": []})"),
              {"data.10: ", "plain"}) == "");
  CHECK(lacks(row_error(Json::parse(R"({"field_prompt": "q", "field_system": "s"})"), R"({"q": "x", "s": 1})"),
              {"data.10: "}) == "");
  CHECK(lacks(row_error(Json::parse(R"({"field_prompt": "q", "field_answer": "a"})"), R"({"q": "x", "a": [1]})"),
              {"data.10: "}) == "");
}

TEST_CASE("a transform is applied to every row of a table") {
  Table table;
  table.append(Json::parse(R"({"q": "a"})"), {});
  table.append(Json::parse(R"({"q": "b"})"), {});
  transform_rows(make_transform(Json::parse(R"({"field_prompt": "q", "plain": true})")), table);
  CHECK(table.row(0)["prompt"] == "a");
  CHECK(table.row(1)["prompt"] == "b");
}
