#include <data/golden_formats.hpp>

#include <rlalgo/data/dialogue_format.hpp>

using namespace rlalgo::data;

TEST_CASE("dialogue formats: golden rows") {
  CHECK(golden_formats::check("chatml", "dpo") == 16);
  CHECK(golden_formats::check("llama3", "dpo") == 16);
  CHECK(golden_formats::check("zephyr", "dpo") == 2);
  CHECK(golden_formats::check("chatml", "kto") == 8);
  CHECK(golden_formats::check("llama3", "kto") == 8);
}

TEST_CASE("argilla is default for pairs") {
  Json row = {{"instruction", "Q"}, {"chosen_response", "a"}, {"rejected_response", "b"}};
  Json same = row;
  dialogue_format("chatml.argilla", PreferenceFamily::pairs)(row, "r");
  dialogue_format("chatml.default", PreferenceFamily::pairs)(same, "r");
  CHECK(row == same);
  CHECK(row["chosen"] == "a<|im_end|>");
}

TEST_CASE("what is no format of a family has none") {
  CHECK_FALSE(dialogue_format("chatml.icr", PreferenceFamily::unpaired));
  CHECK_FALSE(dialogue_format("chatml.default", PreferenceFamily::unpaired));
  CHECK_FALSE(dialogue_format("zephyr.nectar", PreferenceFamily::unpaired));
  CHECK_FALSE(dialogue_format("mistral.intel", PreferenceFamily::pairs));
}

TEST_CASE("errors name row and column; a null column does not hide the next") {
  Json row = {{"prompt", nullptr}, {"question", "Q"}, {"chosen", "a"}, {"rejected", "b"}};
  dialogue_format("chatml.default", PreferenceFamily::pairs)(row, "r");
  CHECK(row["prompt"] == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n");
  Json number = {{"question", 3}, {"chosen", "a"}, {"rejected", "b"}};
  CHECK_THROWS_WITH(
      dialogue_format("chatml.intel", PreferenceFamily::pairs)(number, "file.jsonl:7"),
      Catch::StartsWith("[rlalgo.data.10]") && Catch::Contains("file.jsonl:7") && Catch::Contains("question"));
  Json one = {{"prompt", "Q"}, {"answers", Json::array({{{"answer", "4"}, {"rank", 1}}})}};
  CHECK_THROWS_WITH(dialogue_format("zephyr.nectar", PreferenceFamily::pairs)(one, "r"),
                    Catch::StartsWith("[rlalgo.data.21]"));
}
