#include <cmath>
#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/sampler/answer_rows.hpp>
#include <rlalgo/trainer/offending_rows.hpp>

using namespace rlalgo;

TEST_CASE("offending rows are saved, named and never overwrite what is there") {
  const support::ScratchDirectory scratch;
  data::Answer answer;
  answer.row = 17;
  answer.ids = {1, 2, 3};
  answer.prompt_tokens = 1;
  answer.reference_row = -2.5;
  for (const char* name : {"offending_rows-step-3.jsonl", "offending_rows-step-3-2.jsonl"}) {
    const std::string error = support::raised_by([&] {
      trainer::raise_offending_rows<sampler::PairRows>("loss", {{&answer, std::nan(""), -INFINITY}}, 4, 3,
                                                       scratch.path(), data::ids_as_text);
    });
    CHECK(support::lacks(error, {"trainer.31: ", "1 of 4 answers, dataset rows 17", "step 3", name}) == "");
    std::ifstream in(scratch.path() / name);
    std::string line;
    REQUIRE(std::getline(in, line));
    CHECK(
        line ==
        R"({"row":17,"desirable":true,"loss":null,"log_prob":null,"reference_log_prob":-2.5,"prompt":"1","completion":"2 3","ids":[1,2,3]})");
  }
}
