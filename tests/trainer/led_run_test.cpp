#include <rlalgo/trainer/led_run.hpp>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rlalgo/os/interruption.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>
#include <support/thread_world.hpp>

using namespace rlalgo;
using support::on_ranks;

namespace {

tensor::Tensor weights(std::vector<double> values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kFloat)).set_requires_grad(true);
}

}  // namespace

TEST_CASE("the other ranks do what rank 0's loop does, in its order, and end with its outcome") {
  std::mutex mutex;
  std::vector<std::string> said(3);
  on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
    std::string mine;
    run::Callbacks own;
    own.train_step = [&](std::int64_t step) {
      mine += " step" + std::to_string(step);
      return run::StepResult{};
    };
    own.evaluate = [&] {
      mine += " evaluate";
      return core::Metrics();
    };
    own.restore_state = [&](const std::filesystem::path& directory, const run::Json& state) {
      mine += " restore:" + directory.string() + ":" + state.dump();
    };
    own.save_model = [&](const std::filesystem::path&) { mine += world->rank() == 0 ? "" : " save"; };
    if (world->rank() == 0) {
      const run::Callbacks all = trainer::led(*world, own);
      all.restore_state("checkpoint-2", {{"version", 2}});
      all.train_step(2);
      all.evaluate();
      all.save_model("somewhere");
      all.train_step(3);
      trainer::end(*world, {.step = 4, .interrupted = true, .status = 143});
    } else {
      const run::Outcome outcome = trainer::follow(*world, own);
      RANK_CHECK(outcome.step == 4);
      RANK_CHECK(outcome.exit_code() == 143);
    }
    const std::lock_guard lock(mutex);
    said[static_cast<std::size_t>(world->rank())] = mine;
  });
  for (const std::string& one : said) CHECK(one == " restore:checkpoint-2:{\"version\":2} step2 evaluate step3");
}

TEST_CASE("a step that one rank gives up all give up, and rank 0 says the last word") {
  for (const int who : {0, 1, 2}) {
    os::Interruption::clear();
    on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
      int steps = 0;
      run::Callbacks own;
      own.train_step = [&](std::int64_t step) {
        if (step == 1 && world->rank() == who) {
          os::Interruption::request(SIGINT);
          os::raise_interrupted("os", 8, {.what = "given up"});
        }
        world->barrier("in a step");
        ++steps;
        return run::StepResult{};
      };
      if (world->rank() == 0) {
        const run::Callbacks all = trainer::led(*world, own);
        all.train_step(0);
        RANK_CHECK(support::number_raised_by([&] { all.train_step(1); }) == "os.8");
        trainer::end(*world, {.step = 1, .interrupted = true, .status = 130});
      } else {
        const run::Outcome outcome = trainer::follow(*world, own);
        RANK_CHECK(outcome.step == 1);
        RANK_CHECK(outcome.exit_code() == 130);
      }
      RANK_CHECK(steps == 1);
    });
  }
  os::Interruption::clear();
}

TEST_CASE("losses are added, metrics merged, and a request to stop on one rank is everybody's") {
  os::Interruption::clear();
  on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    core::Metrics metrics;
    metrics.mean("kl", 1.0 + world->rank(), 1.0);
    RANK_CHECK(trainer::together(*world, 0.5 + world->rank(), metrics, 3.25) == 2.0);
    RANK_CHECK(metrics.value("kl") == 1.5);
  });
  CHECK_FALSE(os::Interruption::requested());
  CHECK(support::number_raised_by([] {
          on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
            core::Metrics metrics;
            (void)trainer::together(*world, 0.0, metrics, world->rank() == 0 ? 1.0 : std::nextafter(1.0, 2.0));
          });
        }) == "trainer.41");
}

TEST_CASE("ranks with other weights at the start are refused, with the parameter") {
  const auto start = [](double last) {
    on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
      const std::vector<model::Parameter> parameters = {{"a", weights({1, 2})},
                                                        {"b", weights({3, world->rank() == 0 ? 4 : last})}};
      trainer::require_same_start(*world, parameters);
    });
  };
  CHECK_NOTHROW(start(4));
  CHECK(support::number_raised_by([&] { start(5); }) == "trainer.40");
  CHECK(support::number_raised_by([&] { start(-4); }) == "trainer.40");
}

TEST_CASE("a parameter that one rank alone has a gradient of gets it on all; one that none has stays without") {
  on_ranks(2, [&](const std::shared_ptr<distributed::World>& world) {
    const std::vector<model::Parameter> parameters = {
        {"both", weights({1, 2})}, {"one", weights({3})}, {"none", weights({4})}};
    parameters[0].value.mutable_grad() = at::full({2}, 1.0 + world->rank(), at::kFloat);
    if (world->rank() == 1) parameters[1].value.mutable_grad() = at::full({1}, 7.0, at::kFloat);
    const auto gradients = trainer::summed_gradients(*world, parameters);
    RANK_CHECK(gradients.size() == 2);
    RANK_CHECK(at::equal(parameters[0].value.grad(), at::full({2}, 3.0, at::kFloat)));
    RANK_CHECK(parameters[1].value.grad().item<double>() == 7.0);
    RANK_CHECK(!(parameters[2].value.grad().defined()));
  });
}

TEST_CASE("log-probs that parts were trained with reach the other ranks bit for bit") {
  on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
    std::vector<trainer::PartColumn> own;
    if (world->rank() != 1) own.push_back({static_cast<std::size_t>(world->rank()), weights({-0.1, -1e-30})});
    const auto others = trainer::columns_of_others(*world, own);
    RANK_CHECK(others.size() == (world->rank() == 1 ? 2U : 1U));
    for (const trainer::PartColumn& one : others) {
      RANK_CHECK(one.part == (world->rank() == 0 ? 2U : one.part));
      RANK_CHECK(one.part != static_cast<std::size_t>(world->rank()));
      RANK_CHECK(at::equal(one.log_prob, weights({-0.1, -1e-30}).detach()));
    }
  });
}

TEST_CASE("of an error that all have seen, the first rank that knows its cause raises it") {
  for (const int knows : {0, 1, 2, -1}) {
    std::mutex mutex;
    std::vector<int> raised;
    CHECK_THROWS(on_ranks(3, [&](const std::shared_ptr<distributed::World>& world) {
      trainer::wait_for_turn_to_fail(*world, world->rank() == knows);
      {
        const std::lock_guard lock(mutex);
        raised.push_back(world->rank());
      }
      throw std::runtime_error("not finite");
    }));
    CHECK(raised == std::vector<int>{std::max(0, knows)});
  }
}
