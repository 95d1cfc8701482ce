#include <cmath>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <nlohmann/json.hpp>
#include <support/catch.hpp>
#include <support/damage.hpp>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/maths/answer.hpp>

using namespace rlalgo;

namespace {

// 1 right, 0 wrong, -1 not known.
int judged(const std::string& solution, const std::string& completion) {
  const auto gold = maths::solution_answer(solution);
  if (!gold) return -1;
  const auto right = maths::agrees(*gold, maths::completion_answer(completion));
  return right ? static_cast<int>(*right) : -1;
}
int boxed(const std::string& gold, const std::string& answer) {
  return judged("$" + gold + "$", "\\boxed{" + answer + "}");
}

}  // namespace

TEST_CASE("two thousand answers are judged as trl.rewards.accuracy_reward judges them") {
  std::ifstream file(std::string(rlalgo::support::test_dir) + "/golden/reward/trl_rewards.json");
  const auto cases = nlohmann::json::parse(file).at("accuracy");
  REQUIRE(cases.size() > 2000);
  for (const auto& row : cases) {
    const int expected = row[2].is_null() ? -1 : static_cast<int>(row[2].get<double>());
    INFO("solution " << row[0] << ", completion " << row[1]);
    CHECK(judged(row[0], row[1]) == expected);
  }
}

// In each of these trl 1.8 with math-verify 0.9 says otherwise (docs/departures.md).
TEST_CASE("answers that are right are right, whatever math-verify makes of them") {
  for (const auto& [gold, answer] :
       std::vector<std::pair<std::string, std::string>>{{"5000", "5\\,000"},                // read as 5·0
                                                        {"\\langle 1,2\\rangle", "(1,2)"},  // read as 1.2
                                                        {"e^{i\\pi}", "-1"},                // i is a plain symbol
                                                        {"(1+i)(1-i)", "2"},
                                                        {"\\lg 1000", "3"},       // read as 1000
                                                        {"2x\\ge 2", "x\\ge 1"},  // inequalities are not scaled
                                                        {"72.0", "\\text{72}"},   // a text is not a number
                                                        {"12.5\\%", "\\frac{25}{2}\\%"},
                                                        {"\\emptyset", "\\varnothing"}}) {
    INFO(gold << " and " << answer);
    CHECK(boxed(gold, answer) == 1);
  }
  // A bare formula is a formula; the first number in it is not the answer.
  CHECK(judged("2\\sqrt{3}", "\\boxed{\\sqrt{12}}") == 1);
  CHECK(judged("2\\sqrt{3}", "\\boxed{2}") == 0);
  CHECK(judged("50\\%", "\\boxed{0.5}") == 1);
}

TEST_CASE("a solution that is not read is not known, unless the texts agree") {
  for (const char* gold : {"\\int_0^1 x dx", "\\sum_{k=1}^{3} k", "\\lim_{x\\to 0} x", "0.\\overline{3}",
                           "1+2+\\cdots+10", "\\begin{cases}x=1\\\\y=2\\end{cases}"}) {
    INFO(gold);
    CHECK(boxed(gold, "6") == -1);
    CHECK(boxed(gold, gold) == 1);
  }
  CHECK(judged("no number here", "\\boxed{6}") == -1);
  CHECK(judged("", "\\boxed{6}") == -1);
  // The completion's side: wrong.
  CHECK(boxed("6", "\\sum_{k=1}^{3} k") == 0);
}

TEST_CASE("exactness") {
  CHECK(boxed("2^{100}", "1267650600228229401496703205376") == 1);
  CHECK(boxed("2^{100}", "1267650600228229401496703205377") == 0);
  CHECK(boxed("\\frac{1}{3}", "0.333333") == 1);
  CHECK(boxed("\\frac{1}{3}", "0.33333") == 0);
  CHECK(boxed("1.0000001", "1") == 0);
  CHECK(boxed("0.1+0.2", "0.3") == 1);
  CHECK(boxed("(x+1)^{20}", "(1+x)^{20}") == 1);
  CHECK(boxed("(x+1)^{20}", "x^{20}+1") == 0);
  CHECK(boxed("\\sqrt{x^2}", "x") == 0);
  CHECK(boxed("50!", "49!\\cdot 50") == 1);
  CHECK(boxed("9^{9^{9^{9}}}", "9^{9^{9^{8}}}") == 0);
  CHECK(boxed("\\frac{1}{0}", "1") == 0);
  CHECK(boxed("\\frac{x}{0}", "\\frac{y}{0}") == 0);
}

TEST_CASE("sets of numbers, however they are written") {
  CHECK(boxed("\\mathbb{R}\\setminus\\{0\\}", "(-\\infty,0)\\cup(0,\\infty)") == 1);
  CHECK(boxed("\\mathbb{R}\\setminus\\{0\\}", "(-\\infty,\\infty)") == 0);
  CHECK(boxed("[0,3]\\cap(1,5)", "(1,3]") == 1);
  CHECK(boxed("(0,1)", "(0, 1)") == 1);
  CHECK(boxed("0,125", "0.125") == 1);
  CHECK(boxed("0,5", "5,0") == 1);
  CHECK(boxed("[1,2]\\cup[2,3]", "[1,3]") == 1);
  CHECK(boxed("1\\le x<2", "[1,2)") == 1);
  CHECK(boxed("1\\le x<2", "[1,2]") == 0);
  CHECK(boxed("x>\\sqrt{2}", "(\\sqrt{2},\\infty)") == 1);
  CHECK(boxed("1,2,2", "2,1") == 1);
  CHECK(boxed("1,2,3", "1,2") == 0);
}

TEST_CASE("any text is read in bounded time and depth") {
  const core::PhiloxKey key{.seed = 7, .stream = core::Stream::test};
  const std::vector<std::string> pieces = {"\\boxed{",
                                           "}",
                                           "{",
                                           "$",
                                           "$$",
                                           "\\[",
                                           "\\]",
                                           "\\(",
                                           "\\)",
                                           "\\frac",
                                           "\\sqrt",
                                           "^",
                                           "_",
                                           "1",
                                           "2.5",
                                           "x",
                                           "answer",
                                           "final answer is ",
                                           ",",
                                           ";",
                                           "(",
                                           ")",
                                           "[",
                                           "]",
                                           "\\{",
                                           "\\}",
                                           "|",
                                           "\\pm",
                                           "=",
                                           "<",
                                           "\\text{",
                                           "\\%",
                                           "%",
                                           " and ",
                                           "\n",
                                           "!",
                                           "\\sin",
                                           "\\begin{pmatrix}",
                                           "\\\\",
                                           "&",
                                           "\\end{pmatrix}",
                                           "\\cup",
                                           "-",
                                           "+",
                                           "\\",
                                           "\xE2\x88\x92",
                                           "\xFF",
                                           "/",
                                           "9999999999"};
  const auto [first, count] = support::fuzz_inputs(20'000);
  for (std::uint64_t n = first; n < first + count; ++n) {
    std::string text;
    for (std::uint64_t i = 0; i < 1 + n % 24; ++i)
      text += pieces[static_cast<std::size_t>(core::uniform(key, n, i) * static_cast<double>(pieces.size()))];
    const auto gold = maths::solution_answer(text);
    (void)maths::completion_answer(text);
    if (gold && gold->read()) (void)maths::agrees(*gold, maths::completion_answer("\\boxed{" + text + "}"));
  }
  for (const std::string piece :
       {"(", "{", "$", "\\[", "\\boxed{", "\\frac{", "-", "^{", "|", "((x)", "\\pm 1,", "x!", "1,", "\\sqrt"}) {
    std::string text = "$";
    while (text.size() < 20000) text += piece;
    (void)maths::solution_answer(text + "$");
    (void)maths::completion_answer("\\boxed{" + text + "}");
  }
  SUCCEED();
}

TEST_CASE("what an answer costs is bounded, and what is given up is said") {
  std::string numbers, sums;
  for (int i = 0; i < 20000; ++i) numbers += std::to_string(i % 10) + " ";
  for (int i = 0; i < 20000; ++i) sums += "1+1 ";
  bool gave_up = false;
  CHECK(maths::solution_answer(numbers, &gave_up)->text == "9");
  CHECK(maths::solution_answer(numbers + "1+1x", &gave_up)->read());
  CHECK(maths::solution_answer(sums, &gave_up).has_value());
  CHECK_FALSE(gave_up);
  for (const std::string piece : {"\\[", "$$", "$", "\\boxed{", "\\boxed{1}", "answer: $", "\\dfrac{1}{2} and ",
                                  "final answer ", "1 1+", " [", "( ", "\\left"}) {
    std::string text;
    while (text.size() < 60'000) text += piece;
    (void)maths::solution_answer(text);
    (void)maths::completion_answer(text);
    (void)maths::completion_answer("\\boxed{" + text + "}");
  }
  std::string factorials;
  for (int i = 0; i < 190; ++i) factorials += (i > 0 ? "," : "") + std::string("99") + std::to_string(100 + i) + "!";
  const auto gold = maths::solution_answer("$" + factorials + "$");
  REQUIRE(gold);
  REQUIRE(gold->read());
  CHECK(maths::agrees(*gold, maths::completion_answer("\\boxed{" + factorials + ",5}"), &gave_up) == false);
  CHECK(gave_up);
}
