#include <rlalgo/model/lora.hpp>

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::vector<std::vector<std::int32_t>> prompts = {{1, 2, 3, 4}, {1, 2, 3, 4}, {7, 8}};
const std::vector<std::vector<std::int32_t>> completions = {{5, 6, 7}, {5, 9}, {3, 1, 2, 11}};

model::TokenTree tree() {
  std::vector<model::Sequence> rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) rows.push_back({prompts[i], completions[i]});
  return model::build_tree(rows);
}

std::unique_ptr<model::Decoder> decoder(const std::string& type, at::ScalarType dtype = at::kDouble) {
  return model::random_decoder(model::parse_hf_config(rlalgo::support::small_config(type), "test"), 3, dtype);
}

model::LoraConfig everything() {
  return {.r = 3, .alpha = 5, .target_pattern = "all-linear", .init = model::LoraInit::random};
}

std::vector<at::Tensor> take_gradients(model::Decoder& policy) {
  std::vector<at::Tensor> out;
  for (auto& p : policy.parameters()) {
    out.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::Tensor());
    p.value.mutable_grad() = at::Tensor();
  }
  return out;
}

// Σ of squares, with dropout drawn for pass `draw`.
at::Tensor loss(model::Decoder& policy, std::uint64_t draw = 0) {
  return policy.score(tree(), {.temperature = 1.3, .draw = draw}).log_prob.square().sum();
}

}  // namespace

TEST_CASE("gradients of adapter and saved modules equal finite differences; the base gets none") {
  for (const bool dora : {false, true}) {
    for (const char* type : {"llama", "qwen2", "qwen3"}) {
      auto json = rlalgo::support::small_config(type);
      json["num_hidden_layers"] = 1;
      json["hidden_size"] = 6;
      json["intermediate_size"] = 5;
      json["vocab_size"] = 12;
      json["head_dim"] = 4;
      const auto policy = model::random_decoder(model::parse_hf_config(json, "test"), 3, at::kDouble);
      model::LoraConfig config = everything();
      config.target_pattern = ".*";
      config.use_dora = dora;
      config.modules_to_save = {"embed_tokens", "input_layernorm"};
      model::attach_lora(*policy, config, 1);
      if (dora) {  // the norm is a constant to the gradient, so B A is made too small to move it
        const c10::NoGradGuard no_grad;
        for (auto& p : policy->parameters()) {
          if (p.name.ends_with("lora_B.weight")) p.value.mul_(1e-7);
          if (p.name.ends_with("magnitude_vector")) p.value.mul_(1.1);
        }
      }
      loss(*policy).backward();
      const c10::NoGradGuard no_grad;
      std::size_t checked = 0;
      for (auto& p : policy->parameters()) {
        if (dora && p.name.ends_with("lora_B.weight")) continue;
        const at::Tensor gradient = p.value.grad();
        INFO(type << " " << p.name);
        REQUIRE(gradient.defined());
        auto* data = p.value.mutable_data_ptr<double>();
        const auto* got = gradient.const_data_ptr<double>();
        double worst = 0;
        for (std::int64_t i = 0; i < p.value.numel(); ++i) {
          const double old = data[i], step = 1e-5;
          data[i] = old + step;
          const double up = loss(*policy).item<double>();
          data[i] = old - step;
          const double down = loss(*policy).item<double>();
          data[i] = old;
          worst = std::max(worst, std::abs((up - down) / (2 * step) - got[i]) / (1 + std::abs(got[i])));
        }
        CHECK(worst < 2e-6);
        ++checked;
      }
      CHECK(checked > 9);
      CHECK_FALSE(policy->weights().layers[0].q_proj.weight.grad().defined());
      CHECK_FALSE(policy->adapter()->base.embedding.grad().defined());
    }
  }
}

TEST_CASE("an adapted model scores like one whose weights are W + s·B A") {
  for (const bool rslora : {false, true}) {
    const auto policy = decoder("qwen2"), merged = decoder("qwen2");
    model::LoraConfig config = everything();
    config.use_rslora = rslora;
    config.rank_pattern = {{"layers\\.1\\..*q_proj", 2}};
    config.alpha_pattern = {{"down_proj", 7.0}};
    model::attach_lora(*policy, config, 1);
    const c10::NoGradGuard no_grad;
    model::visit_loras(policy->config(), policy->weights(),
                       [&](const std::string& path, const model::Lora& lora, const at::Tensor&) {
                         if (!lora.defined()) {
                           CHECK(path == "lm_head");
                           return;
                         }
                         const bool special = path == "model.layers.1.self_attn.q_proj";
                         const double r = special ? 2 : 3, alpha = path.ends_with("down_proj") ? 7 : 5;
                         CHECK(lora.a.size(0) == r);
                         CHECK(lora.scale == Approx(alpha / (rslora ? std::sqrt(r) : r)));
                         model::visit_loras(merged->config(), merged->weights(),
                                            [&](const std::string& other, const auto&, const at::Tensor& weight) {
                                              if (other == path)
                                                at::Tensor(weight).add_(at::mm(lora.b, lora.a), lora.scale);
                                            });
                       });
    CHECK(loss(*policy).item<double>() == Approx(loss(*merged).item<double>()).epsilon(1e-12));
    CHECK(loss(*policy->without_adapter()).item<double>() != Approx(loss(*policy).item<double>()));
  }
}

TEST_CASE("a fresh adapter changes nothing, except where its initialisation says so") {
  const auto plain = decoder("llama", at::kFloat);
  const double before = loss(*plain).item<double>();
  for (const auto init : {model::LoraInit::standard, model::LoraInit::gaussian, model::LoraInit::pissa,
                          model::LoraInit::orthogonal, model::LoraInit::random}) {
    for (const bool dora : {false, true}) {
      const auto policy = decoder("llama", at::kFloat);
      model::LoraConfig config = everything();
      config.r = 4;
      config.init = init;
      config.use_dora = dora;
      model::attach_lora(*policy, config, 1);
      INFO(static_cast<int>(init) << dora);
      const bool same = std::abs(loss(*policy).item<double>() - before) < 1e-4 * before;
      CHECK(same == (init != model::LoraInit::random));
      CHECK(loss(*policy->reference()).item<double>() == Approx(before).epsilon(1e-5));
    }
  }
}

TEST_CASE("initial values have the distributions of PEFT") {
  const auto policy = decoder("llama", at::kFloat);
  model::LoraConfig config = everything();
  config.r = 8;
  config.init = model::LoraInit::gaussian;
  model::attach_lora(*policy, config, 1);
  const auto& gaussian = policy->weights().layers[0].down_proj.lora;
  CHECK(gaussian.a.std().item<double>() == Approx(1.0 / 8).epsilon(0.25));
  CHECK(gaussian.b.abs().max().item<double>() == 0);
  const auto other = decoder("llama", at::kFloat);
  config.init = model::LoraInit::standard;
  model::attach_lora(*other, config, 1);
  const auto& uniform = other->weights().layers[0].down_proj.lora;
  const double bound = 1 / std::sqrt(static_cast<double>(uniform.a.size(1)));
  CHECK(uniform.a.abs().max().item<double>() < bound);
  CHECK(uniform.a.abs().max().item<double>() > 0.9 * bound);
  CHECK(uniform.a.mean().abs().item<double>() < 0.2 * bound);
  // Another seed, other values; the same seed, the same.
  const auto again = decoder("llama", at::kFloat), different = decoder("llama", at::kFloat);
  model::attach_lora(*again, config, 1);
  model::attach_lora(*different, config, 2);
  CHECK(again->weights().layers[1].q_proj.lora.a.equal(other->weights().layers[1].q_proj.lora.a));
  CHECK_FALSE(different->weights().layers[1].q_proj.lora.a.equal(other->weights().layers[1].q_proj.lora.a));
}

TEST_CASE("trainer, reference and base share one copy of the weights") {
  const auto policy = decoder("llama");
  const void* q = policy->weights().layers[0].q_proj.weight.const_data_ptr();
  const model::DecoderWeights* address = &policy->weights();
  model::LoraConfig config = everything();
  config.modules_to_save = {"lm_head"};
  model::attach_lora(*policy, config, 1);
  const auto reference = policy->reference();
  CHECK(&policy->weights() == address);
  CHECK(policy->weights().layers[0].q_proj.weight.const_data_ptr() == q);
  CHECK(reference->weights().layers[0].q_proj.weight.const_data_ptr() == q);
  CHECK(reference->weights().embedding.const_data_ptr() == policy->weights().embedding.const_data_ptr());
  // lm_head is tied in the base, a copy in the adapter.
  CHECK(reference->weights().lm_head.const_data_ptr() == reference->weights().embedding.const_data_ptr());
  CHECK(policy->weights().lm_head.const_data_ptr() != policy->weights().embedding.const_data_ptr());
  CHECK(reference->parameters().empty());
  CHECK_FALSE(loss(*reference).requires_grad());
  for (const auto& p : policy->parameters()) {
    INFO(p.name);
    CHECK(p.name.starts_with("base_model.model."));
    CHECK((p.name.find("lora_") != std::string::npos || p.name == "base_model.model.lm_head.weight"));
  }
  CHECK(policy->parameters().size() == 2 * 7 * 2 + 1);
}

TEST_CASE("dropout: the expectation is kept, and its mask is a function of seed and pass") {
  const auto policy = decoder("llama");
  model::LoraConfig config = everything();
  config.dropout = 0.3;
  model::attach_lora(*policy, config, 1);
  loss(*policy, 5).backward();
  const auto first = take_gradients(*policy);
  loss(*policy, 5).backward();
  const auto again = take_gradients(*policy);
  loss(*policy, 6).backward();
  const auto other = take_gradients(*policy);
  bool differ = false;
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(first[i].equal(again[i]));
    differ = differ || !first[i].equal(other[i]);
  }
  CHECK(differ);
  // Without gradient nothing is dropped.
  const auto plain = decoder("llama");
  config.dropout = 0;
  model::attach_lora(*plain, config, 1);
  const c10::NoGradGuard no_grad;
  CHECK(loss(*policy, 5).item<double>() == loss(*plain, 6).item<double>());
  const auto x = at::ones({50, 40}, at::kDouble);
  const auto mask = model::detail::dropped(x, {.a = x, .b = x, .magnitude = {}, .dropout = 0.3, .index = 2},
                                           {&policy->operations(), 1, 2});
  CHECK((mask == 0).to(at::kDouble).mean().item<double>() == Approx(0.3).margin(0.04));
  CHECK(mask.max().item<double>() == Approx(1 / 0.7));
}

TEST_CASE("with dropout, gradients still equal finite differences") {
  for (const bool dora : {false, true}) {
    const auto policy = decoder("qwen3");
    model::LoraConfig config = everything();
    config.dropout = 0.4;
    config.use_dora = dora;
    model::attach_lora(*policy, config, 1);
    loss(*policy, 9).backward();
    at::Tensor a = policy->weights().layers[0].k_proj.lora.a;
    const double got = a.grad()[1][2].item<double>();
    // Dropout acts only where a graph is built.
    const auto at = [&](double value) {
      {
        const c10::NoGradGuard no_grad;
        a[1][2].fill_(value);
      }
      return loss(*policy, 9).item<double>();
    };
    if (dora) continue;  // the norm moves with A: a finite difference is another function; see the linear test
    const double old = a[1][2].item<double>(), up = at(old + 1e-5), down = at(old - 1e-5);
    CHECK((up - down) / 2e-5 == Approx(got).epsilon(1e-5));
  }
}

TEST_CASE("adapters over a bfloat16 base are float32") {
  const auto policy = decoder("llama", at::kBFloat16);
  model::attach_lora(*policy, everything(), 1);
  for (const auto& p : policy->parameters()) CHECK(p.value.scalar_type() == at::kFloat);
  loss(*policy).backward();
  for (const auto& g : take_gradients(*policy)) CHECK(g.scalar_type() == at::kFloat);
}

TEST_CASE("wrong settings are refused by number") {
  const auto attach = [](model::LoraConfig config) {
    return raised_by([&] { model::attach_lora(*decoder("llama"), config, 1); });
  };
  CHECK(lacks(attach({.target_modules = {"q_prj"}}), {"model.23", "q_prj", "q_proj"}) == "");
  CHECK(lacks(attach({}), {"model.23", "target_modules"}) == "");
  CHECK(lacks(attach({.target_modules = {"q_proj"}, .modules_to_save = {"heads"}}), {"model.23", "heads"}) == "");
  CHECK(lacks(attach({.r = 0, .target_modules = {"q_proj"}}), {"model.24", "r"}) == "");
  CHECK(lacks(attach({.r = 1000000000, .target_modules = {"q_proj"}}), {"model.24", "1000000000", "1 to 16384"}) == "");
  CHECK(lacks(attach({.r = 3, .target_modules = {"q_proj"}, .init = model::LoraInit::orthogonal}),
              {"model.24", "even"}) == "");
  CHECK(lacks(attach({.r = 99, .target_modules = {"q_proj"}, .init = model::LoraInit::pissa}), {"model.24", "99"}) ==
        "");
  CHECK(lacks(attach({.target_modules = {"embed_tokens"}}), {"model.25", "modules_to_save"}) == "");
  CHECK(lacks(attach({.target_pattern = "q_(proj"}), {"model.26", "q_(proj"}) == "");
  const auto policy = decoder("llama");
  model::attach_lora(*policy, everything(), 1);
  CHECK(lacks(raised_by([&] { model::attach_lora(*policy, everything(), 1); }), {"model.27"}) == "");
}
