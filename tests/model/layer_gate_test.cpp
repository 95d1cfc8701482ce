#include <rlalgo/model/layer_gate.hpp>

#include <stdexcept>
#include <string>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

class Recorder : public model::LayerGate {
 public:
  void acquire(const Visit& visit) override {
    if (fails) throw std::runtime_error("not there");
    calls += "acquire" + std::to_string(visit.layer) + " ";
  }
  void release(const Visit& visit) noexcept override { calls += "release" + std::to_string(visit.layer) + " "; }
  void gradient_ready(std::int64_t layer) override { calls += "ready" + std::to_string(layer) + " "; }

  std::string calls;
  bool fails = false;
};

}  // namespace

TEST_CASE("a scope acquires and releases, also when an error leaves it, and needs no gate") {
  Recorder gate;
  { const model::GateScope scope(&gate, {.layer = 3}); }
  CHECK(gate.calls == "acquire3 release3 ");
  CHECK_THROWS_AS(
      [&] {
        const model::GateScope scope(&gate, {.layer = 4});
        throw std::runtime_error("inside");
      }(),
      std::runtime_error);
  CHECK(gate.calls == "acquire3 release3 acquire4 release4 ");
  const model::GateScope none(nullptr, {.layer = 5});
}

TEST_CASE("what was not acquired is not released") {
  Recorder gate;
  gate.fails = true;
  CHECK_THROWS_AS(model::GateScope(&gate, {.layer = 1}), std::runtime_error);
  CHECK(gate.calls.empty());
}
