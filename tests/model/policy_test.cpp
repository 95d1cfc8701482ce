#include <rlalgo/model/policy.hpp>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

// The smallest policy: one logit per token, whatever came before.
class Unigram : public model::Policy {
 public:
  model::Scores score(const model::TokenTree& tree, const model::ScoreOptions& options) override {
    const at::Tensor all = (logits_ / options.temperature).log_softmax(0);
    return {all.index_select(0, at::tensor(tree.target)), {}};
  }
  std::vector<model::Parameter> parameters() override { return {{"logits", logits_}}; }

 private:
  at::Tensor logits_ = at::zeros({4}, at::kDouble).requires_grad_();
};

}  // namespace

TEST_CASE("a model without layers has no features") {
  Unigram unigram;
  const std::vector<std::int64_t> layers = {0};
  CHECK(rlalgo::support::lacks(rlalgo::support::raised_by([&] { (void)unigram.features({}, layers); }),
                               {"model.33", "no layers"}) == "");
}

TEST_CASE("a policy of a user's own is scored and differentiated through the interface") {
  Unigram unigram;
  model::Policy& policy = unigram;
  model::TokenTree tree;
  tree.ids = {0, 1};
  tree.positions = {0, 1};
  tree.segments = {{0, 2, -1, 0}};
  tree.source = {0, 1};
  tree.target = {1, 3};
  tree.row_begin = {0, 2};
  const auto scores = policy.score(tree, {});
  CHECK(scores.log_prob.allclose(at::full({2}, std::log(0.25), at::kDouble)));
  scores.log_prob.sum().backward();
  const auto parameters = policy.parameters();
  REQUIRE(parameters.size() == 1);
  CHECK(parameters[0].weight_decay);
  CHECK(parameters[0].value.grad().allclose(at::tensor({-0.5, 0.5, -0.5, 0.5}, at::kDouble)));
}
