#include <rlalgo/model/lent_weights.hpp>

#include <memory>
#include <vector>

#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

class Gate : public model::LayerGate {
 public:
  void acquire(const Visit& /*visit*/) override {}
  void release(const Visit& /*visit*/) noexcept override {}
  void gradient_ready(std::int64_t /*layer*/) override {}
};

// Has twice what the tensors hold.
class Lender final : public Gate, public model::WeightLender {
 public:
  [[nodiscard]] tensor::Tensor whole(const tensor::Tensor& weight) override {
    ++asked;
    return weight.mul(2.0);
  }
  int asked = 0;
};

class Gated final : public model::Policy {
 public:
  model::Scores score(const model::TokenTree& /*tree*/, const model::ScoreOptions& /*options*/) override { return {}; }
  std::vector<model::Parameter> parameters() override { return {}; }
  bool set_gate(std::shared_ptr<model::LayerGate> gate) override {
    gate_ = std::move(gate);
    return true;
  }
  [[nodiscard]] std::shared_ptr<model::LayerGate> gate() const override { return gate_; }

 private:
  std::shared_ptr<model::LayerGate> gate_;
};

tensor::Tensor three() {
  return tensor::from_values(std::vector<float>{1.0F, 2.0F, 3.0F}, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace

TEST_CASE("a weight is what its gate fetches, and itself where the gate fetches nothing") {
  const tensor::Tensor weight = three();
  Gated policy;
  CHECK(model::whole(policy, weight).is_same(weight));
  policy.set_gate(std::make_shared<Gate>());
  CHECK(model::whole(policy, weight).is_same(weight));
  const auto source = std::make_shared<Lender>();
  policy.set_gate(source);
  CHECK(model::whole(policy, weight).equal(weight.mul(2.0)));
  const model::PendingTensor one = model::pending(policy, "w", weight);
  CHECK(source->asked == 1);  // not before it is made
  CHECK((one.name == "w" && one.dtype == at::kFloat && one.shape == std::vector<std::int64_t>{3} && one.bytes() == 12));
  CHECK(one.make().equal(weight.mul(2.0)));
  CHECK(source->asked == 2);
}

TEST_CASE("tensors that exist serve where pending ones are asked for") {
  const std::vector<model::NamedTensor> tensors = {{"a", three()}, {"b", three().to(at::kHalf)}};
  const model::PendingTensors list = tensors;
  REQUIRE(list.size() == 2);
  CHECK((list[1].name == "b" && list[1].bytes() == 6));
  CHECK(list[0].make().is_same(tensors[0].second));
}
