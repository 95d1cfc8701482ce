#include <rlalgo/model/router_load.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

using Ids = std::vector<std::int32_t>;

model::TokenTree tree_of(const std::vector<std::pair<Ids, Ids>>& rows, bool share = true) {
  std::vector<model::Sequence> views;
  for (const auto& [prompt, completion] : rows) views.push_back({prompt, completion});
  return model::build_tree(views, {.share = share});
}

const std::vector<std::pair<Ids, Ids>> shared_rows = {
    {{1, 2, 3}, {4, 5}}, {{1, 2, 3}, {4, 6, 7}}, {{1, 2, 3}, {4}}, {{9}, {1, 2}}, {{8, 8}, {}}};

}  // namespace

TEST_CASE("the last token of each row is laid out, and every token knows how many rows hold it") {
  const auto tree = tree_of(shared_rows);
  const auto whole = model::with_last_tokens(tree);
  CHECK(whole.source == tree.source);
  CHECK(whole.target == tree.target);
  CHECK(whole.tokens() == tree.tokens() + 4);
  CHECK_NOTHROW(model::plan_attention(whole));
  const auto rows = model::rows_of_tokens(whole);
  double sum = 0.0;
  for (const double one : rows) sum += one;
  CHECK(sum == 5 + 6 + 4 + 3);  // lengths of the rows with a completion
  // 1 2 3 is held by three rows; the last tokens by one each.
  for (std::size_t t = 0; t < whole.ids.size(); ++t)
    if (whole.positions[t] < 3 && whole.ids[t] == whole.positions[t] + 1 && t < 4) CHECK(rows[t] == 3.0);
  CHECK(std::vector<double>(rows.end() - 4, rows.end()) == std::vector<double>(4, 1.0));
}

TEST_CASE("balance and its gradient by hand") {
  // Two tokens, the first of two rows; experts {0, 1} of 3 with k = 1.
  const auto p = at::tensor({0.5, 0.3, 0.2, 0.1, 0.8, 0.1}, at::kDouble).view({2, 3});
  const model::Routing routing{p, at::tensor({std::int64_t{0}, std::int64_t{1}}).view({2, 1}), {}};
  model::RouterLoad load(at::tensor({2.0, 1.0}, at::kDouble), 0.5);
  load.add(routing);
  load.complete();
  load.add(routing);  // a layer that is computed again
  // f = (2, 1, 0)/3, P = (1.1, 1.4, 0.5)/3
  CHECK(load.balance().item<double>() == Approx(3.0 * (2.0 * 1.1 + 1.0 * 1.4) / 9.0));
  const auto grad = load.gradient();
  CHECK(grad[0][0].item<double>() == Approx(0.5 * 3.0 * (2.0 / 3.0) * 2.0 / 3.0));
  CHECK(grad[1][1].item<double>() == Approx(0.5 * 3.0 * (1.0 / 3.0) * 1.0 / 3.0));
  CHECK(grad[0][2].item<double>() == 0.0);
}

TEST_CASE("the load-balancing loss and its gradient are those of transformers") {
  for (const std::string name : {"qwen3_moe", "qwen3_moe_v5", "qwen2_moe", "mixtral", "qwen3_5_moe", "qwen3_next"}) {
    for (const bool checkpointed : {false, true}) {
      INFO(name);
      const auto folder = std::filesystem::path(rlalgo::support::test_dir) / "golden/model" / name;
      const auto policy = model::load_decoder(folder);
      policy->set_checkpointing(checkpointed);
      const auto expected = model::read_safetensors(folder / "expected.safetensors");
      const at::Tensor ids = expected.at("ids.1");
      Ids all;
      for (std::int64_t i = 0; i < ids.numel(); ++i)
        all.push_back(static_cast<std::int32_t>(ids[i].item<std::int64_t>()));
      Ids other(all.begin() + 3, all.begin() + 11);
      other.push_back(60);
      const Ids prompt(all.begin(), all.begin() + 3);
      const auto scores =
          policy->score(tree_of({{prompt, {all.begin() + 3, all.end()}}, {prompt, other}}), {.balance_weight = 0.25});
      REQUIRE(scores.balance.defined());
      CHECK(scores.balance.item<double>() == Approx(expected.at("aux_loss").item<double>()));
      (scores.log_prob.sum() * 0.0).backward();
      std::size_t checked = 0;
      for (const auto& p : policy->parameters()) {
        if (!expected.contains("aux_grad." + p.name)) continue;
        ++checked;
        CHECK((p.value.grad() - expected.at("aux_grad." + p.name) * 0.25).abs().max().item<double>() < 1e-6);
      }
      CHECK(checked > 0);
    }
  }
}

TEST_CASE("balance does not depend on what a tree shares, and changes no log-prob") {
  for (const char* type : {"qwen3_moe", "qwen2_moe", "mixtral"}) {
    const auto policy =
        model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 3, at::kDouble);
    std::vector<at::Tensor> gradients[2];
    double balance[2];
    at::Tensor log_prob;
    for (const bool share : {false, true}) {
      const auto scores = policy->score(tree_of(shared_rows, share), {.balance_weight = 0.7});
      (scores.log_prob.sum() * 0.0).backward();
      balance[share ? 1 : 0] = scores.balance.item<double>();
      log_prob = scores.log_prob.detach();
      for (auto& p : policy->parameters()) {
        gradients[share ? 1 : 0].push_back(p.value.grad().clone());
        p.value.mutable_grad() = at::Tensor();
      }
    }
    CHECK(balance[0] == Approx(balance[1]).epsilon(1e-6));
    for (std::size_t i = 0; i < gradients[0].size(); ++i) CHECK(gradients[0][i].allclose(gradients[1][i], 1e-5, 1e-7));
    CHECK(policy->score(tree_of(shared_rows), {}).log_prob.allclose(log_prob, 1e-9, 1e-9));
    CHECK_FALSE(policy->score(tree_of(shared_rows), {}).balance.defined());
  }
}
