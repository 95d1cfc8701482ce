// Adapters over one base on the far device: what they draw in one decoding pass, what that launches, and what stays while they come and go.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/quantised_copies.hpp>
#include <rlalgo/inference/quantization.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::unique_ptr<model::Decoder> base_of(bool far) {
  if (!far) return model::load_decoder(golden / "qwen2");
  return model::load_decoder(golden / "qwen2", {.dtype = at::kBFloat16, .device = support::far::device()});
}

// Over the tensors of `base`; B changes the model at once.
std::unique_ptr<model::Decoder> adapted(const model::Decoder& base, const model::LoraConfig& lora, double b = 0.06) {
  auto out = std::make_unique<model::Decoder>(base.hf_config(), base.weights());
  model::attach_lora(*out, lora, 7);
  std::int64_t odd = 0;
  for (const auto& p : out->parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(odd++ % 2 == 0 ? b : -b);
  return out;
}

const std::vector<std::string> every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};

// Ranks, targets and scales of several kinds.
std::vector<model::LoraConfig> several() {
  return {{.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "up_proj", "down_proj"}},
          {.r = 8, .alpha = 6, .target_modules = {"k_proj", "o_proj"}, .use_rslora = true},
          {.r = 19,
           .alpha = 30,
           .target_modules = every,
           .rank_pattern = {{"v_proj", 5}, {"layers.1.mlp.gate_proj", 1}},
           .alpha_pattern = {{"q_proj", 2.0}}},
          {.r = 4, .alpha = 8, .target_modules = {"q_proj", "o_proj", "up_proj", "down_proj"}, .use_dora = true}};
}

using Weights = inference::Forward::WeightsHandle;

struct Asked {
  Weights weights;
  std::vector<data::TokenId> prompt;
  std::uint64_t index = 0;
  data::Completion found = {};
};

void submit(inference::DecoderEngine& engine, Asked& one, std::int64_t tokens) {
  (void)engine.scheduler().submit({.prompt = one.prompt,
                                   .sampling = {.temperature = 0.9, .max_new_tokens = tokens},
                                   .key = {.seed = 5},
                                   .first_index = one.index,
                                   .ignore_eos = true,
                                   .weights = one.weights,
                                   .on_end = [&one](inference::RequestId, inference::RequestResult&& result) {
                                     one.found = std::move(result.completions[0].completion);
                                   }});
}

// All of them at once, to the end.
void draw(inference::DecoderEngine& engine, std::vector<Asked>& all, std::int64_t tokens) {
  for (Asked& one : all) submit(engine, one, tokens);
  engine.scheduler().drain();
}

std::vector<Asked> one_each(const std::vector<Weights>& weights) {
  std::vector<Asked> out;
  for (std::size_t i = 0; i < weights.size(); ++i)
    out.push_back({weights[i], {1, 2, 3, static_cast<data::TokenId>(4 + i), 5}, 10 * i});
  return out;
}

double largest_distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double out = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(static_cast<double>(a[i] - b[i])));
  return out;
}

// The log-probs of what was drawn, by the CPU in float32.
std::vector<float> scored(const model::DecoderConfig& config, const model::DecoderWeights& weights, const Asked& one) {
  inference::LocalEngine local(config, weights);
  const std::vector<inference::Request> asked = {{.prompt = one.prompt, .given = one.found.ids}};
  return local.generate(asked, {.temperature = 0.9, .max_new_tokens = 64}, {.seed = 1}).front().front().log_probs;
}
std::vector<float> scored(const model::Decoder& decoder, const Asked& one) {
  return scored(decoder.config(), decoder.weights(), one);
}

// With the numbers of the base's copies in the place of its own.
model::DecoderWeights as_copied(const model::Decoder& decoder, inference::Quantization how) {
  inference::QuantisedCopies copies(how, false);
  const auto made = copies.of(decoder.weights(), {});
  model::DecoderWeights out = made.weights;
  for (model::LayerWeights& layer : out.layers)
    layer.each_map([](model::Linear& map) {
      if (!map.quantised) return;
      map.weight = map.quantised->dense(at::kFloat);
      map.quantised = nullptr;
    });
  out.lm_head = made.head->dense(at::kFloat);
  return out;
}

support::far::Counts counted(const std::function<void()>& f) {
  const auto before = support::far::counts();
  f();
  return support::far::counts().since(before);
}

inference::EngineConfig config_of(const model::Decoder& decoder) {
  return inference::EngineConfig{}.for_weights(decoder.weights());
}

}  // namespace

TEST_CASE("adapters of one base and the base decode in one pass, and draw what each draws alone") {
  const auto near = base_of(false), far = base_of(true);
  std::vector<std::unique_ptr<model::Decoder>> near_all, far_all;
  for (const model::LoraConfig& lora : several()) {
    near_all.push_back(adapted(*near, lora));
    far_all.push_back(adapted(*far, lora));
  }
  const std::int64_t layers = far->config().layers;
  const support::far::WithKernels kernels;
  std::vector<Weights> views;
  inference::DecoderEngine engine(far->config(), config_of(*far));
  for (const auto& one : far_all) views.push_back(engine.view(one->weights()));
  views.push_back(engine.view(far->weights()));

  std::vector<Asked> alone = one_each(views), together = one_each(views);
  for (Asked& one : alone) {
    std::vector<Asked> only = {one};
    draw(engine, only, 4);
    one = only[0];
  }
  const auto of_all = counted([&] { draw(engine, together, 4); });
  const auto exact = [&](std::size_t which, const Asked& one) {
    return scored(which < near_all.size() ? *near_all[which] : *near, one);
  };
  double largest = 0.0;
  for (std::size_t i = 0; i < views.size(); ++i)
    largest = std::max(largest, largest_distance(alone[i].found.log_probs, exact(i, alone[i])));
  for (std::size_t i = 0; i < views.size(); ++i) {
    INFO("weights " << i);
    const double own = largest_distance(together[i].found.log_probs, exact(i, together[i]));
    CHECK(own < 1.5 * largest + 0.02);
    for (std::size_t other = 0; other < views.size(); ++other)
      if (other != i) CHECK(largest_distance(together[i].found.log_probs, exact(other, together[i])) > 2 * own);
  }

  // A token step is one replay, whatever adapters there are; the first is computed. 9 launches a layer, three for each of the four products that
  // some adapter has a part in; DoRA two more for each of them and one where a product does not go to the residual at once; embedding, the
  // columns that are not a row's, and the last norm.
  CHECK(of_all.replays == 2);
  CHECK(of_all.by_name.count("aten::masked_fill_.Scalar") == 1);  // of the computed pass
  CHECK(of_all.nodes == 2 * (3 + (9 + 4 * 3 + 4 * 2 + 2) * layers));

  // Without DoRA, and without the base.
  inference::DecoderEngine other(far->config(), config_of(*far));
  std::vector<Asked> two = one_each({other.view(far_all[0]->weights()), other.view(far_all[1]->weights())});
  const auto of_two = counted([&] { draw(other, two, 3); });
  CHECK(of_two.nodes == (3 + (9 + 4 * 3) * layers));
}

TEST_CASE("adapters over copies in 8 bits of their base decode in one pass as over the base itself") {
  const auto near = base_of(false), far = base_of(true);
  std::vector<std::unique_ptr<model::Decoder>> near_all, far_all;
  for (const model::LoraConfig& lora : several()) {
    near_all.push_back(adapted(*near, lora));
    far_all.push_back(adapted(*far, lora));
  }
  const support::far::WithKernels kernels;
  for (const auto how : {inference::Quantization::int8, inference::Quantization::fp8}) {
    INFO((how == inference::Quantization::int8 ? "int8" : "fp8"));
    const inference::EngineConfig config{.quantization = how};
    inference::DecoderEngine engine(far->config(), config.for_weights(far->weights()));
    std::vector<Weights> views;
    for (const auto& one : far_all) views.push_back(engine.view(one->weights()));
    views.push_back(engine.view(far->weights()));
    std::vector<Asked> all = one_each(views);
    const auto found = counted([&] { draw(engine, all, 4); });
    // One copy of the base for all, and the launches of whole weights.
    CHECK(found.replays == 2);
    CHECK(found.nodes == 2 * (3 + (9 + 4 * 3 + 4 * 2 + 2) * far->config().layers));
    for (std::size_t i = 0; i < views.size(); ++i) {
      INFO("weights " << i);
      const auto exact = [&](std::size_t which) {
        const model::Decoder& decoder = which < near_all.size() ? *near_all[which] : *near;
        return scored(decoder.config(), as_copied(decoder, how), all[i]);
      };
      const double own = largest_distance(all[i].found.log_probs, exact(i));
      CHECK(own < (how == inference::Quantization::int8 ? 0.4 : 0.6));  // as alone
      for (std::size_t other = 0; other < views.size(); ++other)
        if (other != i) CHECK(largest_distance(all[i].found.log_probs, exact(other)) > 2 * own);
    }
  }
}

TEST_CASE("a recorded pass stays while adapters come, go and are replaced in the units that there are") {
  const auto near = base_of(false), far = base_of(true);
  const auto lora = [](std::int64_t r, double alpha) {
    return model::LoraConfig{.r = r, .alpha = alpha, .target_modules = every};
  };
  const support::far::WithKernels kernels;
  inference::DecoderEngine engine(far->config(), config_of(*far));
  const auto view = [&](std::int64_t r, double alpha) {
    const std::shared_ptr<model::Decoder> decoder = adapted(*far, lora(r, alpha), 0.01);
    return engine.view(decoder->weights(), 1, decoder);
  };
  const auto check = [&](const Asked& one, std::int64_t r, double alpha) {
    CHECK(largest_distance(one.found.log_probs, scored(*adapted(*near, lora(r, alpha), 0.01), one)) < 0.2);
  };
  std::vector<Weights> weights = {view(8, 8), view(16, 64), view(3, 6)};
  const auto run = [&](std::int64_t tokens) {
    std::vector<Asked> all = one_each(weights);
    draw(engine, all, tokens);
    return all;
  };
  CHECK(counted([&] { (void)run(4); }).replays == 2);
  // All four units are in use: one adapter goes, another comes in its place. Passes of prompts are of each by itself.
  weights[1] = nullptr;
  weights[1] = view(12, 90);
  const auto replaced = counted([&] {
    const auto all = run(3);
    check(all[0], 8, 8);
    check(all[1], 12, 90);
    check(all[2], 3, 6);
    CHECK(largest_distance(all[1].found.log_probs, scored(*adapted(*near, lora(16, 64), 0.01), all[1])) > 0.2);
  });
  CHECK(replaced.replays == 2);
  // More units than there were: the pass is computed once and recorded anew.
  weights[2] = view(24, 12);
  const auto more = counted([&] {
    const auto all = run(3);
    check(all[0], 8, 8);
    check(all[2], 24, 12);
  });
  CHECK(more.replays == 1);
  // What was begun ends with its own weights, what comes under way begins with its own.
  std::vector<Asked> late = one_each({weights[0], weights[1]});
  for (Asked& one : late) submit(engine, one, 4);
  for (int i = 0; i < 2; ++i) engine.scheduler().step();
  late[1].weights = weights[1] = nullptr;  // its request has it
  std::vector<Asked> newest = {{view(12, 2), {1, 2, 3, 5, 5}, 10}};
  draw(engine, newest, 3);
  check(late[0], 8, 8);
  check(late[1], 12, 90);
  check(newest[0], 12, 2);
}

TEST_CASE("more adapters than a pass has units are passes more, and what shares too little decodes apart") {
  const auto near = base_of(false), far = base_of(true);
  const support::far::WithKernels kernels;
  // Replays of one token step behind the first.
  const auto replays = [&](const std::vector<model::LoraConfig>& loras, bool base) {
    inference::DecoderEngine engine(far->config(), config_of(*far));
    std::vector<std::unique_ptr<model::Decoder>> decoders;
    std::vector<Weights> weights;
    for (const model::LoraConfig& lora : loras) {
      decoders.push_back(adapted(*far, lora, 0.002));
      weights.push_back(engine.view(decoders.back()->weights()));
    }
    if (base) weights.push_back(engine.view(far->weights()));
    std::vector<Asked> all = one_each(weights);
    const auto found = counted([&] { draw(engine, all, 3); });
    for (std::size_t i = 0; i < loras.size(); ++i)
      CHECK(largest_distance(all[i].found.log_probs, scored(*adapted(*near, loras[i], 0.002), all[i])) < 0.2);
    return found.replays;
  };
  const auto of = [](std::int64_t r) { return model::LoraConfig{.r = r, .alpha = 8, .target_modules = {"q_proj"}}; };
  CHECK(replays({of(128), of(120), of(8)}, true) == 1);
  CHECK(replays({of(128), of(120), of(9)}, true) == 2);
  CHECK(replays({of(257), of(8)}, false) == 2);
  // One that brings an embedding of its own.
  model::LoraConfig saves = of(4);
  saves.modules_to_save = {"embed_tokens"};
  CHECK(replays({saves, of(4), of(5)}, true) == 2);
}

TEST_CASE("adapters whose places find no memory decode in passes of their own, and nothing fails") {
  const auto near = base_of(false), far = base_of(true);
  const support::far::WithKernels kernels;
  inference::DecoderEngine engine(far->config(), config_of(*far));
  const std::vector<model::LoraConfig> loras = {several()[0], several()[1]};
  std::vector<std::unique_ptr<model::Decoder>> decoders;
  std::vector<Weights> weights;
  for (const auto& lora : loras) {
    decoders.push_back(adapted(*far, lora));
    weights.push_back(engine.view(decoders.back()->weights()));
  }
  std::vector<Asked> only = one_each({weights[0]}), all = one_each(weights);
  draw(engine, only, 3);  // there are pages
  for (Asked& one : all) submit(engine, one, 3);
  support::far::fail_allocation();  // the first that a step makes is of the adapters' places
  const auto apart = counted([&] { engine.scheduler().drain(); });
  CHECK(apart.by_name.count("aten::masked_fill_.Scalar") == 0);  // no pass of several
  for (std::size_t i = 0; i < weights.size(); ++i)
    CHECK(largest_distance(all[i].found.log_probs, scored(*adapted(*near, loras[i]), all[i])) < 0.2);
}

TEST_CASE("an invariant engine gives a request of an adapter the same bits beside those of others") {
  const auto far = base_of(true);
  const support::far::WithKernels kernels;
  inference::EngineConfig config{.max_slots = 8, .invariant = true};
  std::vector<std::unique_ptr<model::Decoder>> decoders;
  for (const std::size_t i : {0, 1, 3}) decoders.push_back(adapted(*far, several()[i]));
  const auto found = [&](const std::vector<std::size_t>& which) {
    inference::DecoderEngine engine(far->config(), config.for_weights(far->weights()));
    std::vector<Weights> weights;
    for (const auto& one : decoders) weights.push_back(engine.view(one->weights()));
    std::vector<Asked> all = one_each(weights), some;
    for (const std::size_t i : which) some.push_back(all[i]);
    draw(engine, some, 3);
    return some;
  };
  const auto all = found({0, 1, 2}), others = found({2});
  CHECK(all[2].found.ids == others[0].found.ids);
  CHECK(all[2].found.log_probs == others[0].found.log_probs);
}

TEST_CASE("DoRA that stays apart is in the recorded pass, its scale one launch more for what is not added at once") {
  const auto near = base_of(false), far = base_of(true);
  const model::LoraConfig lora{
      .r = 4, .alpha = 8, .target_modules = {"q_proj", "up_proj", "down_proj"}, .use_dora = true};
  const auto decoder = adapted(*far, lora), exact = adapted(*near, lora);
  // A magnitude of its own, which differs by row.
  for (auto* const one : {decoder.get(), exact.get()})
    for (const auto& p : one->parameters())
      if (p.name.find("magnitude") != std::string::npos) p.value.detach().narrow(0, 0, 9).mul_(2.0);
  const support::far::WithKernels kernels;
  inference::DecoderEngine engine(far->config(), config_of(*far));
  std::vector<Asked> all = one_each({engine.view(decoder->weights())});
  const auto found = counted([&] { draw(engine, all, 5); });
  CHECK(found.nodes == 3 * (2 + (9 + 3 * 2 + 3 + 1) * far->config().layers));
  const double own = largest_distance(all[0].found.log_probs, scored(*exact, all[0]));
  CHECK(own < 0.2);
  CHECK(largest_distance(all[0].found.log_probs, scored(*adapted(*near, lora), all[0])) > 2 * own);
}
