#include <rlalgo/sampler/strided_blocks.hpp>

#include <cmath>
#include <memory>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>

using namespace rlalgo;
using sampler::StridedConfig;
using Blocks = sampler::StridedBlocks<inference::BlockEngine>;

namespace {

data::Document document(std::size_t length, std::optional<std::int64_t> prompt = {}) {
  data::Document out{.prompt_length = prompt};
  for (std::size_t i = 0; i < length; ++i) {
    out.ids.push_back(static_cast<data::TokenId>((i * i + length) % 23));
    out.loss_mask.push_back(1);
  }
  return out;
}

struct Run {
  std::shared_ptr<model::Decoder> policy =
      model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 3);
  inference::BlockEngine engine{policy->config(), policy->weights()};
  feature::FeatureNetwork network{std::shared_ptr<model::Policy>(policy->frozen_copy()), {0, 1, 1}};

  Blocks blocks(std::vector<data::Document> documents, StridedConfig config) {
    return {std::move(documents), engine, network, {}, config};
  }
};

StridedConfig small(std::int64_t documents, std::int64_t accumulated = 1) {
  return {.stride = 3,
          .context_length = 4,
          .generate_max_len = 2,
          .samples = 3,
          .likelihood = true,
          .micro_batch_size = documents,
          .gradient_accumulation_steps = accumulated,
          .shuffle = false};
}

double metric(const core::Metrics& m, const std::string& name) { return m.value("ebft/" + name); }

}  // namespace

TEST_CASE("anchors begin after context and prompt and end with the last whole window") {
  using Starts = std::vector<std::int64_t>;
  StridedConfig c{.stride = 4, .context_length = 2, .generate_max_len = 2};
  CHECK(sampler::block_starts(document(12), c) == Starts{2, 6, 10});
  CHECK(sampler::block_starts(document(11), c) == Starts{2, 6});
  CHECK(sampler::block_starts(document(4), c) == Starts{2});
  CHECK(sampler::block_starts(document(3), c).empty());
  CHECK(sampler::block_starts(document(0), c).empty());
  CHECK(sampler::block_starts(document(12, 5), c) == Starts{5, 9});
  CHECK(sampler::block_starts(document(12, 0), c) == Starts{2, 6, 10});
  c.min_completion_prefix = 3;
  CHECK(sampler::block_starts(document(12, 5), c) == Starts{8});
  CHECK(sampler::block_starts(document(12), c) == Starts{2, 6, 10});  // without a prompt there is no answer to wait in
  c = {.stride = 8, .context_length = 8, .generate_max_len = 8};
  CHECK(sampler::block_starts(document(1024), c).size() == 127);
}

TEST_CASE("a step has rewards and advantages for every sample of every block") {
  Run run;
  auto blocks = run.blocks({document(14), document(9, 6), document(5)}, small(3));
  const auto batch = blocks.next(0);
  REQUIRE(blocks.latest().size() == 3);
  double reward = 0, count = 0, alignment = 0, squares = 0, sum = 0;
  for (const auto& row : blocks.latest())
    for (const sampler::Block& block : row.blocks) {
      REQUIRE(block.samples.size() == 3);
      const auto expected = feature::LeaveOutPairs()(block.alignment, block.diversity);
      for (std::size_t j = 0; j < 3; ++j) {
        CHECK(block.samples[j].size() == 2);
        CHECK(block.reward[j] == Approx(block.alignment[j] - block.diversity[j]));
        CHECK(block.advantage[j] == Approx(expected[j]));
        reward += block.reward[j];
        alignment += block.alignment[j];
        sum += block.advantage[j];
        squares += block.advantage[j] * block.advantage[j];
        ++count;
      }
    }
  CHECK(count == 3 * (3 + 1));
  CHECK(blocks.latest()[2].blocks.empty());
  CHECK(batch.parts.front().size() == 3);  // the last one trains its likelihood
  CHECK(metric(batch.metrics, "mean_reward") == Approx(reward / count));
  CHECK(metric(batch.metrics, "alignment") == Approx(alignment / count));
  CHECK(metric(batch.metrics, "num_blocks") == Approx(4.0 / 3));
  CHECK(metric(batch.metrics, "anchor_offset") == Approx(6.0));
  CHECK(metric(batch.metrics, "steps_without_blocks") == 0);
  CHECK(metric(batch.metrics, "advantages_std") ==
        Approx(std::sqrt((squares - sum * sum / count) / (count - 1))).epsilon(1e-9));
  CHECK(batch.warnings.empty());
}

TEST_CASE("documents without blocks") {
  Run run;
  StridedConfig config = small(1, 2);
  auto with = run.blocks({document(5), document(0)}, config);
  const auto batch = with.next(0);
  CHECK(batch.parts.size() == 1);  // the empty one has nothing to train
  CHECK(metric(batch.metrics, "steps_without_blocks") == 1);
  CHECK(metric(batch.metrics, "num_blocks") == 0);
  CHECK(batch.warnings.size() == 1);
  config.likelihood = false;
  auto without = run.blocks({document(5), document(0)}, config);
  const auto nothing = without.next(0);
  CHECK(nothing.parts.empty());
  CHECK(metric(nothing.metrics, "rl_loss") == 0);
  CHECK(metric(nothing.metrics, "ce_loss") == 0);
  CHECK(metric(nothing.metrics, "alignment") == 0);
  CHECK(metric(nothing.metrics, "cfm_loss") == 0);
}

TEST_CASE("a chunk whose texts do not see each other draws and rewards as its texts alone") {
  Run run;
  data::Document chunk = document(14);
  const data::Document second = document(9);
  chunk.ids.insert(chunk.ids.end(), second.ids.begin(), second.ids.end());
  chunk.loss_mask.resize(chunk.ids.size(), 1);
  StridedConfig config = small(1);
  using Starts = std::vector<std::int64_t>;
  CHECK(sampler::block_starts(chunk, config) == Starts{4, 7, 10, 13, 16, 19});
  chunk.texts = {0, 14};
  // 13 crosses the border; a start at 14 would have nothing before it.
  CHECK(sampler::block_starts(chunk, config) == Starts{4, 7, 10, 16, 19});
  config.context_length = 14;
  CHECK(sampler::block_starts(chunk, config) == Starts{17, 20});
  config = small(1);
  config.temperature = 0;  // equal draws whatever their random index
  auto whole = run.blocks({chunk}, config);
  (void)whole.next(0);
  const auto& blocks = whole.latest()[0].blocks;
  REQUIRE(blocks.size() == 5);
  auto first = run.blocks({document(14)}, config);
  (void)first.next(0);
  config.context_length = 2;
  auto other = run.blocks({second}, config);
  (void)other.next(0);
  const auto same = [](const sampler::Block& a, const sampler::Block& b, std::int64_t shift) {
    CHECK(a.start == b.start + shift);
    CHECK(a.samples == b.samples);
    for (std::size_t j = 0; j < a.alignment.size(); ++j) CHECK(a.alignment[j] == Approx(b.alignment[j]).epsilon(1e-5));
  };
  for (std::size_t k = 0; k < 3; ++k) same(blocks[k], first.latest()[0].blocks[k], 0);
  for (std::size_t k = 0; k < 2; ++k) same(blocks[3 + k], other.latest()[0].blocks[k], 14);
  CHECK(whole.latest()[0].mismatch.size() == 5);
}

TEST_CASE("padding alone, nothing at all, a text as long as its anchor: nothing that is not finite") {
  Run run;
  data::Document padding = document(14);
  padding.loss_mask.assign(14, 0);
  StridedConfig config = small(4);
  for (const auto whitening : {feature::Whitening::none, feature::Whitening::feature, feature::Whitening::sample}) {
    config.matching.whitening = whitening;
    for (const std::size_t length : {std::size_t{5}, std::size_t{14}}) {
      padding = document(length);
      padding.ids.assign(length, 2);
      padding.loss_mask.assign(length, 0);
      auto blocks = run.blocks({padding, document(0), document(4), document(1)}, config);
      const auto batch = blocks.next(0);
      for (const char* name : {"mean_reward", "alignment", "diversity", "cfm_loss", "num_blocks"})
        CHECK(std::isfinite(metric(batch.metrics, name)));
      CHECK(metric(batch.metrics, "steps_without_blocks") == (length == 5 ? 1 : 0));
      for (const auto& row : blocks.latest())
        for (const sampler::Block& block : row.blocks)
          for (const double a : block.advantage) CHECK(std::isfinite(a));
    }
  }
}

TEST_CASE("a split into micro-batches draws the same, and a step can be asked again") {
  Run run;
  std::vector<data::Document> documents;
  for (std::size_t i = 0; i < 8; ++i) documents.push_back(document(9 + i));
  auto whole = run.blocks(documents, small(4)), split = run.blocks(documents, small(1, 4));
  (void)whole.next(1);
  (void)split.next(0);
  const auto parts = split.next(1).parts;
  CHECK(parts.size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t k = 0; k < whole.latest()[i].blocks.size(); ++k) {
      CHECK(whole.latest()[i].blocks[k].samples == split.latest()[i].blocks[k].samples);
      CHECK(whole.latest()[i].blocks[k].advantage == split.latest()[i].blocks[k].advantage);
    }
  CHECK(whole.steps() == 2);
  const auto before = whole.latest()[0].blocks[0].samples;
  (void)whole.next(0);
  (void)whole.next(1);
  CHECK(whole.latest()[0].blocks[0].samples == before);
}

TEST_CASE("temperature 0 draws the same sample n times, with no advantage") {
  Run run;
  StridedConfig config = small(1);
  config.temperature = 0;
  for (const auto whitening : {feature::Whitening::none, feature::Whitening::feature}) {
    config.matching.whitening = whitening;
    auto blocks = run.blocks({document(14)}, config);
    (void)blocks.next(0);
    for (const sampler::Block& block : blocks.latest()[0].blocks) {
      CHECK(block.samples[0] == block.samples[1]);
      for (const double a : block.advantage) CHECK(std::abs(a) < 1e-12);
    }
  }
  config.temperature = 1.0;
  config.top_p = 0.0;
  auto top = run.blocks({document(14)}, config);
  (void)top.next(0);
  CHECK(top.latest()[0].blocks[0].samples[0] == top.latest()[0].blocks[0].samples[2]);
}

TEST_CASE("the cursor goes through a checkpoint") {
  Run run;
  auto one = run.blocks({document(14), document(12)}, small(1));
  (void)one.next(0);
  const auto state = one.state();
  CHECK(state.at("next_step") == 1);
  auto two = run.blocks({document(14), document(12)}, small(1));
  two.restore(state);
  CHECK(two.state() == state);
  CHECK_THROWS_WITH(run.blocks({document(14)}, small(1)).restore(state), Catch::Contains("[rlalgo.sampler.7]"));
  CHECK_THROWS_WITH(two.restore(nlohmann::ordered_json::object()), Catch::Contains("[rlalgo.sampler.7]"));
}

TEST_CASE("settings out of range") {
  Run run;
  const auto with = [&](auto change) {
    StridedConfig config = small(1);
    change(config);
    return run.blocks({document(14)}, config);
  };
  CHECK_THROWS_WITH(with([](StridedConfig& c) { c.stride = 0; }), Catch::Contains("[rlalgo.sampler.2]"));
  CHECK_THROWS_WITH(with([](StridedConfig& c) { c.generate_max_len = 0; }), Catch::Contains("generate_max_len"));
  CHECK_THROWS_WITH(with([](StridedConfig& c) { c.samples = 0; }), Catch::Contains("n_samples_per_prompt"));
  CHECK_THROWS_WITH(with([](StridedConfig& c) { c.top_p = 1.5; }), Catch::Contains("top_p"));
  CHECK_THROWS_WITH(with([](StridedConfig& c) { c.temperature = -1; }), Catch::Contains("temperature"));
  CHECK_THROWS_WITH(run.blocks({}, small(2)), Catch::Contains("[rlalgo.sampler.20]"));
}

TEST_CASE("the last step of an epoch takes the documents that are left") {
  Run run;
  std::vector<data::Document> documents;
  for (std::size_t i = 0; i < 7; ++i) documents.push_back(document(9 + i));
  auto blocks = run.blocks(documents, small(2, 2));
  CHECK(blocks.steps() == 2);
  CHECK(blocks.next(0).parts.size() == 2);
  const auto last = blocks.next(1);
  REQUIRE(blocks.latest().size() == 3);
  REQUIRE(last.parts.size() == 2);
  CHECK(last.parts[1].size() == 1);
  double count = 0;
  for (const sampler::StridedDocument& row : blocks.latest()) count += static_cast<double>(row.blocks.size());
  CHECK(metric(last.metrics, "num_blocks") == Approx(count / 3));
  CHECK(blocks.next(2).parts[0][0]->document->ids == documents[0].ids);
}
