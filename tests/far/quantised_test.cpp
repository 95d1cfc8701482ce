// A base in 4 or 8 bits on a device whose memory the host may not touch.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/quantised.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/quantised";

std::unique_ptr<model::Decoder> adapted(const std::string& name, at::Device device, bool dora) {
  auto decoder = model::load_decoder(golden / name, {.device = device});
  rlalgo::support::adapt_quantised(*decoder, name, dora);
  return decoder;
}

const std::vector<std::int32_t> prompt = {3, 61, 7}, completion = {20, 33, 41, 2, 58, 9, 16, 30, 30, 8, 55, 44};

}  // namespace

TEST_CASE("a device makes the host's numbers of weights in bits: log-probs, gradients, draws") {
  for (const std::string name : {"llama_nf4", "qwen2_int8", "gemma2_fp4", "phi3_nf4", "qwen3_moe_nf4"})
    for (const bool dora : {false, true}) {
      INFO(name << ", dora " << dora);
      const auto near = adapted(name, at::kCPU, dora), far = adapted(name, support::far::device(), dora);
      model::visit_maps(far->config(), far->weights(), [&](const std::string&, const model::Linear& map, auto, bool) {
        if (!map.quantised) return;
        CHECK(map.quantised->codes().device() == support::far::device());
        CHECK(map.quantised->scales().device() == support::far::device());
        CHECK(map.weight.device() == support::far::device());
      });
      const std::vector<model::Sequence> rows = {{.prompt = prompt, .completion = completion}};
      std::vector<at::Tensor> scores, gradients[2];
      for (const auto* decoder : {&near, &far}) {
        const at::Tensor log_prob = (*decoder)->score(model::build_tree(rows, {}), {}).log_prob;
        log_prob.sum().backward();
        scores.push_back(log_prob.detach().to(at::kCPU));
        for (const auto& p : (*decoder)->parameters())
          gradients[decoder == &far].push_back(p.value.grad().to(at::kCPU));
      }
      CHECK((scores[0] - scores[1]).abs().max().item<double>() < 1e-5);
      REQUIRE(gradients[0].size() == gradients[1].size());
      for (std::size_t i = 0; i < gradients[0].size(); ++i)
        CHECK((gradients[0][i] - gradients[1][i]).abs().max().item<double>() <
              1e-4 * (1 + gradients[0][i].abs().max().item<double>()));
      const auto drawn = [&](const model::Decoder& decoder) {
        inference::LocalEngine engine(decoder.config(), decoder.weights(), {});
        const std::vector<inference::Request> requests = {{.prompt = prompt, .count = 2}};
        return engine.generate(requests, {.temperature = 0.9, .max_new_tokens = 8}, {.seed = 5});
      };
      const auto a = drawn(*near), b = drawn(*far);
      for (std::size_t i = 0; i < a[0].size(); ++i) CHECK(a[0][i].ids == b[0][i].ids);
    }
}
