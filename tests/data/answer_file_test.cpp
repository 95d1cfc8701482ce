#include <fstream>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/answer_file.hpp>

using namespace rlalgo::data;

namespace {

AnswerSet sample() {
  AnswerSet set(2);
  const std::vector<TokenId> prompt = {1, 2}, a = {3}, b = {4, 5};
  set.append(9, true, prompt, a);
  set.append(9, false, prompt, b);
  return set;
}

}  // namespace

TEST_CASE("prepared answers come back; another key is a miss") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto file = scratch.path() / "deep" / "answers.bin";
  write_prepared(file, "key", {sample(), AnswerSet(2), {"a note", ""}});
  CHECK_FALSE(read_prepared(file, "other").has_value());
  CHECK_FALSE(read_prepared(scratch.path() / "absent", "key").has_value());
  const auto back = read_prepared(file, "key");
  REQUIRE(back.has_value());
  CHECK(back->train.examples() == 1);
  CHECK(back->evaluation.empty());
  CHECK(back->notes == std::vector<std::string>{"a note", ""});
  CHECK(back->train.answer(1).ids == std::vector<TokenId>{1, 2, 4, 5});
  CHECK(back->train.answer(1).prompt_tokens == 2);
  CHECK(back->train.answer(0).row == 9);
  CHECK(identity_of(back->train) == identity_of(sample()));
}

TEST_CASE("what was cut off completions is kept, and part of the identity") {
  const rlalgo::support::ScratchDirectory scratch;
  const std::vector<TokenId> prompt = {1, 2}, answer = {3}, rest = {4, 5};
  AnswerSet cut(1), other(1);
  cut.append(0, true, prompt, answer, rest);
  cut.append(1, false, rest, prompt);
  other.append(0, true, prompt, answer);
  other.append(1, false, rest, prompt);
  CHECK(identity_of(cut) != identity_of(other));
  const auto file = scratch.path() / "answers.bin";
  write_prepared(file, "k", {cut, AnswerSet(1), {}});
  const auto back = read_prepared(file, "k");
  REQUIRE(back.has_value());
  CHECK(identity_of(back->train) == identity_of(cut));
  CHECK(back->train.answer(0).ids == std::vector<TokenId>{1, 2, 3});
  CHECK(back->train.whole_completion(0).size() == 3);
  CHECK(back->train.answer(1).ids == std::vector<TokenId>{4, 5, 1, 2});
}

TEST_CASE("a damaged file is data.27") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto file = scratch.path() / "answers.bin";
  write_prepared(file, "key", {sample(), AnswerSet(2), {}});
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK_THROWS_WITH(read_prepared(file, "key"), Catch::StartsWith("[rlalgo.data.27]"));
  std::ofstream(file, std::ios::binary) << bytes.substr(0, 30);
  CHECK_THROWS_WITH(read_prepared(file, "key"), Catch::StartsWith("[rlalgo.data.27]"));
}

TEST_CASE("a changed letter of a note is found by the digest alone") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto file = scratch.path() / "answers.bin";
  write_prepared(file, "key", {sample(), AnswerSet(2), {"a note"}});
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  bytes[bytes.find("a note")] = 'b';
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK_THROWS_WITH(read_prepared(file, "key"), Catch::StartsWith("[rlalgo.data.27]"));
}

TEST_CASE("reference columns fit the data they were made for") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto file = scratch.path() / "reference.bin";
  write_reference(file, "k", {{-1.5, -2.5}, {}});
  CHECK(read_reference(file, "k", 2)->rows == std::vector<double>{-1.5, -2.5});
  CHECK_THROWS_WITH(read_reference(file, "k", 3), Catch::StartsWith("[rlalgo.data.27]"));
  write_reference(file, "k", {{-1.5, -2.5}, {-1.0}});
  CHECK_THROWS_WITH(
      read_reference(file, "k", 2),
      Catch::StartsWith("[rlalgo.data.27]") && Catch::Contains("found 2 log-probs, 1 of mismatched completions"));
}

TEST_CASE("the identity is that of tokens, boundaries and labels") {
  AnswerSet shifted(2);
  const std::vector<TokenId> prompt = {1}, a = {2, 3}, b = {2, 4, 5};
  shifted.append(9, true, prompt, a);
  shifted.append(9, false, prompt, b);
  CHECK(identity_of(shifted) != identity_of(sample()));
}

TEST_CASE("sets that share ids are written each with its own, and are read by mapping") {
  const rlalgo::support::ScratchDirectory scratch;
  AnswerSet set(1);
  for (TokenId i = 0; i < 400; ++i)
    set.append(i, i % 3 == 0, std::vector<TokenId>(700, i), std::vector<TokenId>(static_cast<std::size_t>(i), -i));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < 400; i += 3) order.push_back(399 - i);
  const AnswerSet picked = set.selected(order);
  const auto file = scratch.path() / "answers.bin";
  write_prepared(file, "k", {picked, set, {}});  // more than one block of the digest
  const auto back = read_prepared(file, "k");
  REQUIRE(back.has_value());
  CHECK(back->train.arena()->on_disk());
  CHECK(identity_of(back->train) == identity_of(picked));
  CHECK(identity_of(back->evaluation) == identity_of(set));
  CHECK(back->train.answer(1).ids == picked.answer(1).ids);
  CHECK(back->train.answer(1).prompt_tokens == 700);
  CHECK(back->train.row(1) == picked.row(1));
}
