// What a layer launches in training, forward and backward, with the project's kernels and with LibTorch's operators alone.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/one_layer.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

struct Launches {
  std::int64_t operators = 0, kernels = 0, copies = 0;
  [[nodiscard]] std::int64_t all() const { return operators + kernels; }
};

// A group of completions of one prompt, or rows that share nothing.
model::TokenTree tree_of(bool group, std::vector<std::vector<std::int32_t>>& memory) {
  memory.clear();
  for (std::int32_t i = 0; i < 4; ++i) {
    memory.push_back({group ? 5 : 30 + i, 9, 21, 3, 17});
    memory.push_back({});
    for (std::int32_t t = 0; t < 6 + 3 * i; ++t) memory.back().push_back((7 * i + 3 * t + 1) % 60);
  }
  std::vector<model::Sequence> rows;
  for (std::size_t i = 0; i < memory.size(); i += 2) rows.push_back({.prompt = memory[i], .completion = memory[i + 1]});
  return model::build_tree(rows);
}

// Of a second micro-batch, whose gradients are added to those of the first.
Launches of_pass(model::Decoder& decoder, const model::TokenTree& tree) {
  const auto pass = [&] { decoder.score(tree, {.entropy = true}).log_prob.sum().backward(); };
  for (const auto& p : decoder.parameters()) p.value.mutable_grad() = at::Tensor();
  pass();
  const auto before = support::far::counts();
  pass();
  const auto found = support::far::counts().since(before);
  CHECK(found.scalars + found.copies_out == 0);
  CHECK(found.copies_in == 1);
  return {found.operators, found.kernels, found.copies_in};
}

// A model of two layers less one of one.
Launches of_layer(const std::string& family, at::ScalarType dtype, bool group) {
  std::vector<std::vector<std::int32_t>> memory;
  const auto tree = tree_of(group, memory);
  const auto decoder = model::load_decoder(golden / family, {.dtype = dtype, .device = support::far::device()});
  model::Decoder shorter = support::first_layer_of(*decoder);
  const Launches two = of_pass(*decoder, tree), one = of_pass(shorter, tree);
  return {two.operators - one.operators, two.kernels - one.kernels, 0};
}

}  // namespace

TEST_CASE("operators of a layer, forward and backward, in a second micro-batch") {
  // The model of qwen2 has biases of q, k and v; that of qwen3 those and one of o, and norms per head.
  struct Expected {
    const char* family;
    std::int64_t without, group, apart;
  };
  for (const auto& [family, most, of_group, of_rows] :
       {Expected{"llama", 284, 30, 30}, {"qwen2", 298, 32, 32}, {"qwen3", 339, 36, 36}}) {
    for (const bool group : {true, false}) {
      const Launches without = of_layer(family, at::kFloat, group);
      Launches with;
      {
        const support::far::WithKernels kernels;
        with = of_layer(family, at::kFloat, group);
      }
      CAPTURE(family, group, without.operators, with.operators, with.kernels);
      if (group) CHECK(without.all() <= most);
      CHECK(with.all() == (group ? of_group : of_rows));
    }
  }
}

namespace {

// The same with an adapter on every map.
std::int64_t of_adapted_layer(at::ScalarType dtype, double dropout) {
  std::vector<std::vector<std::int32_t>> memory;
  const auto tree = tree_of(true, memory);
  const auto decoder = model::load_decoder(golden / "llama", {.dtype = dtype, .device = support::far::device()});
  model::LoraConfig lora{.r = 3, .alpha = 6, .dropout = dropout};
  lora.every_linear = true;
  model::attach_lora(*decoder, lora, 5);
  model::Decoder shorter = support::first_layer_of(*decoder);
  return of_pass(*decoder, tree).all() - of_pass(shorter, tree).all();
}

}  // namespace

TEST_CASE("operators of a layer with an adapter on every map, forward and backward, in a second micro-batch") {
  struct Expected {
    at::ScalarType type;
    double dropout;
    std::int64_t without, with;
  };
  for (const auto& [type, dropout, most, kernels] : {Expected{at::kFloat, 0.0, 304, 51},
                                                     {at::kBFloat16, 0.0, 351, 53},
                                                     {at::kFloat, 0.1, 5880, 125},
                                                     {at::kBFloat16, 0.1, 6011, 127}}) {
    const std::int64_t without = of_adapted_layer(type, dropout);
    std::int64_t with = 0;
    {
      const support::far::WithKernels own;
      with = of_adapted_layer(type, dropout);
    }
    CAPTURE(c10::toString(type), dropout, without, with);
    CHECK(without <= most);
    CHECK(with == kernels);
  }
}

TEST_CASE("a layer with adapters computes on a device what it computes on the CPU: values and gradients") {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const double dropout : {0.0, 0.2})
      for (const std::string& targets : {std::string("all"), std::string("q_proj v_proj down_proj")})
        for (const bool own : {false, true}) {
          CAPTURE(c10::toString(type), dropout, targets, own);
          std::unique_ptr<support::far::WithKernels> kernels;
          if (own) kernels = std::make_unique<support::far::WithKernels>();
          std::vector<std::vector<std::int32_t>> memory;
          const auto tree = tree_of(true, memory);
          std::vector<at::Tensor> log_probs, gradients[2];
          for (const bool far : {false, true}) {
            const auto decoder = model::load_decoder(
                golden / "qwen2", {.dtype = type, .device = far ? support::far::device() : at::Device(at::kCPU)});
            model::LoraConfig lora{.r = 3, .alpha = 6, .dropout = dropout};
            if (targets == "all")
              lora.every_linear = true;
            else
              lora.target_modules = {"q_proj", "v_proj", "down_proj"};
            model::attach_lora(*decoder, lora, 5);
            for (const auto& p : decoder->parameters())
              if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
            for (const std::uint64_t draw : {1U, 2U}) {
              const auto log_prob = decoder->score(tree, {.draw = draw}).log_prob;
              log_prob.sum().backward();
              log_probs.push_back(log_prob.detach().to(at::kCPU).to(at::kDouble));
            }
            for (const auto& p : decoder->parameters()) {
              CHECK(p.value.grad().scalar_type() == at::kFloat);
              gradients[far ? 1 : 0].push_back(p.value.grad().to(at::kCPU).to(at::kDouble));
            }
          }
          const bool narrow = type == at::kBFloat16;
          for (std::size_t i = 0; i < 2; ++i)
            CHECK((log_probs[i] - log_probs[i + 2]).abs().max().item<double>() < (narrow ? 0.1 : 1e-4));
          at::Tensor apart = at::zeros({}, at::kDouble), whole = at::zeros({}, at::kDouble);
          for (std::size_t i = 0; i < gradients[0].size(); ++i) {
            apart += (gradients[0][i] - gradients[1][i]).square().sum();
            whole += gradients[0][i].square().sum();
          }
          CHECK((apart / whole).sqrt().item<double>() < (narrow ? 0.06 : 1e-4));
        }
}
