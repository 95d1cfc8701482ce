#include <support/scratch.hpp>

#include <rlalgo/serve/answer_budget.hpp>

using namespace rlalgo;
using serve::AnswerForm;
using support::lacks;
using support::raised_by;

TEST_CASE("an answer is refused with its size, or waits for others'") {
  const serve::AnswerBudget budget(1'000'000'000);
  CHECK(lacks(raised_by([&] { (void)budget.hold(2.3e9, "n"); }), {"serve.28", "2300 MB", "at most 1000 MB", "at n"}) ==
        "");
  auto held = budget.hold(6e8, "n");
  CHECK(lacks(raised_by([&] { (void)budget.hold(6e8, "n"); }), {"serve.9", "600 MB and 600 MB more"}) == "");
  held.reset();
  held = budget.hold(6e8, "n");
  CHECK(budget.hold(4e8, "n") != nullptr);
  CHECK(serve::AnswerBudget().bytes() > 1e6);
}

TEST_CASE("log-probs of alternatives are what makes answers large") {
  const double plain = serve::answer_bytes({.tokens = 4096.0 * 200});
  CHECK(plain < 1e8);
  CHECK(serve::answer_bytes({.tokens = 4096.0 * 200, .log_probs = AnswerForm::completion, .alternatives = 20}) > 2e9);
  CHECK(serve::answer_bytes({.tokens = 4096.0 * 200, .log_probs = AnswerForm::chat, .alternatives = 20}) > 5e9);
  CHECK(serve::answer_bytes({.tokens = 90000, .log_probs = AnswerForm::ranked, .alternatives = 447}) > 2e9);
  CHECK(serve::answer_bytes({.tokens = 64.0 * 2048, .log_probs = AnswerForm::binary, .alternatives = 100}) < 5e8);
}
