#include <fstream>
#include <limits>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/run/samples_log.hpp>
#include <rlalgo/sampler/pair_extremes.hpp>

using namespace rlalgo;

namespace {

data::Answer answer(std::int64_t row, data::TokenId last) {
  data::Answer out;
  out.row = row;
  out.ids = {1, 2, last};
  out.prompt_tokens = 2;
  return out;
}

}  // namespace

TEST_CASE("the largest and the smallest margins are kept, in order, the first of equal ones") {
  const support::ScratchDirectory scratch;
  sampler::PairExtremes extremes(2);
  const double margins[] = {0.5, -1.0, 3.0, 3.0, std::numeric_limits<double>::quiet_NaN(), -1.0, 0.0};
  for (int i = 0; i < 7; ++i) extremes.add(margins[i], answer(i, 10 + i), answer(i, 20 + i));
  extremes.write(scratch.path(), 4, "evaluation", data::ids_as_text);
  std::ifstream in(scratch.path() / run::pairs_file);
  const data::Json out = data::Json::parse(in);
  CHECK(out["step"] == 4);
  CHECK(out["pairs"] == 7);
  REQUIRE(out["most"].size() == 2);
  CHECK(out["most"][0].dump() == R"({"row":2,"margin":3.0,"prompt":"1 2","chosen":"12","rejected":"22"})");
  CHECK(out["most"][1]["row"] == 3);
  CHECK(out["least"][0]["row"] == 1);
  CHECK(out["least"][1]["row"] == 5);

  // Saved in the middle of a pass and gone on with elsewhere: the same file.
  sampler::PairExtremes first(2), second(2);
  for (int i = 0; i < 4; ++i) first.add(margins[i], answer(i, 10 + i), answer(i, 20 + i));
  second.restore(data::Json::parse(first.state(data::ids_as_text).dump()));
  for (int i = 4; i < 7; ++i) second.add(margins[i], answer(i, 10 + i), answer(i, 20 + i));
  second.write(scratch.path(), 4, "evaluation", data::ids_as_text);
  std::ifstream resumed(scratch.path() / run::pairs_file);
  CHECK(data::Json::parse(resumed) == out);

  // Of two ranks, each with its share of the pass: the same file.
  sampler::PairExtremes head(2), tail(2);
  for (int i = 0; i < 7; ++i) (i < 3 ? head : tail).add(margins[i], answer(i, 10 + i), answer(i, 20 + i));
  head.merge(data::Json::parse(tail.state(data::ids_as_text).dump()));
  head.write(scratch.path(), 4, "evaluation", data::ids_as_text);
  std::ifstream merged(scratch.path() / run::pairs_file);
  CHECK(data::Json::parse(merged) == out);

  extremes.write(scratch.path(), 5, "train",
                 [](std::span<const data::TokenId> ids) { return std::string(ids.size(), 'x'); });
  std::ifstream again(scratch.path() / run::pairs_file);
  CHECK(data::Json::parse(again)["most"][0]["prompt"] == "xx");
}

TEST_CASE("a saved pass keeps infinite margins and text that is cut inside a character") {
  const double infinity = std::numeric_limits<double>::infinity();
  sampler::PairExtremes first, second;
  first.add(infinity, answer(0, 3), answer(0, 4));
  first.add(-infinity, answer(1, 3), answer(1, 4));
  const data::Decode half = [](std::span<const data::TokenId>) { return std::string("a\xC3"); };
  second.restore(data::Json::parse(first.state(half).dump()));
  second.add(1.0, answer(2, 3), answer(2, 4));
  CHECK(second.seen() == 3);
  const data::Json state = second.state(half);
  CHECK(state["most"][0][0] == 1);
  CHECK(state["most"][0][1]["row"] == 0);
  CHECK(state["most"][2][0] == -1);
  CHECK(state["least"][1][1]["row"] == 2);
  CHECK(state["least"][0][1]["prompt"] == "a\xEF\xBF\xBD");
}
