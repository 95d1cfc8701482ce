#include <rlalgo/model/checkpoint_store.hpp>

#include <cstdlib>
#include <filesystem>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>

#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("what was kept comes back last first, with its bits, wherever it lay") {
  for (const auto memory :
       {model::CheckpointMemory::device, model::CheckpointMemory::host, model::CheckpointMemory::disk})
    for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      model::CheckpointStore store({.memory = memory}, at::Device(at::kCPU));
      const at::Tensor a = at::randn({5, 7}).to(type), b = at::randn({3, 2, 9}).to(type),
                       none = at::empty({0, 4}, type);
      store.push(a);
      store.push(none);
      store.push(b);
      CHECK(store.pop().equal(b));
      CHECK(store.pop().sizes() == none.sizes());
      const at::Tensor c = at::randn({4096, 33}).to(type);
      store.push(c.t());  // not contiguous
      CHECK(store.pop().equal(c.t()));
      const at::Tensor back = store.pop();
      CHECK(back.equal(a));
      CHECK(back.scalar_type() == type);
    }
}

TEST_CASE("a folder that is not there is refused, and a file leaves nothing behind") {
  model::CheckpointStore nowhere({model::CheckpointMemory::disk, "/nowhere/at/all"}, at::Device(at::kCPU));
  CHECK(support::number_raised_by([&] { nowhere.push(at::ones({3})); }) == "model.51");
  const support::ScratchDirectory scratch;
  model::CheckpointStore store({model::CheckpointMemory::disk, scratch.path()}, at::Device(at::kCPU));
  store.push(at::ones({3}));
  CHECK(std::filesystem::is_empty(scratch.path()));
  CHECK(store.pop().equal(at::ones({3})));
}

TEST_CASE("gradients are the same wherever the inputs of layers lie") {
  const auto gradients = [](bool on, model::CheckpointMemory memory) {
    const auto decoder = model::load_decoder(std::filesystem::path(rlalgo::support::test_dir) / "golden/model/qwen2");
    decoder->set_checkpointing(on, {.memory = memory});
    const std::vector<std::int32_t> prompt{1, 5, 9}, completion{4, 2, 7, 7, 3};
    const std::vector<model::Sequence> rows{{prompt, completion}, {prompt, prompt}};
    const auto scores = decoder->score(model::build_tree(rows), {});
    scores.log_prob.square().sum().backward();
    std::vector<at::Tensor> out;
    for (const auto& p : decoder->parameters()) out.push_back(p.value.grad());
    return out;
  };
  const auto whole = gradients(false, model::CheckpointMemory::device);
  for (const auto memory :
       {model::CheckpointMemory::device, model::CheckpointMemory::host, model::CheckpointMemory::disk}) {
    const auto found = gradients(true, memory);
    REQUIRE(found.size() == whole.size());
    for (std::size_t i = 0; i < whole.size(); ++i) CHECK(found[i].equal(whole[i]));
  }
}
