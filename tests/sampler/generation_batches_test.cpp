#include <rlalgo/sampler/generation_batches.hpp>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

#include <support/catch.hpp>
#include <support/table_generator.hpp>

#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/rollouts.hpp>

#include "sampler/geometry_config.hpp"

using namespace rlalgo;
using rlalgo::support::completion;
using rlalgo::support::TableGenerator;
using sampler::Made;
using Plain = sampler::Rollouts<TableGenerator>;

namespace {

// A combinator of one's own: counts, gives the second prompt of every generation the first one's place, and can fail.
class Twice : public sampler::GenerationBatches<Twice> {
 public:
  using Generator = TableGenerator;
  explicit Twice(std::shared_ptr<Plain> source) : source_(std::move(source)) {}
  [[nodiscard]] const Plain& root() const { return *source_; }
  [[nodiscard]] std::unique_ptr<sampler::OpenGeneration> open(sampler::GenerationCall call) {
    if (call.number == fails_at) throw std::runtime_error("not now");
    call.prompts = root().prompts_of(call);
    call.prompts[1] = call.prompts[0];
    Made made = source_->produce(std::move(call));
    ++count;
    return std::make_unique<sampler::WholeGeneration>(std::move(made));
  }
  [[nodiscard]] bool draws_ahead() const { return false; }
  [[nodiscard]] std::function<sampler::Json()> capture() const {
    return [within = source_->capture(), count = count] {
      sampler::Json out = within();
      out["count"] = count;
      return out;
    };
  }
  void restore_source(const sampler::Json& state) {
    const auto restored = state.at("count").get<std::int64_t>();
    source_->restore_source(state);
    count = restored;
  }
  std::int64_t count = 0, fails_at = -1;

 private:
  std::shared_ptr<Plain> source_;
};

static_assert(sampler::GenerationSource<Twice> && sampler::GenerationSource<Plain>);
static_assert(sampler::Sampler<Twice> && sampler::Rewarded<Twice> && sampler::Generates<Twice>);

struct Bench {
  TableGenerator table{std::vector<std::vector<data::Completion>>(16, {completion({1, 0}), completion({2, 0})})};
  std::unique_ptr<Twice> sampler(std::int64_t a, std::int64_t s, std::int64_t mu = 1) {
    const sampler::RolloutsConfig c = rlalgo::support::geometry_config(2, a, s, mu, 2, false);
    return std::make_unique<Twice>(std::make_shared<Plain>(rlalgo::support::numbered_prompts(16), table,
                                                           std::vector<sampler::WeightedReward>(),
                                                           rlalgo::support::decode, c, [] { return std::int64_t{0}; }));
  }
};

std::vector<std::int64_t> rows_of(const sampler::RolloutBatch& batch) {
  std::vector<std::int64_t> out;
  for (const auto& part : batch.parts)
    for (const data::Episode* r : part) out.push_back(r->dataset_row - 100);
  return out;
}

}  // namespace

TEST_CASE("a combinator is a sampler: what it makes is cut into batches, with prompts of its own choice") {
  Bench bench;
  const auto sampler = bench.sampler(2, 2);
  CHECK(rows_of(sampler->next(0)) == std::vector<std::int64_t>{0, 0, 0, 0});
  CHECK(rows_of(sampler->next(1)) == std::vector<std::int64_t>{2, 2, 2, 2});
  CHECK(sampler->count == 2);
  CHECK(sampler->steps() == 8);
}

TEST_CASE("a half-trained generation returns with the prompts that it had, and the source with what it knew") {
  Bench bench;
  const auto sampler = bench.sampler(2, 2, 2);
  (void)sampler->next(0);
  const sampler::Json saved = sampler::Json::parse(sampler->state().dump());
  CHECK(saved["generation"]["prompts"] == sampler::Json{0, 0});
  const auto resumed = bench.sampler(2, 2, 2);
  resumed->restore(saved);
  CHECK(resumed->count == 1);
  CHECK(rows_of(resumed->next(1)) == std::vector<std::int64_t>{0, 0, 0, 0});
  CHECK(resumed->count == 1);
  sampler::Json bad = saved;
  bad["generation"]["prompts"] = {0, 99};
  CHECK_THROWS_WITH(bench.sampler(2, 2, 2)->restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
  bad["generation"]["prompts"] = {0};
  CHECK_THROWS_WITH(bench.sampler(2, 2, 2)->restore(bad), Catch::Contains("[rlalgo.sampler.7]"));
}

TEST_CASE("what a failed step had made is kept, saved and used by the next try") {
  Bench bench;
  const auto sampler = bench.sampler(4, 2);  // two generations a step
  (void)sampler->next(0);
  sampler->fails_at = 3;
  CHECK_THROWS_WITH(sampler->next(1), "not now");
  CHECK(sampler->count == 3);
  const sampler::Json saved = sampler::Json::parse(sampler->state().dump());
  REQUIRE(saved["kept"].size() == 1);
  CHECK(saved["kept"][0]["number"] == 2);
  for (const bool again : {false, true}) {
    const auto other = bench.sampler(4, 2);
    if (again) other->restore(saved);
    Twice& next = again ? *other : *sampler;
    next.fails_at = -1;
    const sampler::RolloutBatch batch = next.next(1);
    CHECK(rows_of(batch) == std::vector<std::int64_t>{4, 4, 4, 4, 6, 6, 6, 6});
    CHECK(next.count == 4);
    CHECK(batch.metrics.value("num_tokens") == 4 * 4 * 4);
    CHECK_FALSE(next.state().contains("kept"));
  }
}
