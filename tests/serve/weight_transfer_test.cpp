#include <rlalgo/serve/weight_transfer.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include "serve/served.hpp"

using namespace rlalgo;

namespace {

struct Bench {
  std::shared_ptr<model::Decoder> decoder = served::decoder();
  serve::Engine engine{decoder->config(), {.engine = {.threads = 1}}, {}};
  serve::WeightStore store{decoder, engine};
  tensor::Tensor norm = decoder->weights().final_norm.detach().mul(2).clone();

  [[nodiscard]] double served_norm() const {
    for (const auto& [name, value] : store.named_tensors())
      if (name == "model.norm.weight") return value.select(0, 0).item<double>();
    return 0;
  }
};

}  // namespace

TEST_CASE("weights change when a transfer is finished, all at once") {
  Bench bench;
  serve::WeightTransfer transfer(bench.store);
  const double before = bench.served_norm();
  transfer.start();
  transfer.add({{"model.norm.weight", bench.norm}});
  CHECK(support::number_raised_by([&] {
          transfer.add({{"model.norm.weight", bench.norm}, {"nobody", bench.norm}});
        }) == "serve.19");
  CHECK(bench.served_norm() == before);
  CHECK(bench.store.version() == 0);
  transfer.finish("v9");
  CHECK(bench.served_norm() == 2 * before);
  CHECK(bench.store.version() == 1);
  CHECK(bench.store.version_name() == "v9");
}

TEST_CASE("acts out of order are refused, and so is a second trainer") {
  Bench bench;
  serve::WeightTransfer transfer(bench.store);
  CHECK(support::number_raised_by([&] { transfer.add({{"model.norm.weight", bench.norm}}); }) == "serve.20");
  CHECK(support::number_raised_by([&] { transfer.finish({}); }) == "serve.20");
  transfer.start();
  CHECK(support::number_raised_by([&] { transfer.start(); }) == "serve.20");
  transfer.finish({});
  CHECK(support::number_raised_by([&] { transfer.finish({}); }) == "serve.20");
  CHECK(bench.store.version() == 0);  // nothing was sent

  const double before = bench.served_norm();
  serve::WeightTransfer hasty(bench.store, 0.0);
  hasty.start();
  hasty.add({{"model.norm.weight", bench.norm}});
  hasty.start();  // what an abandoned session had brought is forgotten
  hasty.finish({});
  CHECK(bench.served_norm() == before);
}

TEST_CASE("a trainer with a name repeats what was not answered, and nobody else touches its session") {
  Bench bench;
  serve::WeightTransfer transfer(bench.store);
  const double before = bench.served_norm();
  const auto refuses = [](const auto& act) { return support::number_raised_by(act) == "serve.20"; };
  transfer.start("mine");
  transfer.add({{"model.norm.weight", bench.norm}}, "mine");
  transfer.start("mine");  // anew: what was sent is forgotten
  transfer.finish("v1", "mine");
  CHECK(bench.served_norm() == before);
  CHECK(bench.store.version_name() == "v1");
  transfer.start("mine");
  CHECK(refuses([&] { transfer.start("yours"); }));
  CHECK(refuses([&] { transfer.start(); }));
  CHECK(refuses([&] { transfer.add({{"model.norm.weight", bench.norm}}, "yours"); }));
  CHECK(refuses([&] { transfer.finish({}, "yours"); }));
  CHECK(refuses([&] { transfer.finish({}); }));
  transfer.add({{"model.norm.weight", bench.norm}}, "mine");
  transfer.add({{"model.norm.weight", bench.norm}}, "mine");
  transfer.finish("v2", "mine");
  transfer.finish("v2", "mine");
  CHECK(bench.served_norm() == 2 * before);
  CHECK(bench.store.version() == 1);
  CHECK(bench.store.name_of(1) == "v2");
  CHECK(refuses([&] { transfer.finish({}, "yours"); }));
}
