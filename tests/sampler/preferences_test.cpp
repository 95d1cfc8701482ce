#include <set>

#include <stdexcept>

#include <support/catch.hpp>

#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/preferences.hpp>

using namespace rlalgo;
using sampler::Pairs;
using sampler::UnpairedAnswers;

static_assert(sampler::Sampler<Pairs>);
static_assert(sampler::Sampler<UnpairedAnswers>);

namespace {

// Example e: prompt {100 + e}, chosen {e}, rejected {e, e} (or, unpaired, completion {e} with alternating labels).
std::shared_ptr<const data::AnswerSet> examples(std::int32_t count, std::size_t unit = 2) {
  auto set = std::make_shared<data::AnswerSet>(unit);
  for (std::int32_t e = 0; e < count; ++e) {
    const std::vector<data::TokenId> prompt = {100 + e}, one = {e}, two = {e, e};
    set->append(e, unit == 2 || e % 2 == 0, prompt, one);
    if (unit == 2) set->append(e, false, prompt, two);
  }
  return set;
}

std::vector<std::int64_t> rows_of(const sampler::Batch<data::Answer>& batch) {
  std::vector<std::int64_t> out;
  for (const auto& part : batch.parts)
    for (const data::Answer* a : part) out.push_back(a->row);
  return out;
}

data::Answer row(const sampler::Batch<data::Answer>& batch, std::size_t i) {
  for (const auto& part : batch.parts) {
    if (i < part.size()) return *part[i];
    i -= part.size();
  }
  throw std::out_of_range("no such row");
}

}  // namespace

TEST_CASE("a step is micro_batch_size × gradient_accumulation_steps pairs; the last one is what is left") {
  Pairs pairs(examples(7), {.micro_batch_size = 2, .gradient_accumulation_steps = 2, .shuffle = false});
  CHECK(pairs.steps() == 2);
  const auto first = pairs.next(0);
  REQUIRE(first.parts.size() == 2);
  CHECK(first.parts[0].size() == 4);
  CHECK(rows_of(first) == std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 3, 3});
  CHECK(first.parts[1][0]->desirable);
  CHECK_FALSE(first.parts[1][1]->desirable);
  const auto second = pairs.next(1);
  CHECK(rows_of(second) == std::vector<std::int64_t>{4, 4, 5, 5, 6, 6});
  CHECK(second.parts[1].size() == 2);
  CHECK(rows_of(pairs.next(2)) == rows_of(first));
}

TEST_CASE("num_tokens grows over the run: every answer counts its prompt") {
  Pairs pairs(examples(3), {.micro_batch_size = 3});
  CHECK(pairs.next(0).metrics.value("num_tokens") == 3 * (2 + 3));
  CHECK(pairs.next(1).metrics.value("num_tokens") == 2 * 3 * (2 + 3));
}

TEST_CASE("every epoch is a permutation of its own, drawn from seed + epoch") {
  Pairs pairs(examples(6), {.micro_batch_size = 6, .seed = 42});
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    orders.push_back(rows_of(pairs.next(epoch)));
    CHECK(std::set(orders.back().begin(), orders.back().end()).size() == 6);
  }
  CHECK(orders[0] != orders[1]);
  Pairs later(examples(6), {.micro_batch_size = 6, .seed = 43});
  CHECK(rows_of(later.next(0)) == orders[1]);
  // torch.randperm(6) with manual_seed(42)
  std::mt19937 generator(42);
  const auto expected = core::permutation(6, generator);
  for (std::size_t i = 0; i < 6; ++i) CHECK(orders[0][2 * i] == static_cast<std::int64_t>(expected[i]));
}

TEST_CASE("the mismatched completion is that of the row before it in the step, whatever the micro-batch") {
  for (const std::int64_t micro : {1, 2, 4}) {
    UnpairedAnswers rows(
        examples(5, 1),
        {.micro_batch_size = micro, .gradient_accumulation_steps = 4 / micro, .shuffle = false, .mismatched = true});
    const auto batch = rows.next(0);
    CHECK(row(batch, 0).mismatched == std::vector<data::TokenId>{3});
    CHECK(row(batch, 1).mismatched == std::vector<data::TokenId>{0});
    CHECK(row(batch, 3).mismatched == std::vector<data::TokenId>{2});
    CHECK(row(rows.next(1), 0).mismatched == std::vector<data::TokenId>{4});  // alone: its own
  }
}

// As TRL's KTO collator: KL_input_ids = (prompt + the whole completion of the row before)[:max_length].
TEST_CASE("a mismatched completion is the whole one, cut behind the prompt it stands beside") {
  auto set = std::make_shared<data::AnswerSet>(1);
  using Ids = std::vector<data::TokenId>;
  set->append(0, true, Ids{1, 1, 1}, Ids{2}, Ids{3, 4, 5});
  set->append(1, false, Ids{6}, Ids{7, 8, 9});
  UnpairedAnswers rows(set, {.micro_batch_size = 2, .shuffle = false, .mismatched = true, .max_length = 4});
  auto batch = rows.next(0);
  CHECK(row(batch, 0).mismatched == Ids{7});
  CHECK(row(batch, 1).mismatched == Ids{2, 3, 4});
  UnpairedAnswers any(set, {.micro_batch_size = 2, .shuffle = false, .mismatched = true});
  batch = any.next(0);
  CHECK(row(batch, 0).mismatched == Ids{7, 8, 9});
  CHECK(row(batch, 1).mismatched == Ids{2, 3, 4, 5});
}

TEST_CASE("a step of one label warns") {
  UnpairedAnswers rows(examples(4, 1), {.micro_batch_size = 1, .shuffle = false});
  REQUIRE(rows.next(0).warnings.size() == 1);
  CHECK(rows.next(1).warnings[0].find("undesirable") != std::string::npos);
  UnpairedAnswers mixed(examples(4, 1), {.micro_batch_size = 2, .shuffle = false});
  CHECK(mixed.next(0).warnings.empty());
}

TEST_CASE("a resumed sampler goes on as if nothing had happened") {
  const sampler::PreferencesConfig config{.micro_batch_size = 2, .seed = 7};
  Pairs one(examples(5), config), other(examples(5), config);
  for (std::int64_t step = 0; step < 4; ++step) (void)one.next(step);
  const auto state = one.state();
  const auto expected = one.next(4);
  other.restore(state);
  const auto got = other.next(4);
  CHECK(rows_of(got) == rows_of(expected));
  CHECK(got.metrics.value("num_tokens") == expected.metrics.value("num_tokens"));
  Pairs changed(examples(6), config);
  CHECK_THROWS_WITH(changed.restore(state), Catch::StartsWith("[rlalgo.sampler.21]"));
}

TEST_CASE("impossible batches are sampler.20") {
  const auto message = Catch::StartsWith("[rlalgo.sampler.20]");
  CHECK_THROWS_WITH(Pairs(std::make_shared<data::AnswerSet>(2), {}), message);
  CHECK_THROWS_WITH(Pairs(examples(2, 1), {}), message);
  CHECK_THROWS_WITH(Pairs(examples(2), {.micro_batch_size = 0}), message);
}
