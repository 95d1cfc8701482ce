// Dropout on a device whose memory the host may not touch: the masks of the CPU, made there.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/cpu_operations.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/operations_for.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/twins.hpp>

using namespace rlalgo;
using support::counted;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

// Two prompts with two completions each.
model::TokenTree tree_of(std::vector<std::vector<std::int32_t>>& memory) {
  memory.clear();
  for (std::int32_t i = 0; i < 4; ++i) {
    memory.push_back({3 + i / 2, 9, 21});
    memory.push_back({});
    for (std::int32_t t = 0; t < 5 + i; ++t) memory.back().push_back((7 * i + 3 * t + 1) % 60);
  }
  std::vector<model::Sequence> rows;
  for (std::size_t i = 0; i < memory.size(); i += 2) rows.push_back({.prompt = memory[i], .completion = memory[i + 1]});
  return model::build_tree(rows);
}

struct Pass {
  at::Tensor log_prob;
  std::vector<at::Tensor> gradients;
  support::far::Counts counts;
};

Pass pass(at::Device device, double dropout, bool checkpointing, std::uint64_t draw) {
  const auto decoder = model::load_decoder(golden / "qwen2", {.dtype = at::kFloat, .device = device});
  model::LoraConfig config;
  config.r = 4;
  config.dropout = dropout;
  config.target_modules = {"q_proj", "v_proj", "gate_proj", "down_proj"};
  model::attach_lora(*decoder, config, 11);
  decoder->set_checkpointing(checkpointing);
  // B begins with zeros, and then nothing of A's mask would be seen.
  {
    const c10::NoGradGuard no_grad;
    for (const auto& p : decoder->parameters())
      if (p.value.requires_grad() && p.name.find("lora_B") != std::string::npos) p.value.fill_(0.03);
  }
  std::vector<std::vector<std::int32_t>> memory;
  const auto tree = tree_of(memory);
  Pass out;
  out.counts = counted([&] {
    out.log_prob = decoder->score(tree, {.draw = draw}).log_prob;
    out.log_prob.sum().backward();
  });
  out.log_prob = out.log_prob.detach().to(at::kCPU);
  for (const auto& p : decoder->parameters())
    if (p.value.requires_grad()) out.gradients.push_back(p.value.grad().to(at::kCPU));
  return out;
}

}  // namespace

TEST_CASE("a mask that is made on a device is the CPU's, and nothing of it is copied there") {
  const model::CpuOperations cpu;
  const std::vector<std::int64_t> rows = {40, 0, 7, 7, 3, 1'000'000'007};
  for (const auto type : {at::kFloat, at::kBFloat16, at::kDouble})
    for (const std::int64_t width : {25, 24, 3, 1})
      for (const bool some : {false, true})
        for (const bool kernel : {false, true}) {
          CAPTURE(c10::toString(type), width, some, kernel);
          std::optional<support::far::WithKernels> kernels;
          if (kernel) kernels.emplace();
          const auto& there = model::operations_for(support::far::device());
          const auto x = at::randn({6, width}, at::kDouble).to(type), far = x.to(support::far::device());
          const at::Tensor rows_there = at::tensor(rows, at::kLong).to(support::far::device());
          model::DropoutMask mask{.probability = 0.3, .seed = 0x700000009, .draw = 0x300000011, .module = 5};
          if (some) mask.rows = &rows;
          const auto expected = cpu.dropout(x, mask);
          mask.rows_there = some ? &rows_there : nullptr;
          at::Tensor found;
          const auto count = counted([&] { found = there.dropout(far, mask); });
          CHECK(count.copies_in + count.copies_out + count.scalars == 0);
          CHECK(count.kernels == (kernel && type != at::kDouble ? 1 : 0));
          CHECK(found.to(at::kCPU).equal(expected));
          mask.rows_there = nullptr;
          CHECK(there.dropout(far, mask).to(at::kCPU).equal(expected));
        }
}

TEST_CASE("a tensor of more elements than are drawn at once has one mask") {
  const std::int64_t n = (std::int64_t{1} << 22U) + 6;
  const auto x = at::ones({2, n / 2});
  const model::DropoutMask mask{.probability = 0.5, .seed = 3, .draw = 4, .module = 9};
  const model::CpuOperations cpu;
  CHECK(model::operations_for(support::far::device())
            .dropout(x.to(support::far::device()), mask)
            .to(at::kCPU)
            .equal(cpu.dropout(x, mask)));
}

TEST_CASE("an adapter with dropout trains on a device as on the CPU, by what is copied without it") {
  for (const bool kernel : {false, true}) {
    std::optional<support::far::WithKernels> kernels;
    if (kernel) kernels.emplace();
    for (const bool checkpointing : {false, true}) {
      CAPTURE(kernel, checkpointing);
      const Pass cpu = pass(at::kCPU, 0.4, checkpointing, 8), far = pass(support::far::device(), 0.4, checkpointing, 8),
                 plain = pass(support::far::device(), 0.0, checkpointing, 8),
                 other = pass(support::far::device(), 0.4, checkpointing, 9);
      CHECK(far.log_prob.allclose(cpu.log_prob, 1e-4, 1e-4));
      REQUIRE(far.gradients.size() == cpu.gradients.size());
      for (std::size_t i = 0; i < cpu.gradients.size(); ++i)
        CHECK(far.gradients[i].allclose(cpu.gradients[i], 1e-3, 1e-4));
      CHECK_FALSE(far.log_prob.allclose(plain.log_prob, 1e-3, 1e-3));
      CHECK_FALSE(far.log_prob.allclose(other.log_prob, 1e-3, 1e-3));
      CHECK(far.counts.copies_in == plain.counts.copies_in);
      CHECK(far.counts.bytes_in == plain.counts.bytes_in);
      CHECK(far.counts.scalars + far.counts.copies_out == 0);
    }
  }
}
