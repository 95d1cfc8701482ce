#include <support/catch.hpp>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/lora.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::WeightSnapshots;

namespace {

model::Decoder decoder_of(const std::string& type = "llama") {
  model::HfConfig hf;
  hf.decoder = reference::tiny(type);
  model::Decoder decoder(hf, reference::random_weights(hf.decoder, 2));
  decoder.set_trained(true);
  return decoder;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.room() + "." + std::to_string(error.number());
  }
  return "none";
}

}  // namespace

TEST_CASE("a snapshot is the weights as they were published, whatever becomes of them") {
  model::Decoder decoder = decoder_of();
  WeightSnapshots snapshots(decoder.config(), decoder.weights());
  CHECK(error_of([&] { (void)snapshots.acquire(); }) == "inference.14");
  snapshots.publish(3);
  const WeightSnapshots::Handle first = snapshots.acquire();
  CHECK(first->version == 3);
  std::size_t bytes = 0;
  for (const auto& [name, value] : decoder.named_tensors()) bytes += value.nbytes();
  CHECK(snapshots.copied_bytes() == bytes);
  const at::Tensor before = decoder.weights().layers[1].up_proj.weight.detach().clone();
  {
    const c10::NoGradGuard no_grad;
    decoder.weights().layers[1].up_proj.weight.mul_(2.0);
  }
  CHECK(first->weights.layers[1].up_proj.weight.equal(before));
  CHECK_FALSE(first->weights.layers[1].up_proj.weight.requires_grad());
  snapshots.publish(4);
  const WeightSnapshots::Handle second = snapshots.acquire();
  CHECK(second->version == 4);
  CHECK(second->number != first->number);
  CHECK(second->weights.layers[1].up_proj.weight.equal(before.mul(2.0)));
  CHECK(first->weights.layers[1].up_proj.weight.equal(before));
}

TEST_CASE("weights that are there only at times are fetched in parts, frozen ones once") {
  for (const bool adapter : {false, true}) {
    model::Decoder decoder = decoder_of("llama");
    if (adapter) model::attach_lora(decoder, {.r = 2, .alpha = 4.0, .target_modules = {"q_proj"}}, 3);
    std::vector<std::pair<at::Tensor, at::Tensor>> kept;  // the weights, and their values
    for (const auto& [name, value] : decoder.named_tensors()) kept.emplace_back(value, value.detach().clone());
    for (const model::Parameter& p : decoder.parameters())
      if (adapter) kept.emplace_back(p.value, p.value.detach().clone());
    WeightSnapshots snapshots(decoder.config(), decoder.weights());
    snapshots.fetch_by([&](const WeightSnapshots::See& see) {
      const c10::NoGradGuard no_grad;
      for (auto& [weight, values] : kept) {
        weight.detach().copy_(values);
        see(weight);
        weight.detach().fill_(-1.0);  // it is not there any more
      }
    });
    std::size_t all = 0, trained = 0;
    for (const auto& [weight, values] : kept) (weight.requires_grad() ? trained : all) += values.nbytes();
    all += trained;
    snapshots.publish(1);
    CHECK(snapshots.copied_bytes() == all);
    const WeightSnapshots::Handle first = snapshots.acquire();
    const auto up = decoder.weights().layers[1].up_proj.weight;
    const at::Tensor expected = [&] {
      for (const auto& [weight, values] : kept)
        if (weight.storage().unsafeGetStorageImpl() == up.storage().unsafeGetStorageImpl()) return values;
      return at::Tensor();
    }();
    CHECK(first->weights.layers[1].up_proj.weight.equal(expected));
    snapshots.publish(2);
    CHECK(snapshots.copied_bytes() == trained);
    const WeightSnapshots::Handle second = snapshots.acquire();
    CHECK(second->weights.layers[1].up_proj.weight.equal(expected));
    CHECK(second->weights.layers[1].up_proj.weight.is_same(first->weights.layers[1].up_proj.weight) == adapter);
    CHECK(error_of([&] {
            WeightSnapshots others(decoder.config(), decoder.weights());
            others.fetch_by([](const WeightSnapshots::See& /*see*/) {});
            others.publish(1);
          }) == "inference.17");
  }
}

TEST_CASE("a tied head stays tied, and two buffers are all there are") {
  model::Decoder decoder = decoder_of("qwen2");
  WeightSnapshots snapshots(decoder.config(), decoder.weights(), 0.05);
  snapshots.publish(0);
  const void* places[2] = {};
  for (std::int64_t version = 1; version < 6; ++version) {
    const WeightSnapshots::Handle held = snapshots.acquire();
    CHECK(held->weights.lm_head.const_data_ptr() == held->weights.embedding.const_data_ptr());
    CHECK(held->weights.embedding.const_data_ptr() != decoder.weights().embedding.const_data_ptr());
    const void* const place = held->weights.embedding.const_data_ptr();
    if (version > 2) CHECK(place == places[version % 2]);
    places[version % 2] = place;
    snapshots.publish(version);
  }
}

TEST_CASE("a reader of the old weights costs the current ones, readers of both a wait with an end") {
  model::Decoder decoder = decoder_of();
  WeightSnapshots snapshots(decoder.config(), decoder.weights(), 0.05);
  snapshots.publish(0);
  WeightSnapshots::Handle old = snapshots.acquire();
  snapshots.publish(1);
  snapshots.publish(2);  // nobody reads version 1
  CHECK(old->version == 0);
  const WeightSnapshots::Handle current = snapshots.acquire();
  CHECK(current->version == 2);
  CHECK(error_of([&] { snapshots.publish(3); }) == "inference.13");
  CHECK(snapshots.acquire()->version == 2);
  std::thread reader([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    old.reset();
  });
  snapshots.publish(4);
  reader.join();
  CHECK(snapshots.acquire()->version == 4);
  CHECK(current->version == 2);
}

TEST_CASE("a run of an adapter copies the adapter and shares the rest") {
  model::Decoder decoder = decoder_of();
  model::attach_lora(decoder, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "down_proj"}}, 1);
  WeightSnapshots snapshots(decoder.config(), decoder.weights());
  snapshots.publish(1);
  std::size_t adapter = 0;
  decoder.visit_adapter([&](const std::string&, const at::Tensor& value) { adapter += value.nbytes(); });
  CHECK(adapter > 0);
  CHECK(snapshots.copied_bytes() == adapter);
  const WeightSnapshots::Handle held = snapshots.acquire();
  const model::Linear &mine = held->weights.layers[0].q_proj, &live = decoder.weights().layers[0].q_proj;
  CHECK(mine.weight.const_data_ptr() == live.weight.const_data_ptr());
  CHECK(mine.lora.a.const_data_ptr() != live.lora.a.const_data_ptr());
  CHECK(mine.lora.a.equal(live.lora.a));
}

TEST_CASE("one publishes, others read: every reader sees one whole version") {
  model::Decoder decoder = decoder_of();
  WeightSnapshots snapshots(decoder.config(), decoder.weights());
  const auto write = [&](std::int64_t version) {
    const c10::NoGradGuard no_grad;
    for (auto& [name, value] : decoder.named_tensors()) at::Tensor(value).fill_(static_cast<double>(version));
    snapshots.publish(version);
  };
  write(0);
  std::atomic<bool> stop{false};
  std::atomic<int> torn{0}, reads{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r)
    readers.emplace_back([&] {
      std::int64_t last = 0;
      while (!stop) {
        const WeightSnapshots::Handle held = snapshots.acquire();
        const auto value = static_cast<float>(held->version);
        for (const model::LayerWeights& layer : held->weights.layers) {
          const float* const data = layer.up_proj.weight.const_data_ptr<float>();
          for (std::int64_t i = 0; i < layer.up_proj.weight.numel(); ++i) torn += data[i] == value ? 0 : 1;
        }
        torn += held->version < last ? 1 : 0;
        last = held->version;
        ++reads;
      }
    });
  for (std::int64_t version = 1; version < 200 || reads < 100; ++version) write(version);
  stop = true;
  for (std::thread& reader : readers) reader.join();
  CHECK(torn == 0);
}
