#include <rlalgo/feature/text_matching.hpp>

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/model/anchored_tree.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/token_tree.hpp>

using namespace rlalgo;
using feature::Pooling;
using feature::TextGroup;
using feature::TokenIds;

namespace {

feature::FeatureNetwork network() {
  std::shared_ptr<model::Decoder> decoder =
      model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 3, at::kDouble);
  return {decoder, {1, 2}};
}

std::vector<double> plain(const feature::FeatureNetwork& net, const TokenIds& ids, Pooling pooling, std::int64_t prompt,
                          bool unit) {
  model::TokenTree tree;
  (void)model::append_document(tree, ids, {});
  auto out = net(tree).pooled(feature::stretches(pooling, static_cast<std::int64_t>(ids.size()), prompt),
                              [](std::int64_t t) { return t; });
  if (unit) feature::normalize(out);
  return out;
}

void check(const TextGroup& group) {
  const auto net = network();
  for (const Pooling pooling : {Pooling::last_token, Pooling::mean_pooling, Pooling::completion_mean, Pooling::concat})
    for (const bool unit : {false, true}) {
      std::vector<std::vector<double>> features;
      for (const TokenIds& sample : group.samples)
        features.push_back(plain(net, sample, pooling, group.prompt_length, unit));
      const auto expected = feature::gram(features, plain(net, group.truth, pooling, group.prompt_length, unit));
      const auto found = feature::text_gram(net, group, pooling, unit);
      for (std::size_t i = 0; i < expected.among.size(); ++i)
        CHECK(found.among[i] == Approx(expected.among[i]).epsilon(1e-11));
      for (std::size_t i = 0; i < group.samples.size(); ++i)
        CHECK(found.with_truth[i] == Approx(expected.with_truth[i]).epsilon(1e-11));
      CHECK(found.truth == Approx(expected.truth).epsilon(1e-11));
    }
}

// Words of one letter: a is 1, b is 2, …
feature::Texts letters() {
  return {.render = [](const reward::Json& prompt, const reward::Json&) { return prompt.get<std::string>(); },
          .encode =
              [](std::string_view text) {
                TokenIds out;
                for (const char c : text) out.push_back(c - 'a' + 1);
                return out;
              }};
}

struct Call {
  std::vector<reward::Json> stored;
  std::vector<const reward::Json*> prompts;
  std::vector<reward::Json> completions, columns;
  std::vector<std::string> texts;
  std::vector<std::span<const std::int32_t>> ids;
  reward::RewardLog log;

  Call(std::vector<std::string> of_groups, std::size_t copies, std::vector<std::string> answers,
       std::vector<std::string> truths)
      : texts(std::move(answers)) {
    for (const std::string& prompt : of_groups) stored.push_back(prompt);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      prompts.push_back(&stored[i / copies]);
      completions.push_back(texts[i]);
      columns.push_back({{"ground_truth", truths[i / copies]}});
      ids.emplace_back();
    }
  }
  reward::RewardCall view() {
    return {.prompts = prompts,
            .completions = completions,
            .texts = texts,
            .completion_ids = ids,
            .columns = columns,
            .step = 0,
            .log = &log};
  }
};

}  // namespace

TEST_CASE("features of texts with a common beginning are those of ordinary sequences") {
  check({.samples = {{5, 6, 7, 8, 9}, {5, 6, 7, 1}, {5, 6, 7, 8, 9, 2, 3}}, .truth = {5, 6, 7, 8}, .prompt_length = 3});
  check({.samples = {{5, 6}, {5, 6, 1, 1, 1}}, .truth = {5, 6, 1}, .prompt_length = 2});  // one is the common beginning
  check({.samples = {{5, 6, 7}, {1, 6, 7}}, .truth = {5, 6, 7, 8}, .prompt_length = 1});  // nothing in common
  check({.samples = {{5}, {5}}, .truth = {5}, .prompt_length = 1});
}

TEST_CASE("equal texts have equal features to the bit") {
  const TextGroup group{
      .samples = {{5, 6, 7, 8}, {5, 6, 9, 9, 9}, {5, 6, 7, 8}, {5, 6, 3}}, .truth = {5, 6, 3}, .prompt_length = 2};
  const auto g = feature::text_gram(network(), group, Pooling::mean_pooling, true);
  CHECK(g.among[0] == g.among[2]);
  CHECK(g.with_truth[0] == g.with_truth[2]);
  CHECK(g.with_truth[3] == g.truth);
}

TEST_CASE("a completion whose environment failed is not in its group") {
  const feature::TextMatching matching(network(), letters(), {});
  const auto values = [&](Call call, std::vector<std::uint8_t> failed) {
    auto view = call.view();
    view.failed = failed;
    const auto rewards = feature::matching_rewards(matching);
    auto out = (*rewards.alignment)(view);
    const auto diversity = (*rewards.diversity)(view);
    out.insert(out.end(), diversity.begin(), diversity.end());
    return std::pair(out, call.log.own_metrics);
  };
  const auto [few, few_metrics] = values(Call({"abc"}, 3, {"fg", "h", "ii"}, {"fg"}), {});
  const auto [gaps, gap_metrics] = values(Call({"abc"}, 4, {"fg", "", "h", "ii"}, {"fg"}), {0, 1, 0, 0});
  REQUIRE(gaps.size() == 8);
  for (std::size_t half : {0U, 1U}) {
    CHECK(std::isnan(gaps[4 * half + 1]));
    CHECK(gaps[4 * half] == few[3 * half]);
    CHECK(gaps[4 * half + 2] == few[3 * half + 1]);
    CHECK(gaps[4 * half + 3] == few[3 * half + 2]);
  }
  CHECK(gap_metrics == few_metrics);
  const auto [none, none_metrics] = values(Call({"abc"}, 2, {"", ""}, {"fg"}), {1, 1});
  for (const double value : none) CHECK(std::isnan(value));
  CHECK(std::isnan(none_metrics.at(0).second));
}

TEST_CASE("alignment and diversity as two reward functions") {
  Call call({"abc", "de"}, 2, {"fg", "h", "i", "i"}, {"fg", "jj"});
  const feature::TextMatching matching(network(), letters(), {.alignment_coef = 2.0, .diversity_coef = .5});
  const auto rewards = feature::matching_rewards(matching);
  const auto al = (*rewards.alignment)(call.view()), dv = (*rewards.diversity)(call.view());
  REQUIRE(al.size() == 4);
  CHECK(al[0] == Approx(2.0));  // the ground truth itself
  CHECK(al[2] == al[3]);
  CHECK(dv[2] == Approx(2.0));  // twice the same text
  const auto first = feature::match(feature::text_gram(
      network(), {.samples = {{1, 2, 3, 6, 7}, {1, 2, 3, 8}}, .truth = {1, 2, 3, 6, 7}, .prompt_length = 3},
      Pooling::last_token, true));
  CHECK(al[1] == Approx(first.alignment[1]));
  CHECK(dv[0] == Approx(first.diversity[0]));
  const auto logged = [&](const std::string& name) {
    for (const auto& [key, value] : call.log.own_metrics)
      if (key == name) return value;
    return std::nan("");
  };
  CHECK(logged("ebft/alignment") == Approx((al[0] + al[1] + al[2] + al[3]) / 4));
  CHECK(logged("ebft/reward") == Approx(2 * logged("ebft/alignment") - .5 * logged("ebft/diversity")));
  CHECK(logged("ebft/cfm_loss") > 0);
  REQUIRE(call.log.extras.size() == 1);  // what a reader of the samples is shown beside them
  CHECK(call.log.extras[0].first == "ground_truth");
  CHECK(call.log.extras[0].second == reward::Json{"fg", "fg", "jj", "jj"});
}

// Of three groups of two: every group has the turns of its own prompt, not those of another.
TEST_CASE("a conversation goes on with the turns of its own row") {
  Call call({"abc", "de", "gg"}, 2, {"fg", "h", "i", "j", "k", "l"}, {"a", "b", "c"});
  const std::vector<std::string> others = {"uu", "vvv", ""};
  for (std::size_t i = 0; i < 6; ++i)
    if (!others[i / 2].empty()) call.columns[i]["remaining_turns"] = reward::Json::array({others[i / 2]});
  feature::Texts texts = letters();
  std::vector<std::size_t> first_rows;
  texts.converse = [&](const reward::Json& prompt, const reward::Json&, const reward::Json& turns,
                       const std::string& truth, std::span<const std::string> answers, std::size_t first_row,
                       std::int64_t) {
    first_rows.push_back(first_row);
    std::vector<std::string> out = {prompt.get<std::string>() + truth + turns[0].get<std::string>()};
    for (const std::string& answer : answers)
      out.push_back(prompt.get<std::string>() + answer + turns[0].get<std::string>());
    return out;
  };
  const feature::TextMatching matching(network(), texts, {});
  std::vector<TokenIds> embedded;
  CHECK(matching(call.view(), &embedded).size() == 3);
  REQUIRE(embedded.size() == 6);
  const auto ids = [&](const std::string& text) { return letters().encode(text); };
  CHECK(embedded[0] == ids("abcfguu"));
  CHECK(embedded[1] == ids("abchuu"));
  CHECK(embedded[2] == ids("deivvv"));
  CHECK(embedded[3] == ids("dejvvv"));
  CHECK(embedded[4].empty());  // no conversation
  CHECK(first_rows == std::vector<std::size_t>{0, 2});
}

TEST_CASE("texts are cut, and a row without a ground truth is an error") {
  Call call({"abc"}, 2, {"defgh", "d"}, {"defg"});
  feature::TextMatching matching(network(), letters(), {.longest = 4});
  CHECK(matching(call.view()).front().alignment[0] == Approx(2.0));  // all of them are "abcd"
  CHECK(matching(call.view()).front().alignment[1] == Approx(2.0));
  for (const reward::Json& truth : {reward::Json(""), reward::Json(nullptr), reward::Json(3)}) {
    call.columns[0]["ground_truth"] = truth;
    CHECK_THROWS_WITH(matching(call.view()), Catch::Contains("[rlalgo.feature.5]"));
  }
  call.columns[0].erase("ground_truth");
  CHECK_THROWS_WITH(matching(call.view()), Catch::Contains("no column ground_truth"));
  CHECK_THROWS_WITH(feature::text_gram(network(), {.samples = {{}}, .truth = {1}}, Pooling::last_token, true),
                    Catch::Contains("[rlalgo.feature.6]"));
}
