#include <cmath>
#include <string>

#include <support/catch.hpp>

#include <rlalgo/reward/gsm8k.hpp>

using namespace rlalgo::reward;

namespace {
const std::string good = "<reasoning>\n6 times 7\n</reasoning>\n<answer>\n42\n</answer>\n";
Json answer(const char* text) { return Json{{"answer", text}}; }
}  // namespace

TEST_CASE("the final answer: last answer tag, else after the last ####, else everything") {
  CHECK(final_answer(good) == "42");
  CHECK(final_answer("<answer>1</answer> no, <answer> 2 </answer> end") == "2");
  CHECK(final_answer("<answer> 3") == "3");
  CHECK(final_answer("4 </answer> rest") == "4");
  CHECK(final_answer("1 + 1 = 2\n#### 2\n") == "2");
  CHECK(final_answer("#### 2\n#### 3") == "3");
  CHECK(final_answer("  17 ") == "17");
  CHECK(final_answer("").empty());
}

TEST_CASE("correctness against the dataset's answer, bare or in GSM8K notation") {
  CHECK(correctness(good, answer("42")) == 2.0);
  CHECK(correctness(good, answer("6*7 = <<6*7=42>>42\n#### 42")) == 2.0);
  CHECK(correctness(good, answer("43")) == 0.0);
  CHECK(correctness("so it is\n#### $1,200.", answer("1200")) == 2.0);
  CHECK(correctness("#### 1,200", answer("#### 1,200")) == 2.0);
  CHECK(correctness("#### -3", answer("3")) == 0.0);
  CHECK(correctness("#### 4.50", answer("4.5")) == 2.0);
  CHECK(correctness("#### blue", answer("blue")) == 2.0);
  CHECK(correctness("#### 4 apples", answer("4")) == 0.0);
  CHECK(correctness("#### 7", Json{{"answer", 7}}) == 2.0);
  CHECK(std::isnan(correctness(good, Json{{"other", "42"}})));
  CHECK(std::isnan(correctness(good, Json{{"answer", nullptr}})));
}

TEST_CASE("integer answers are digits and nothing else") {
  CHECK(integer_answer(good) == 0.5);
  CHECK(integer_answer("<answer>4.2</answer>") == 0.0);
  CHECK(integer_answer("<answer>-4</answer>") == 0.0);
  CHECK(integer_answer("<answer></answer>") == 0.0);
  CHECK(integer_answer("the answer is 4") == 0.0);
}

TEST_CASE("strict format: one line each, nothing around") {
  CHECK(strict_format(good) == 0.5);
  CHECK(strict_format("<reasoning>\na\n</reasoning>\n<answer>\nb\n</answer>") == 0.5);
  CHECK(strict_format("<reasoning>\na\n</reasoning>\n<answer>\nb\n</answer>\n\n") == 0.5);
  CHECK(strict_format("<reasoning>\n\n</reasoning>\n<answer>\n\n</answer> ") == 0.5);
  CHECK(strict_format("<reasoning>\na\n</reasoning>\n<answer>\nb\n</answer>\n\n\n") == 0.0);
  CHECK(strict_format("<reasoning>\na\nb\n</reasoning>\n<answer>\nb\n</answer>\n") == 0.0);
  CHECK(strict_format(" " + good) == 0.0);
  CHECK(strict_format(good + "x") == 0.0);
  CHECK(strict_format("<reasoning>\na\n</reasoning><answer>\nb\n</answer>") == 0.0);
}

TEST_CASE("soft format: the two blocks at the start, any text inside") {
  CHECK(soft_format(good) == 0.25);
  CHECK(soft_format("<reasoning>a\nb</reasoning><answer>c</answer> and more") == 0.25);
  CHECK(soft_format("<reasoning>a</reasoning> b</reasoning> <answer>c</answer>") == 0.25);
  CHECK(soft_format("<reasoning>a</reasoning>  <answer>c</answer>") == 0.0);
  CHECK(soft_format("well <reasoning>a</reasoning><answer>c</answer>") == 0.0);
  CHECK(soft_format("<reasoning>a</reasoning><answer>c") == 0.0);
}

TEST_CASE("tag count: an eighth per tag that occurs once, less what trails") {
  CHECK(xml_count("") == 0.0);
  CHECK(xml_count(good) == Approx(0.5));                    // one trailing character is free
  CHECK(xml_count("<answer>1</answer>") == Approx(0.251));  // none trails: −(0 − 1)·0.001
  CHECK(xml_count("<answer>1</answer>\nabc") == Approx(0.25 - 0.003));
  CHECK(xml_count("<answer>1</answer>äöü") == Approx(0.25 - 0.002));  // characters, not bytes
  CHECK(xml_count("<reasoning><reasoning></reasoning>") == Approx(0.125));
}

TEST_CASE("an answer block anywhere") {
  CHECK(answer_block("x <answer>\n1\n</answer> y") == 1.0);
  CHECK(answer_block("</answer><answer>") == 0.0);
}

TEST_CASE("GSM8K's own notation") {
  CHECK(hash_accuracy("2 + 2 = 4\n#### 4", answer("...\n#### 4")) == 1.0);
  CHECK(hash_accuracy("4", answer("4")) == 0.0);
  CHECK(std::isnan(hash_accuracy("#### 4", Json::object())));
  CHECK(hash_format("2 + 2 = 4\n#### 4\n") == 1.0);
  CHECK(hash_format("#### -1,234.5") == 1.0);
  CHECK(hash_format("2 + 2 = 4 #### 4") == 0.0);
  CHECK(hash_format("#### 4\nor\n#### 5") == 0.0);
  CHECK(hash_format("#### four") == 0.0);
  CHECK(hash_format("#### 4 apples") == 0.0);
  CHECK(hash_format("####") == 0.0);
}

TEST_CASE("a very long completion needs no deep stack") {
  const std::string filler(2'000'000, '<');
  CHECK(soft_format("<reasoning>" + filler + "</reasoning><answer>1</answer>") == 0.25);
  CHECK(strict_format("<reasoning>\n" + filler + "\n</reasoning>\n<answer>\n1\n</answer>") == 0.5);
}
