#include <support/catch.hpp>

#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/decoder.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::SnapshotEngine;
using inference::WeightSnapshots;

namespace {

struct Run {
  static model::HfConfig tiny() {
    model::HfConfig hf;
    hf.decoder = reference::tiny("qwen3");
    return hf;
  }
  model::Decoder decoder;
  std::vector<at::Tensor> start;
  std::vector<inference::Request> requests;
  inference::SamplingConfig sampling{.max_new_tokens = 12};

  Run() : decoder(tiny(), reference::random_weights(reference::tiny("qwen3"), 2)) {
    decoder.set_trained(true);
    for (const auto& [name, value] : decoder.named_tensors()) start.push_back(value.detach().clone());
    for (std::int32_t r = 0; r < 4; ++r) {
      inference::Request request{.count = 2, .first_index = 2 * static_cast<std::uint64_t>(r)};
      for (std::int32_t i = 0; i < 40 + r; ++i) request.prompt.push_back((i * 7 + 3) % 101);
      requests.push_back(request);
    }
  }
  // What an optimizer does, as a function of the version.
  void train(std::int64_t version) {
    const c10::NoGradGuard no_grad;
    const auto tensors = decoder.named_tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      at::Tensor(tensors[i].second).copy_(start[i]).mul_(1.0 + 0.05 * static_cast<double>(version));
  }
};

}  // namespace

TEST_CASE("snapshots generate what the weights themselves do") {
  Run run;
  const auto snapshots = std::make_shared<WeightSnapshots>(run.decoder.config(), run.decoder.weights());
  SnapshotEngine engine(snapshots, {.threads = 1});
  inference::LocalEngine local(run.decoder.config(), run.decoder.weights(), {.threads = 1});
  for (std::int64_t version = 0; version < 4; ++version) {
    run.train(version);
    snapshots->publish(version);
    for (std::uint64_t step = 0; step < 2; ++step) {
      const auto expected = local.generate(run.requests, run.sampling, {.seed = 1, .step = step});
      const auto found = engine.generate(run.requests, run.sampling, {.seed = 1, .step = step});
      for (std::size_t r = 0; r < found.size(); ++r)
        for (std::size_t j = 0; j < 2; ++j) {
          CHECK(found[r][j].ids == expected[r][j].ids);
          CHECK(found[r][j].log_probs == expected[r][j].log_probs);
          CHECK(found[r][j].weights_version == version);
          CHECK(expected[r][j].weights_version == -1);
        }
    }
  }
}

TEST_CASE("completions generated while an optimizer works are those of the version that they name") {
  Run run;
  const auto snapshots = std::make_shared<WeightSnapshots>(run.decoder.config(), run.decoder.weights());
  run.train(0);
  snapshots->publish(0);
  struct Seen {
    std::uint64_t step;
    std::vector<std::vector<data::Completion>> completions;
  };
  std::vector<Seen> seen;
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> calls{0};
  std::thread generator([&] {
    SnapshotEngine engine(snapshots, {.max_slots = 4, .threads = 1});
    for (; !done; ++calls)
      seen.push_back({calls, engine.generate(run.requests, run.sampling, {.seed = 1, .step = calls})});
  });
  for (std::int64_t version = 1; version < 300 || calls < 6; ++version) {
    run.train(version % 10);
    snapshots->publish(version % 10);
  }
  done = true;
  generator.join();
  std::map<std::int64_t, int> versions;
  for (const Seen& one : seen) {
    const std::int64_t version = one.completions[0][0].weights_version;
    ++versions[version];
    run.train(version);
    inference::LocalEngine local(run.decoder.config(), run.decoder.weights(), {.threads = 1});
    const auto expected = local.generate(run.requests, run.sampling, {.seed = 1, .step = one.step});
    for (std::size_t r = 0; r < expected.size(); ++r)
      for (std::size_t j = 0; j < 2; ++j) {
        REQUIRE(one.completions[r][j].weights_version == version);
        REQUIRE(one.completions[r][j].ids == expected[r][j].ids);
        REQUIRE(one.completions[r][j].log_probs == expected[r][j].log_probs);
      }
  }
  CHECK(versions.size() > 1);
}

TEST_CASE("a generation ends within a token when it is asked to, and tells how far it is") {
  Run run;
  const auto snapshots = std::make_shared<WeightSnapshots>(run.decoder.config(), run.decoder.weights());
  snapshots->publish(0);
  std::stop_source stop;
  SnapshotEngine engine(snapshots, {.threads = 1}, stop.get_token());
  CHECK(engine.passes() == 0);
  (void)engine.generate(run.requests, run.sampling, {.seed = 1});
  const std::uint64_t passes = engine.passes();
  CHECK(passes >= 12);
  stop.request_stop();
  CHECK_THROWS_AS(engine.generate(run.requests, run.sampling, {.seed = 1}), os::Interrupted);
  CHECK(engine.passes() == passes + 1);
}
