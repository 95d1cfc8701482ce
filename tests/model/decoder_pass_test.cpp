#include <rlalgo/model/decoder_pass.hpp>

#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>
#include <rlalgo/tensor/threads.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

const std::vector<std::string> architectures = {
    "llama",         "llama3_rope", "qwen2",       "qwen3",     "mistral",   "smollm3", "qwen2_window",
    "llama_dynamic", "qwen3_yarn",  "gemma3",      "gemma3_v5", "gemma2",    "olmo2",   "phi3",
    "phi3_longrope", "glm4",        "granite",     "qwen3_moe", "qwen2_moe", "mixtral", "cohere2",
    "gpt_oss",       "qwen3_5",     "qwen3_5_moe", "qwen3_next"};

std::unique_ptr<model::Decoder> golden(const std::string& name, at::ScalarType type) {
  return model::load_decoder(std::filesystem::path(rlalgo::support::test_dir) / "golden/model" / name, type);
}

// Two groups that share a system prompt, a late fork, a row that is a prefix of another and one of its own.
model::TokenTree shared_tree() {
  static const std::vector<std::vector<std::int32_t>> prompts = {{1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 9},
                                                                 {1, 2, 9},    {1, 2, 9},    {7}};
  static const std::vector<std::vector<std::int32_t>> completions = {
      {5, 6, 7}, {5, 6, 8, 9, 10, 11, 12}, {3, 1}, {3, 1, 4, 1, 5, 9, 2, 6}, {2}, {8, 9, 3}};
  std::vector<model::Sequence> rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) rows.push_back({prompts[i], completions[i]});
  return model::build_tree(rows);
}

std::map<std::string, at::Tensor> take_gradients(model::Decoder& policy) {
  std::map<std::string, at::Tensor> out;
  for (auto& p : policy.parameters()) {
    if (p.value.grad().defined()) out[p.name] = p.value.grad().clone();
    p.value.mutable_grad() = at::Tensor();
  }
  return out;
}

// A loss that weighs every target differently.
at::Tensor loss(model::Decoder& policy, std::uint64_t draw = 0) {
  const auto tree = shared_tree();
  const auto scores = policy.score(tree, {.temperature = 0.9, .entropy = true, .entropy_gradient = true, .draw = draw});
  const auto weight = at::linspace(0.5, 1.5, tree.targets(), scores.log_prob.options());
  return (scores.log_prob * weight + scores.entropy * 0.1).sum();
}

void attach(model::Decoder& policy, bool dora = false, double dropout = 0.0) {
  model::attach_lora(policy,
                     {.r = 3,
                      .alpha = 5,
                      .dropout = dropout,
                      .target_pattern = "all-linear",
                      .use_dora = dora,
                      .init = model::LoraInit::random},
                     1);
}

// The same decoder without memory.
std::unique_ptr<model::Decoder> without_memory(const model::Decoder& policy) {
  const auto moved = [&](model::DecoderWeights weights) {
    const auto move = [](at::Tensor& x) {
      if (x.defined()) x = x.detach().to(at::kMeta).requires_grad_(x.requires_grad());
    };
    const bool tied = weights.lm_head.is_same(weights.embedding);
    model::visit_weights(policy.config(), weights,
                         [&](const std::string&, at::Tensor& value, const auto&, model::WeightRole) { move(value); });
    model::visit_loras(policy.config(), weights, [&](const std::string&, model::Lora& lora, const at::Tensor&) {
      move(lora.a);
      move(lora.b);
      move(lora.magnitude);
    });
    if (tied) weights.lm_head = weights.embedding;
    return weights;
  };
  auto out = std::make_unique<model::Decoder>(policy.hf_config(), moved(policy.weights()));
  if (const auto* adapter = policy.adapter())
    out->adapt({adapter->config, adapter->continued, adapter->seed, moved(adapter->base)}, moved(policy.weights()));
  return out;
}

// The residual stream of one pass, straight from the layers: [layers + 1] as transformers numbers them.
std::vector<at::Tensor> hidden_states(const model::Decoder& policy, const model::TokenTree& tree) {
  const c10::NoGradGuard no_grad;
  // ATen's products of float64 depend on the number of threads.
  const auto limit = tensor::ThreadLimit::of_products(policy.product_flops(tree.tokens()));
  const auto& c = policy.config();
  const auto& ops = model::operations_for(at::kCPU);
  std::vector<model::RopeTable> ropes;
  for (std::size_t i = 0; i < c.ropes.size(); ++i)
    ropes.push_back(model::rope_table(policy.rope_frequencies_table()[i], tree.positions, c.ropes[i]));
  const auto embedded = policy.weights().embedding.detach().index_select(0, at::tensor(tree.ids));
  std::vector<at::Tensor> out = {embedded * model::embedding_scale(c, embedded.scalar_type())};
  for (std::size_t i = 0; i < policy.weights().layers.size(); ++i) {
    const auto& spec = c.spec(static_cast<std::int64_t>(i));
    auto layout = ops.lay_out(model::plan_attention(tree, spec.window), at::kCPU);
    layout.scale = spec.score_scale;
    layout.cap = spec.score_cap;
    const auto* rope = spec.rotary() ? &ropes[static_cast<std::size_t>(spec.rope)] : nullptr;
    out.push_back(
        model::layer_forward({c, spec, ops, layout, rope}, policy.weights().layers[i], out.back(), {}, nullptr));
  }
  out.back() = ops.rms_norm(out.back(), policy.weights().final_norm, c.norm).value;
  return out;
}

using Visit = model::LayerGate::Visit;

// Writes down every call, and overwrites the weights of a layer while nobody holds it.
class Shards : public model::LayerGate {
 public:
  explicit Shards(model::Decoder& policy) {
    for (const auto& layer : policy.weights().layers) {
      auto& held = layers_.emplace_back();
      const auto keep = [&](const at::Tensor& x) {
        if (x.defined()) held.push_back({x.detach(), x.detach().clone(), x});
      };
      for (const auto& x : {layer.attention_norm, layer.q_norm, layer.k_norm, layer.attention_output_norm,
                            layer.mlp_norm, layer.mlp_output_norm})
        keep(x);
      for (const auto* map : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj, &layer.gate_proj,
                              &layer.up_proj, &layer.down_proj})
        for (const auto& x : {map->weight, map->bias, map->lora.a, map->lora.b, map->lora.magnitude}) keep(x);
      spoil(layers_.size() - 1);
    }
  }

  void acquire(const Visit& visit) override {
    calls.push_back((visit.phase == Phase::forward ? "F" : "B") + std::to_string(visit.layer) + ">" +
                    std::to_string(visit.next));
    for (auto& w : layers_[static_cast<std::size_t>(visit.layer)]) w.memory.copy_(w.value);
  }
  void release(const Visit& visit) noexcept override {
    calls.push_back("-" + std::to_string(visit.layer));
    spoil(static_cast<std::size_t>(visit.layer));
  }
  void gradient_ready(std::int64_t layer) override {
    calls.push_back("G" + std::to_string(layer));
    for (std::size_t l = 0; l < layers_.size(); ++l)
      for (const auto& w : layers_[l])
        if (w.parameter.requires_grad()) {
          const at::Tensor gradient = w.parameter.grad();
          if (static_cast<std::int64_t>(l) < layer) REQUIRE_FALSE(gradient.defined());
          if (static_cast<std::int64_t>(l) == layer) ready.emplace_back(gradient, gradient.clone());
        }
  }

  std::vector<std::string> calls;
  std::vector<std::pair<at::Tensor, at::Tensor>> ready;  // a gradient, and what it was when it was said to be ready

 private:
  void spoil(std::size_t layer) {
    for (auto& w : layers_[layer]) w.memory.fill_(std::numeric_limits<double>::quiet_NaN());
  }
  struct Weight {
    at::Tensor memory, value, parameter;
  };
  std::vector<std::vector<Weight>> layers_;
};

std::string joined(const std::vector<std::string>& calls) {
  std::string out;
  for (const auto& call : calls) out += (out.empty() ? "" : " ") + call;
  return out;
}

}  // namespace

TEST_CASE("both versions of the operations give one decoder, in every architecture, values and gradients") {
  const model::AtenOperations aten;
  for (const auto& name : architectures) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      const double tolerance = type == at::kDouble ? 1e-9 : 1e-3;
      const auto cpu = golden(name, type), neutral = golden(name, type);
      neutral->use_operations(aten);
      const auto a = loss(*cpu), b = loss(*neutral);
      INFO(name << " " << c10::toString(type));
      CHECK(a.item<double>() == Approx(b.item<double>()).epsilon(tolerance / 100));
      a.backward();
      b.backward();
      const auto want = take_gradients(*cpu), got = take_gradients(*neutral);
      REQUIRE(got.size() == want.size());
      for (const auto& [parameter, gradient] : want) {
        INFO(parameter);
        const double scale = 1.0 + gradient.abs().max().item<double>();
        CHECK((got.at(parameter) - gradient).abs().max().item<double>() < tolerance * scale);
      }
    }
  }
}

TEST_CASE("both versions of the operations give one adapter, with DoRA, dropout and checkpointing") {
  const model::AtenOperations aten;
  for (const bool dora : {false, true}) {
    const auto cpu = golden("qwen3", at::kDouble), neutral = golden("qwen3", at::kDouble);
    neutral->use_operations(aten);
    for (auto* policy : {cpu.get(), neutral.get()}) {
      attach(*policy, dora, 0.4);
      policy->set_checkpointing(true);
      loss(*policy, 3).backward();
    }
    const auto want = take_gradients(*cpu), got = take_gradients(*neutral);
    REQUIRE(want.size() > 10);
    for (const auto& [parameter, gradient] : want) {
      INFO(parameter);
      CHECK(got.at(parameter).allclose(gradient, 1e-9, 1e-9));
    }
  }
}

// Kernels that read or wrote memory would find none.
TEST_CASE("the whole decoder runs on a device without memory: forward, head, backward") {
  for (const auto& name : architectures) {
    for (const bool adapted : {false, true}) {
      for (const bool checkpointed : {false, true}) {
        const auto policy = golden(name, at::kFloat);
        bool routed = false;  // the host reads which experts a router chose
        for (const model::LayerSpec& spec : policy->config().specs) routed = routed || spec.experts.count > 0;
        if (routed) continue;
        if (adapted) attach(*policy, name == "qwen3", 0.3);
        const auto far = without_memory(*policy);
        far->set_checkpointing(checkpointed);
        const auto tree = shared_tree();
        const auto scores =
            far->score(tree, {.entropy = true, .entropy_gradient = true, .token_statistics = true, .collision = true});
        INFO(name << (adapted ? " adapted" : "") << (checkpointed ? " checkpointed" : ""));
        CHECK(scores.log_prob.is_meta());
        CHECK(scores.log_prob.numel() == tree.targets());
        CHECK(scores.mean_logit.numel() == tree.targets());
        (scores.log_prob.sum() + scores.entropy.sum()).backward();
        const auto parameters = far->parameters();
        REQUIRE(parameters.size() == policy->parameters().size());
        for (const auto& p : parameters) {
          INFO(p.name);
          REQUIRE(p.value.grad().defined());
          CHECK(p.value.grad().is_meta());
          CHECK(p.value.grad().sizes() == p.value.sizes());
        }
        const std::vector<std::int64_t> layers = {0, 1};
        CHECK(far->features(tree, layers).back().sizes() == at::IntArrayRef{tree.tokens(), far->config().hidden_size});
        const c10::NoGradGuard no_grad;
        CHECK(far->logits(tree).size(1) == far->config().vocab_size);
      }
    }
  }
}

TEST_CASE("features are the residual stream of the full pass, in the order that was asked for") {
  const auto tree = shared_tree();
  for (const auto& name : {"llama", "qwen3", "smollm3", "qwen2_window", "gemma3", "gemma2", "qwen2_moe", "cohere2"}) {
    const auto policy = golden(name, at::kDouble);
    const std::int64_t n = policy->config().layers;
    const auto expected = hidden_states(*policy, tree);
    const std::vector<std::int64_t> layers = {n, 0, 1, 1, n - 1};
    for (const bool graph : {false, true}) {
      const c10::AutoGradMode mode(graph);
      const auto got = policy->features(tree, layers);
      REQUIRE(got.size() == layers.size());
      for (std::size_t i = 0; i < layers.size(); ++i) {
        INFO(name << " layer " << layers[i]);
        CHECK(got[i].sizes() == at::IntArrayRef{tree.tokens(), policy->config().hidden_size});
        CHECK(got[i].requires_grad() == graph);
        CHECK(got[i].equal(expected[static_cast<std::size_t>(layers[i])]));
      }
    }
    CHECK(policy->hidden_states(tree).equal(expected.back()));
    CHECK(policy->features(tree, {}).empty());
  }
}

TEST_CASE("features run no layer above the highest, and never the head") {
  const auto policy = golden("llama", at::kDouble);
  const auto gate = std::make_shared<Shards>(*policy);
  policy->set_gate(gate);
  const std::vector<std::int64_t> none = {0}, first = {0, 1};
  // A head of a wrong shape: a pass that computes with it fails.
  auto weights = policy->weights();
  weights.lm_head = at::ones({3, 1}, at::kDouble);
  model::Decoder headless(policy->hf_config(), weights);
  headless.set_gate(gate);
  const c10::NoGradGuard no_grad;
  const auto tree = shared_tree();
  CHECK(headless.features(tree, none)[0].isfinite().all().item<bool>());
  CHECK(gate->calls.empty());
  CHECK(headless.features(tree, first)[1].isfinite().all().item<bool>());
  CHECK(joined(gate->calls) == "F0>-1 -0");
  CHECK(lacks(raised_by([&] { (void)headless.score(tree, {}); }), {"tensor.1", "head weight"}) == "");
}

// (f(θ + ε d) − f(θ − ε d)) / 2ε against Σ gradient·d.
TEST_CASE("the gradient of features at several layers equals a finite difference, all weights at once") {
  for (const bool adapted : {false, true}) {
    for (const bool checkpointed : {false, true}) {
      const auto policy = golden("qwen3", at::kDouble);
      if (adapted) attach(*policy, false, 0.4);  // features know no dropout
      policy->set_checkpointing(checkpointed);
      const auto tree = shared_tree();
      const std::int64_t n = policy->config().layers;
      for (const auto& layers : {std::vector<std::int64_t>{0, 1, 1, n}, {1}, {n, 0}}) {
        std::vector<at::Tensor> weights;
        for (std::size_t i = 0; i < layers.size(); ++i)
          weights.push_back(at::randn({tree.tokens(), policy->config().hidden_size}, at::kDouble));
        const auto value = [&] {
          const auto features = policy->features(tree, layers);
          at::Tensor sum = at::zeros({}, at::kDouble);
          for (std::size_t i = 0; i < layers.size(); ++i) sum = sum + (features[i] * weights[i]).sum();
          return sum;
        };
        value().backward();
        const auto gradients = take_gradients(*policy);
        const c10::NoGradGuard no_grad;
        double expected = 0.0;
        std::vector<at::Tensor> direction;
        for (auto& p : policy->parameters()) {
          direction.push_back(at::randn_like(p.value));
          if (gradients.contains(p.name)) expected += (gradients.at(p.name) * direction.back()).sum().item<double>();
        }
        const auto moved = [&](double step) {
          std::size_t i = 0;
          for (auto& p : policy->parameters()) p.value.add_(direction[i++], step);
          const double out = value().item<double>();
          i = 0;
          for (auto& p : policy->parameters()) p.value.sub_(direction[i++], step);
          return out;
        };
        const double slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
        INFO((adapted ? "adapted " : "") << layers.size() << " taps");
        CHECK(slope == Approx(expected).epsilon(1e-5).margin(1e-4));
      }
    }
  }
}

TEST_CASE("what a padding token feeds in trains no row of the input embedding") {
  for (const char* const type : {"qwen3", "llama"}) {  // an output embedding of its own, and a tied one
    const auto embedding_gradient = [&](std::int64_t padding) {
      model::Json json = support::small_config(type);
      if (padding >= 0) json["pad_token_id"] = padding;
      const auto policy = model::random_decoder(model::parse_hf_config(json, "test"), 5);
      const auto loss = policy->score(shared_tree(), {}).log_prob.sum();
      loss.backward();
      return take_gradients(*policy).at("model.embed_tokens.weight");
    };
    const at::Tensor all = embedding_gradient(-1), padded = embedding_gradient(3);
    const at::Tensor changed = all.ne(padded).any(1);  // [V]
    CHECK(changed.sum().item<std::int64_t>() == 1);
    CHECK(changed[3].item<bool>());
    CHECK(all[3].norm().item<double>() > 1e-3);
    CHECK((padded[3].norm().item<double>() > 0) == (type == std::string("llama")));  // as an output it is trained
    CHECK(embedding_gradient(20).equal(all));                                        // nothing feeds it in
  }
}

TEST_CASE("features of the base are those without the adapter") {
  const auto plain = golden("qwen2", at::kDouble), policy = golden("qwen2", at::kDouble);
  attach(*policy);
  const auto tree = shared_tree();
  const std::vector<std::int64_t> layers = {1, policy->config().layers};
  const c10::NoGradGuard no_grad;
  const auto want = plain->features(tree, layers), with = policy->features(tree, layers),
             without = policy->without_adapter()->features(tree, layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CHECK(without[i].equal(want[i]));
    CHECK_FALSE(with[i].allclose(want[i]));
  }
}

TEST_CASE("a gate sees every layer in order, holds all its weights, and gradients are whole when it is told") {
  for (const bool adapted : {false, true}) {
    for (const bool checkpointed : {false, true}) {
      const auto plain = golden("qwen3", at::kDouble), policy = golden("qwen3", at::kDouble);
      for (auto* p : {plain.get(), policy.get()}) {
        if (adapted) attach(*p, true, 0.2);
        p->set_checkpointing(checkpointed);
      }
      REQUIRE(policy->config().layers == 2);
      const auto gate = std::make_shared<Shards>(*policy);
      policy->set_gate(gate);
      const auto want = loss(*plain, 5), got = loss(*policy, 5);
      INFO((adapted ? "adapted " : "") << (checkpointed ? "checkpointed" : ""));
      CHECK(got.item<double>() == want.item<double>());
      CHECK(joined(gate->calls) == "F0>1 -0 F1>-1 -1");
      gate->calls.clear();
      want.backward();
      got.backward();
      CHECK(joined(gate->calls) == "B1>0 -1 G1 B0>-1 -0 G0");
      REQUIRE_FALSE(gate->ready.empty());
      for (const auto& [now, then] : gate->ready) CHECK(now.equal(then));
      const auto expected = take_gradients(*plain), gradients = take_gradients(*policy);
      REQUIRE(gradients.size() == expected.size());
      for (const auto& [name, gradient] : expected) CHECK(gradients.at(name).equal(gradient));
      gate->calls.clear();
      const c10::NoGradGuard no_grad;
      (void)policy->score(shared_tree(), {});
      CHECK(joined(gate->calls) == "F0>1 -0 F1>-1 -1");
      // The base under an adapter has the same memory, and so the same gate; a copy has its own.
      gate->calls.clear();
      (void)policy->without_adapter()->score(shared_tree(), {});
      CHECK(joined(gate->calls) == "F0>1 -0 F1>-1 -1");
    }
  }
  const auto policy = golden("llama", at::kFloat);
  const auto copy = policy->frozen_copy();
  policy->set_gate(std::make_shared<Shards>(*policy));
  const c10::NoGradGuard no_grad;
  CHECK(loss(*copy).isfinite().item<bool>());
  policy->set_gate(nullptr);
  CHECK_FALSE(loss(*policy).isfinite().item<bool>());
}

TEST_CASE("features of a layer that is not there are refused by number") {
  const auto policy = golden("llama", at::kFloat);
  const std::vector<std::int64_t> high = {0, policy->config().layers + 1}, low = {-1};
  CHECK(lacks(raised_by([&] { (void)policy->features(shared_tree(), high); }),
              {"model.32", std::to_string(high[1]), "0 (the embedding) to"}) == "");
  CHECK(lacks(raised_by([&] { (void)policy->features(shared_tree(), low); }), {"model.32", "-1"}) == "");
}
