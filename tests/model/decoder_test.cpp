#include <rlalgo/model/decoder.hpp>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

struct Row {
  std::vector<std::int32_t> prompt, completion;
};

std::vector<model::Sequence> views(const std::vector<Row>& rows) {
  std::vector<model::Sequence> out;
  for (const auto& row : rows) out.push_back({row.prompt, row.completion});
  return out;
}

// Norms and biases are not left at 1 and 0, where mistakes with them would not show.
std::unique_ptr<model::Decoder> decoder(const model::Json& json, at::ScalarType dtype = at::kDouble) {
  auto out = model::random_decoder(model::parse_hf_config(json, "test"), 3, dtype);
  const c10::NoGradGuard no_grad;
  for (auto& p : out->parameters())
    if (!p.weight_decay) p.value.add_(at::randn_like(p.value) * 0.3);
  return out;
}

std::vector<std::int32_t> draw(std::uint64_t stream, std::size_t n) {
  std::vector<std::int32_t> out(n);
  for (std::size_t i = 0; i < n; ++i)
    out[i] = static_cast<std::int32_t>(core::uniform({5, core::Stream::test}, stream, i) * 23);
  return out;
}

model::TokenTree whole(const std::vector<std::int64_t>& ids) {
  std::vector<std::int32_t> tokens(ids.begin(), ids.end());
  const std::vector<Row> rows = {{tokens, {}}};
  return model::build_tree(views(rows), {.keep_last = true});
}

std::vector<at::Tensor> take_gradients(model::Decoder& policy) {
  std::vector<at::Tensor> out;
  for (auto& p : policy.parameters()) {
    out.push_back(p.value.grad().defined() ? p.value.grad().clone() : at::zeros_like(p.value));
    p.value.mutable_grad() = at::Tensor();
  }
  return out;
}

}  // namespace

// Random decays make linear attention ill-conditioned: of qwen3_5, transformers' own gradients in float32 are 6e-5 from those in
// float64, and one rounding of a gate may be 2e-4 of a gradient in qwen3_next, whose rule cannot be run in float64 there.
TEST_CASE("logits and gradients equal those of transformers for every architecture") {
  for (const std::string name : {"llama",          "llama3_rope",  "qwen2",         "qwen3",         "mistral",
                                 "smollm3",        "qwen2_window", "llama_dynamic", "qwen3_yarn",    "gemma3",
                                 "gemma3_v5",      "gemma2",       "olmo2",         "phi3",          "phi3_longrope",
                                 "glm4",           "granite",      "qwen3_moe",     "qwen3_moe_v5",  "qwen2_moe",
                                 "mixtral",        "cohere2",      "gpt_oss",       "gpt_oss_mxfp4", "qwen3_moe_joined",
                                 "mixtral_joined", "qwen3_5",      "qwen3_5_tied",  "qwen3_5_moe",   "qwen3_next"}) {
    const auto folder = std::filesystem::path(rlalgo::support::test_dir) / "golden/model" / name;
    const auto policy = model::load_decoder(folder);
    const double widening = policy->config().spec(0).delta.present() ? 20.0 : 1.0;
    const auto expected = model::read_safetensors(folder / "expected.safetensors");
    std::vector<Row> rows;
    for (const std::string n : {"0", "1"}) {
      const at::Tensor ids = expected.at("ids." + n);
      const auto logits = policy->logits(whole(std::vector<std::int64_t>(
          ids.const_data_ptr<std::int64_t>(), ids.const_data_ptr<std::int64_t>() + ids.numel())));
      INFO(name << " sequence " << n);
      REQUIRE(logits.sizes() == expected.at("logits." + n).sizes());
      CHECK((logits - expected.at("logits." + n)).abs().max().item<double>() < 5e-5 * widening);
      if (ids.numel() < 2) continue;
      Row row{{static_cast<std::int32_t>(ids[0].item<std::int64_t>())}, {}};
      for (std::int64_t i = 1; i < ids.numel(); ++i)
        row.completion.push_back(static_cast<std::int32_t>(ids[i].item<std::int64_t>()));
      rows.push_back(row);
    }
    policy->score(model::build_tree(views(rows)), {}).log_prob.sum().neg().backward();
    std::size_t checked = 0;
    for (const auto& p : policy->parameters()) {
      if (!expected.contains("grad." + p.name)) continue;
      INFO(name << " " << p.name);
      const auto want = expected.at("grad." + p.name);
      CHECK((p.value.grad() - want).abs().max().item<double>() <
            2e-5 * widening * (1 + want.abs().max().item<double>()));
      ++checked;
    }
    CHECK(checked >= 10);
  }
}

// The same product in bfloat16 has as many roundings in another order, so neither can be told from the other: both are
// about as far from the exact logits of the rounded weights.
TEST_CASE("bfloat16 logits are within bfloat16's rounding of those of transformers in bfloat16") {
  for (const std::string name : {"llama",          "llama3_rope",  "qwen2",         "qwen3",         "mistral",
                                 "smollm3",        "qwen2_window", "llama_dynamic", "qwen3_yarn",    "gemma3",
                                 "gemma3_v5",      "gemma2",       "olmo2",         "phi3",          "phi3_longrope",
                                 "glm4",           "granite",      "qwen3_moe",     "qwen3_moe_v5",  "qwen2_moe",
                                 "mixtral",        "cohere2",      "gpt_oss",       "gpt_oss_mxfp4", "qwen3_moe_joined",
                                 "mixtral_joined", "qwen3_5",      "qwen3_5_tied",  "qwen3_5_moe",   "qwen3_next"}) {
    const auto folder = std::filesystem::path(rlalgo::support::test_dir) / "golden/model" / name;
    const auto low = model::load_decoder(folder, at::kBFloat16), exact = model::load_decoder(folder, at::kDouble);
    {
      const c10::NoGradGuard no_grad;
      for (auto& p : exact->parameters()) p.value.copy_(p.value.to(at::kBFloat16));
    }
    const auto expected = model::read_safetensors(folder / "expected.safetensors");
    const at::Tensor ids = expected.at("ids.1"), theirs = expected.at("bf16.1").to(at::kDouble);
    const auto tree = whole(std::vector<std::int64_t>(ids.const_data_ptr<std::int64_t>(),
                                                      ids.const_data_ptr<std::int64_t>() + ids.numel()));
    REQUIRE(low->dtype() == at::kBFloat16);
    const at::Tensor ours = low->logits(tree).to(at::kDouble), truth = exact->logits(tree);
    const auto distance = [](const at::Tensor& a, const at::Tensor& b) { return (a - b).norm().item<double>(); };
    INFO(name);
    const double noise = distance(theirs, truth);
    CHECK(noise > 0.0);
    CHECK(distance(ours, truth) < 1.5 * noise);
    CHECK(distance(ours, theirs) < 2.0 * noise);
    CHECK(noise < (name == "qwen3_next" ? 0.1 : 0.05) * truth.norm().item<double>());  // a narrow model of big decays
  }
}

TEST_CASE("gradients in bfloat16 are those of float32 but for rounding") {
  const auto folder =
      std::filesystem::path(rlalgo::support::test_dir) / "golden/model/qwen3";  // its file is in bfloat16
  const auto low = model::load_decoder(folder, at::kBFloat16), full = model::load_decoder(folder);
  const std::vector<Row> rows = {{{5, 6, 7}, {8, 9, 10, 11, 12}}, {{5, 6}, {13, 14, 15}}};
  for (auto* policy : {low.get(), full.get()}) {
    const auto scores = policy->score(model::build_tree(views(rows)), {});
    CHECK(scores.log_prob.scalar_type() == at::kFloat);
    scores.log_prob.sum().neg().backward();
  }
  const auto a = low->parameters(), b = full->parameters();
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    INFO(a[i].name);
    CHECK(a[i].value.grad().scalar_type() == at::kBFloat16);
    const double error = (a[i].value.grad().to(at::kFloat) - b[i].value.grad()).norm().item<double>();
    CHECK(error < 0.05 * b[i].value.grad().norm().item<double>());
  }
}

TEST_CASE("a tree scores like its rows one by one, values and gradients") {
  const auto shared = draw(1, 9), tail = draw(2, 6), other = draw(3, 7);
  const auto join = [](std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  const std::vector<std::vector<Row>> batches = {
      {{shared, draw(4, 5)}, {shared, draw(5, 1)}, {shared, draw(6, 8)}, {shared, {}}},            // a group
      {{shared, join(tail, {1, 2})}, {shared, join(tail, {3})}, {shared, join(tail, {1, 4, 4})}},  // late forks
      {{shared, tail}, {other, tail}, {draw(7, 1), draw(8, 2)}},                                   // packed
      {{shared, tail},
       {shared, tail},
       {shared, join(tail, other)},
       {join(shared, tail), other}},  // duplicates, prefixes
      {{draw(9, 150), draw(10, 3)}, {draw(9, 150), draw(11, 140)}, {join(draw(9, 20), {1}), draw(12, 4)}},  // long
  };
  for (const char* type : {"llama", "qwen3"}) {
    const auto policy = decoder(rlalgo::support::small_config(type));
    for (const auto& rows : batches) {
      const auto tree = model::build_tree(views(rows));
      // A different weight for each target, so that an exchange of two would show.
      const auto weight =
          at::linspace(0.5, 1.5, std::max<std::int64_t>(tree.targets(), 1), at::kDouble).narrow(0, 0, tree.targets());
      const auto scores = policy->score(tree, {.temperature = 0.8, .entropy = true, .entropy_gradient = true});
      (scores.log_prob * weight + scores.entropy * 0.1).sum().backward();
      const auto gradients = take_gradients(*policy);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const auto single = policy->score(model::build_tree(views({rows[r]})),
                                          {.temperature = 0.8, .entropy = true, .entropy_gradient = true});
        const auto begin = tree.row_begin[r], size = tree.row_begin[r + 1] - begin;
        CHECK(single.log_prob.allclose(scores.log_prob.narrow(0, begin, size).detach(), 1e-10, 1e-10));
        CHECK(single.entropy.allclose(scores.entropy.narrow(0, begin, size).detach(), 1e-10, 1e-10));
        (single.log_prob * weight.narrow(0, begin, size) + single.entropy * 0.1).sum().backward();
      }
      const auto separate = take_gradients(*policy);
      for (std::size_t i = 0; i < separate.size(); ++i) CHECK(gradients[i].allclose(separate[i], 1e-9, 1e-9));
    }
  }
}

TEST_CASE("checkpointing computes the same gradients to the bit, with windows and without") {
  for (const char* name : {"qwen2", "mistral", "smollm3", "qwen3_5"}) {
    const auto folder = std::filesystem::path(rlalgo::support::test_dir) / "golden/model" / name;
    const auto plain = model::load_decoder(folder), saving = model::load_decoder(folder);
    saving->set_checkpointing(true);
    const std::vector<Row> rows = {{draw(1, 9), draw(2, 12)}, {draw(1, 9), draw(3, 5)}, {draw(4, 3), draw(5, 4)}};
    const auto tree = model::build_tree(views(rows));
    for (auto* policy : {plain.get(), saving.get()}) policy->score(tree, {}).log_prob.square().sum().backward();
    const auto want = take_gradients(*plain), got = take_gradients(*saving);
    for (std::size_t i = 0; i < want.size(); ++i) CHECK(got[i].equal(want[i]));
  }
}

TEST_CASE("a tree with windows scores like its rows one by one, values and gradients") {
  for (const std::int64_t window : {1, 3, 6, 40}) {
    auto json = rlalgo::support::small_config("mistral");
    json["sliding_window"] = window;
    const auto policy = decoder(json);
    const auto shared = draw(1, 11);
    const std::vector<Row> rows = {
        {shared, draw(4, 5)}, {shared, draw(5, 14)}, {draw(6, 90), draw(7, 20)}, {draw(6, 70), draw(8, 2)}};
    const auto scores = policy->score(model::build_tree(views(rows)), {}).log_prob;
    scores.square().sum().backward();
    const auto together = take_gradients(*policy);
    std::int64_t begin = 0;
    for (const auto& row : rows) {
      const auto single = policy->score(model::build_tree(views({row})), {}).log_prob;
      CHECK(single.allclose(scores.narrow(0, begin, single.numel()).detach(), 1e-10, 1e-10));
      begin += single.numel();
      single.square().sum().backward();
    }
    const auto apart = take_gradients(*policy);
    for (std::size_t i = 0; i < apart.size(); ++i) CHECK(together[i].allclose(apart[i], 1e-9, 1e-9));
  }
}

TEST_CASE("gradients of a one-layer model equal finite differences in every parameter") {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    auto json = rlalgo::support::small_config(type);
    json["num_hidden_layers"] = 1;
    json["hidden_size"] = 6;
    json["intermediate_size"] = 5;
    json["vocab_size"] = 9;
    json["head_dim"] = 4;
    const auto policy = decoder(json);
    const std::vector<Row> rows = {{{1, 2, 3}, {4, 5, 6}}, {{1, 2, 3}, {7, 8}}};
    const auto tree = model::build_tree(views(rows));
    const auto loss = [&] { return policy->score(tree, {.temperature = 1.3}).log_prob.square().sum(); };
    loss().backward();
    const c10::NoGradGuard no_grad;
    for (auto& p : policy->parameters()) {
      auto* data = p.value.mutable_data_ptr<double>();
      const at::Tensor gradient = p.value.grad();
      const auto* got = gradient.const_data_ptr<double>();
      double worst = 0;
      for (std::int64_t i = 0; i < p.value.numel(); ++i) {
        const double old = data[i], step = 1e-5;
        data[i] = old + step;
        const double up = loss().item<double>();
        data[i] = old - step;
        const double down = loss().item<double>();
        data[i] = old;
        worst = std::max(worst, std::abs((up - down) / (2 * step) - got[i]) / (1 + std::abs(got[i])));
      }
      INFO(type << " " << p.name);
      CHECK(worst < 1e-6);
    }
  }
}

TEST_CASE("micro-batches add their gradients; without gradient there is no graph") {
  const auto policy = decoder(rlalgo::support::small_config("qwen2"));
  const std::vector<Row> rows = {{draw(1, 4), draw(2, 3)}, {draw(3, 2), draw(4, 5)}};
  const auto loss = [&](const std::vector<Row>& part) {
    return policy->score(model::build_tree(views(part)), {}).log_prob.sum();
  };
  loss(rows).backward();
  const auto together = take_gradients(*policy);
  loss({rows[0]}).backward();
  loss({rows[1]}).backward();
  const auto apart = take_gradients(*policy);
  for (std::size_t i = 0; i < apart.size(); ++i) CHECK(apart[i].allclose(together[i], 1e-12, 1e-12));
  const c10::NoGradGuard no_grad;
  CHECK_FALSE(loss(rows).requires_grad());
}

TEST_CASE("hidden states carry gradient, and logits are the head over them") {
  const auto policy = decoder(rlalgo::support::small_config("qwen3"));
  const auto tree = whole({1, 2, 3, 4});
  const auto hidden = policy->hidden_states(tree);
  CHECK(hidden.sizes() == at::IntArrayRef{4, 12});
  CHECK(policy->logits(tree).allclose(at::mm(hidden.detach(), policy->weights().lm_head.detach().t())));
  hidden.square().sum().backward();
  const auto gradients = take_gradients(*policy);
  // The same through the head: Σ (h·w)² over an orthonormal w would be equal; here only that every layer got something.
  for (const auto& p : policy->parameters()) CHECK((p.name == "lm_head.weight" || p.value.requires_grad()));
  CHECK(gradients.back().abs().sum().item<double>() > 0);
}

TEST_CASE("parameters come in the order of the file, without decay on norms and biases") {
  const auto policy = decoder(rlalgo::support::small_config("llama"));
  std::string previous;
  for (const auto& p : policy->parameters()) {
    CHECK(previous < p.name);
    previous = p.name;
    CHECK(p.value.is_leaf());
    CHECK(p.weight_decay == !(p.name.ends_with(".bias") || p.name.find("norm") != std::string::npos));
  }
  CHECK(policy->weights().lm_head.is_same(policy->weights().embedding));
}

TEST_CASE("weights that are not trained get no gradient and do not disturb the others") {
  const auto policy = decoder(rlalgo::support::small_config("llama"));
  const std::vector<Row> rows = {{draw(1, 4), draw(2, 3)}};
  const auto tree = model::build_tree(views(rows));
  policy->score(tree, {}).log_prob.sum().backward();
  const at::Tensor expected = policy->weights().layers[1].q_proj.weight.grad().clone();
  take_gradients(*policy);
  policy->set_trained(false);
  CHECK(policy->parameters().empty());
  CHECK_FALSE(policy->score(tree, {}).log_prob.requires_grad());
  at::Tensor only = policy->weights().layers[1].q_proj.weight;
  only.requires_grad_(true);
  policy->score(tree, {}).log_prob.sum().backward();
  CHECK(policy->parameters().size() == 1);
  CHECK(only.grad().allclose(expected, 1e-12, 1e-12));
  CHECK_FALSE(policy->weights().embedding.grad().defined());
}

TEST_CASE("a frozen copy keeps its values when the original moves") {
  const auto policy = decoder(rlalgo::support::small_config("llama"));
  const auto copy = policy->frozen_copy();
  const auto tree = whole({1, 2, 3});
  const auto before = policy->logits(tree);
  CHECK(copy->parameters().empty());
  CHECK(copy->weights().lm_head.is_same(copy->weights().embedding));
  {
    const c10::NoGradGuard no_grad;
    for (auto& p : policy->parameters()) p.value.mul_(1.5);
  }
  CHECK(copy->logits(tree).equal(before));
  CHECK_FALSE(policy->logits(tree).allclose(before));
}

TEST_CASE("a batch without targets scores to nothing and can be differentiated") {
  const auto policy = decoder(rlalgo::support::small_config("qwen2"));
  const std::vector<Row> rows = {{{1, 2}, {}}, {{3}, {}}};
  const auto scores = policy->score(model::build_tree(views(rows)), {.entropy = true});
  CHECK(scores.log_prob.numel() == 0);
  CHECK(scores.entropy.numel() == 0);
  scores.log_prob.sum().backward();
  for (const auto& p : policy->parameters())
    CHECK((!p.value.grad().defined() || p.value.grad().abs().sum().item<double>() == 0));
}

TEST_CASE("bfloat16 and float32 scores stay near float64") {
  const std::vector<Row> rows = {{draw(1, 12), draw(2, 9)}, {draw(1, 12), draw(3, 4)}};
  const auto tree = model::build_tree(views(rows));
  const auto hf = model::parse_hf_config(rlalgo::support::small_config("qwen3"), "test");
  const auto score = [&](at::ScalarType type) { return model::random_decoder(hf, 1, type)->score(tree, {}).log_prob; };
  const auto exact = score(at::kDouble).detach();
  const auto single = score(at::kFloat);
  CHECK(single.to(at::kDouble).allclose(exact, 1e-4, 1e-4));
  const auto half = score(at::kBFloat16);
  CHECK(half.to(at::kDouble).allclose(exact, 0.1, 0.25));
  half.sum().backward();
}

TEST_CASE("wrong use is refused by number") {
  const auto policy = decoder(rlalgo::support::small_config("llama"));
  CHECK(lacks(raised_by([&] { (void)policy->logits(whole({1, 23})); }), {"model.17", "23", "22"}) == "");
  const std::vector<Row> rows = {{{1, 2}, {3}}};
  const auto loss = policy->score(model::build_tree(views(rows)), {}).log_prob.sum();
  loss.backward({}, /*retain_graph=*/true);
  CHECK(lacks(raised_by([&] { loss.backward(); }), {"model.18", "twice"}) == "");
  CHECK(lacks(raised_by([&] { (void)model::random_decoder(policy->hf_config(), 1, at::kLong)->logits(whole({1})); }),
              {"model.15", "Long"}) == "");
}

namespace {

// How many threads there are while a layer is computed.
struct Watch final : model::LayerGate {
  void acquire(const Visit&) override { threads.push_back(at::get_num_threads()); }
  void release(const Visit&) noexcept override {}
  void gradient_ready(std::int64_t) override {}
  std::vector<int> threads;
};

}  // namespace

TEST_CASE("passes of small products run on one thread and leave the number as it was") {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  const auto policy = decoder(support::small_config("qwen3"));
  const auto watch = std::make_shared<Watch>();
  policy->set_gate(watch);
  const std::vector<Row> rows = {{draw(1, 5), draw(2, 9)}};
  (void)policy->score(model::build_tree(views(rows)), {});
  (void)policy->features(model::build_tree(views(rows)), std::vector<std::int64_t>{1});
  REQUIRE_FALSE(watch->threads.empty());
  for (const int threads : watch->threads) CHECK(threads == 1);
  CHECK(at::get_num_threads() == 2);
  at::set_num_threads(before);
  // q, k, v, o, gate, up and down, a multiplication and an addition for each weight and token
  double weights = 0;
  for (const auto& [name, value] : policy->named_tensors())
    if (name.find("layers.0.") != std::string::npos && name.find("proj.weight") != std::string::npos)
      weights += static_cast<double>(value.numel());
  CHECK(policy->product_flops(100) == Approx(2 * 100 * weights / 7));
}
