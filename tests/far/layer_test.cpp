// What a layer launches in training, forward and backward, with the project's kernels and with LibTorch's operators alone.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/model/load.hpp>
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
