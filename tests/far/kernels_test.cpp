// Generation with the project's own kernels on the far device: what it draws, and what a token step launches, copies and takes.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/tensor/cuda_kernels.hpp>

#include <support/catch.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

std::vector<inference::Request> requests_of(const model::Decoder& decoder) {
  std::vector<inference::Request> out;
  for (const std::int64_t length : {3, 20, 40}) {
    std::vector<data::TokenId> ids;
    for (std::int64_t i = 0; i < length; ++i)
      ids.push_back(static_cast<data::TokenId>((i * 37 + length * 11 + i * i) % decoder.config().vocab_size));
    out.push_back({.prompt = ids, .count = 3, .first_index = static_cast<std::uint64_t>(length)});
  }
  return out;
}

std::unique_ptr<model::Decoder> far_decoder(const std::string& family, at::ScalarType dtype = at::kBFloat16) {
  return model::load_decoder(golden / family, {.dtype = dtype, .device = support::far::device()});
}

std::vector<std::vector<data::Completion>> drawn(const model::Decoder& decoder,
                                                 const inference::SamplingConfig& sampling,
                                                 inference::EngineConfig engine = {}) {
  inference::LocalEngine local(decoder.config(), decoder.weights(), engine);
  return local.generate(requests_of(decoder), sampling, {.seed = 5});
}

// The log-probs of what was drawn, by another engine.
std::vector<float> scored_by(const model::Decoder& decoder, const std::vector<std::vector<data::Completion>>& all) {
  inference::LocalEngine local(decoder.config(), decoder.weights());
  const auto prompts = requests_of(decoder);
  std::vector<float> out;
  for (std::size_t r = 0; r < all.size(); ++r)
    for (const data::Completion& one : all[r]) {
      const std::vector<inference::Request> asked = {{.prompt = prompts[r].prompt, .given = one.ids}};
      const auto scored =
          local.generate(asked, {.temperature = 0.9, .max_new_tokens = 64}, {.seed = 1}).front().front();
      REQUIRE(scored.log_probs.size() == one.log_probs.size());
      out.insert(out.end(), scored.log_probs.begin(), scored.log_probs.end());
    }
  return out;
}

double largest_distance(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double out = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) out = std::max(out, std::abs(static_cast<double>(a[i] - b[i])));
  return out;
}

}  // namespace

TEST_CASE("in float32 a device draws the CPU's tokens where its logits are") {
  const support::far::WithKernels kernels;
  for (const std::string family : {"qwen2", "gemma3"}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = far_decoder(family, at::kFloat);
    for (const inference::SamplingConfig& sampling :
         {inference::SamplingConfig{.temperature = 0.9, .top_p = 0.95, .max_new_tokens = 6},
          inference::SamplingConfig{.temperature = 0.0, .max_new_tokens = 6},
          inference::SamplingConfig{.top_k = 20, .min_p = 0.02, .repetition_penalty = 1.2, .max_new_tokens = 6}}) {
      const auto a = drawn(*near, sampling), b = drawn(*far, sampling);
      for (std::size_t r = 0; r < a.size(); ++r)
        for (std::size_t c = 0; c < a[r].size(); ++c) {
          CHECK(a[r][c].ids == b[r][c].ids);
          for (std::size_t t = 0; t < a[r][c].log_probs.size(); ++t)
            CHECK(std::abs(a[r][c].log_probs[t] - b[r][c].log_probs[t]) < 1e-4);
        }
    }
  }
}

TEST_CASE(
    "a pass that decodes in nine launches a layer, recorded or not, is as far from float32 as ATen's operators are") {
  for (const std::string family : {"qwen2", "phi3"}) {
    INFO(family);
    const auto near = model::load_decoder(golden / family);
    const auto far = far_decoder(family);
    // Slots that come and go change the bucket, and what is preempted is computed again.
    for (const inference::EngineConfig& engine :
         {inference::EngineConfig{}, inference::EngineConfig{.max_slots = 2, .prefill_rows = 7}}) {
      std::vector<std::vector<data::Completion>> found;
      {
        const support::far::WithKernels kernels;
        const auto before = support::far::counts();
        found = drawn(*far, {.temperature = 0.9, .max_new_tokens = 12}, engine);
        CHECK(support::far::counts().since(before).replays > 8);
      }
      std::vector<float> told;
      for (const auto& group : found)
        for (const data::Completion& one : group) told.insert(told.end(), one.log_probs.begin(), one.log_probs.end());
      const std::vector<float> exact = scored_by(*near, found);
      CHECK(largest_distance(told, exact) < 1.5 * largest_distance(scored_by(*far, found), exact) + 0.02);
    }
  }
}

TEST_CASE("what a token step launches, copies and takes") {
  const auto far = far_decoder("qwen2");
  const std::int64_t layers = far->config().layers;
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
  const auto step = [&](inference::LocalEngine& engine) {
    const auto count = [&](std::int64_t tokens) {
      const auto before = support::far::counts();
      (void)engine.generate(requests, {.max_new_tokens = tokens}, {.seed = 1});
      return support::far::counts().since(before);
    };
    (void)count(20);
    (void)count(20);  // recorded, where that is done
    const auto few = count(10), more = count(20);
    support::far::Counts out = more.since(few);
    for (std::int64_t* const one : {&out.operators, &out.kernels, &out.copies_in, &out.copies_out, &out.bytes_in,
                                    &out.bytes_out, &out.scalars, &out.allocations, &out.replays, &out.nodes}) {
      CHECK(*one % 10 == 0);
      *one /= 10;
    }
    return out;
  };
  support::far::Counts with, without;
  {
    inference::LocalEngine engine(far->config(), far->weights());
    without = step(engine);
  }
  {
    const support::far::WithKernels kernels;
    inference::LocalEngine engine(far->config(), far->weights());
    with = step(engine);
  }
  CAPTURE(without.operators, without.copies_in, without.bytes_out, without.allocations);
  CAPTURE(with.operators, with.kernels, with.nodes, with.bytes_in, with.bytes_out, with.allocations);
  // All of a pass is one replay: embedding, nine launches a layer, the last norm.
  CHECK(with.replays == 1);
  CHECK(with.nodes == 2 + 9 * layers);
  // Beside it: the head, its numbers in float32, the draws.
  CHECK(with.operators <= 2);
  CHECK(with.kernels == 1);
  // Rows and what is asked of them go there; sixteen bytes a row come back.
  CHECK(with.copies_in == 2);
  CHECK(with.copies_out == 1);
  CHECK(with.bytes_out == 4 * 16);
  CHECK(with.scalars == 0);
  CHECK(with.allocations <= 4);  // of head and draws: none of the pass
  // Without them logits come back.
  CHECK(without.copies_out == 1);
  CHECK(without.bytes_out == 4 * 4 * far->config().vocab_size);
  CHECK(without.copies_in <= 2);
}

TEST_CASE("weights that are updated in place are read by a recorded pass, and moved ones are recorded again") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder("qwen2");
  inference::LocalEngine engine(far->config(), far->weights());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
  const auto draw = [&] { return engine.generate(requests, {.max_new_tokens = 12}, {.seed = 1}); };
  const auto fresh = [&] {
    inference::LocalEngine other(far->config(), far->weights());
    return other.generate(requests, {.max_new_tokens = 12}, {.seed = 1});
  };
  const auto same = [](const auto& a, const auto& b) {
    for (std::size_t c = 0; c < a[0].size(); ++c)
      if (a[0][c].ids != b[0][c].ids || a[0][c].log_probs != b[0][c].log_probs) return false;
    return true;
  };
  for (int i = 0; i < 3; ++i) (void)draw();
  const auto first = draw();
  CHECK(same(first, fresh()));
  for (const auto& p : far->parameters()) p.value.detach().mul_(1.25);
  const auto before = support::far::counts();
  const auto second = draw();
  const std::int64_t replays = support::far::counts().since(before).replays;
  CHECK(replays >= 10);
  CHECK_FALSE(same(first, second));
  CHECK(same(second, fresh()));
  // The first pass with a weight that has moved is computed, the next one recorded.
  auto value = far->parameters().front().value;
  value.set_data(value.detach().clone());
  const auto moved = support::far::counts();
  CHECK(same(second, draw()));
  CHECK(support::far::counts().since(moved).replays == replays - 1);
}

TEST_CASE(
    "adapters that stay apart are two more launches for maps that read the same, and graphs of several weights stay") {
  const auto near = model::load_decoder(golden / "qwen2"), far = far_decoder("qwen2");
  for (model::Decoder* const decoder : {near.get(), far.get()}) {
    model::attach_lora(*decoder, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "up_proj", "down_proj"}},
                       7);
    for (const auto& p : decoder->parameters())
      if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
  }
  const std::int64_t layers = far->config().layers;
  std::vector<std::vector<data::Completion>> found;
  {
    const support::far::WithKernels kernels;
    const auto base = far->without_adapter();
    inference::DecoderEngine engine(far->config(), inference::EngineConfig{}.for_weights(far->weights()));
    const auto adapted = engine.view(far->weights()), plain = engine.view(base->weights());
    const auto draw = [&](const inference::Forward::WeightsHandle& weights, std::int64_t tokens) {
      const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
      const auto before = support::far::counts();
      (void)engine.generate(requests, {.max_new_tokens = tokens}, {.seed = 1}, {}, weights);
      return support::far::counts().since(before);
    };
    for (int i = 0; i < 2; ++i)
      for (const auto& weights : {adapted, plain}) (void)draw(weights, 8);
    // Recorded both, whichever went before.
    const auto few = draw(adapted, 4), more = draw(adapted, 8), without = draw(plain, 8);
    CHECK(more.replays - few.replays == 4);
    CHECK(more.nodes - few.nodes == 4 * (2 + (9 + 3 * 2) * layers));
    CHECK(without.nodes == without.replays * (2 + 9 * layers));
    CHECK(without.replays == 7);
    found = drawn(*far, {.temperature = 0.9, .max_new_tokens = 6});
  }
  std::vector<float> told;
  for (const auto& group : found)
    for (const data::Completion& one : group) told.insert(told.end(), one.log_probs.begin(), one.log_probs.end());
  const std::vector<float> exact = scored_by(*near, found);
  CHECK(largest_distance(told, exact) < 1.5 * largest_distance(scored_by(*far, found), exact) + 0.02);
  // Without what it adds they are others.
  CHECK(largest_distance(told, scored_by(*model::load_decoder(golden / "qwen2"), found)) > 0.05);
}

namespace {

// A decoder of its own, adapted, whose B changes the model at once.
std::unique_ptr<model::Decoder> with_lora(const std::string& family, bool far, const model::LoraConfig& lora) {
  auto out = far ? far_decoder(family) : model::load_decoder(golden / family);
  model::attach_lora(*out, lora, 7);
  for (const auto& p : out->parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
  return out;
}

}  // namespace

TEST_CASE("requests of several adapters and of none that come together are each computed with their own") {
  const std::vector<model::LoraConfig> loras = {
      {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "up_proj", "down_proj"}},
      {.r = 8, .alpha = 6, .target_modules = {"k_proj", "o_proj"}, .use_rslora = true},
      {.r = 3,
       .alpha = 9,
       .target_modules = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
       .rank_pattern = {{"v_proj", 5}, {"layers.1.mlp.gate_proj", 1}},
       .alpha_pattern = {{"q_proj", 2.0}}}};
  // One of none, and of each adapter; decoders of one base.
  std::vector<std::unique_ptr<model::Decoder>> near, far;
  near.push_back(model::load_decoder(golden / "qwen2"));
  far.push_back(far_decoder("qwen2"));
  for (const model::LoraConfig& lora : loras) {
    near.push_back(with_lora("qwen2", false, lora));
    far.push_back(with_lora("qwen2", true, lora));
  }
  std::vector<std::vector<std::vector<data::Completion>>> found(far.size());
  {
    const support::far::WithKernels kernels;
    inference::DecoderEngine engine(far[0]->config(), inference::EngineConfig{}.for_weights(far[0]->weights()));
    std::vector<inference::Forward::WeightsHandle> views;
    for (const auto& one : far) views.push_back(engine.view(one->weights()));
    const auto prompts = requests_of(*far[0]);
    for (auto& all : found) all.resize(prompts.size());
    const auto submit = [&](std::size_t which, std::size_t r) {
      (void)engine.scheduler().submit(
          {.prompt = prompts[r].prompt,
           .count = prompts[r].count,
           .sampling = {.temperature = 0.9, .max_new_tokens = 8},
           .key = {.seed = 5},
           .first_index = prompts[r].first_index,
           .ignore_eos = true,
           .weights = views[which],
           .on_end = [&found, which, r](inference::RequestId, inference::RequestResult&& result) {
             for (inference::CompletionResult& one : result.completions)
               found[which][r].push_back(std::move(one.completion));
           }});
    };
    const auto before = support::far::counts();
    for (std::size_t r = 0; r < prompts.size(); ++r)
      for (std::size_t which = 0; which < far.size(); ++which) submit(which, r);
    for (int i = 0; i < 5; ++i) engine.scheduler().step();
    // One is replaced between two steps by one of other ranks: requests that began with it end with it, later ones have the new one.
    const std::vector<data::Completion> first = [&] {
      const std::shared_ptr<model::Decoder> other =
          with_lora("qwen2", true, {.r = 2, .alpha = 64, .target_modules = {"q_proj", "down_proj"}});
      views[1] = nullptr;  // its requests have it
      const auto replaced = engine.view(other->weights(), 1, other);
      std::vector<data::Completion> out;
      (void)engine.scheduler().submit({.prompt = prompts[1].prompt,
                                       .sampling = {.temperature = 0.9, .max_new_tokens = 8},
                                       .key = {.seed = 5},
                                       .first_index = prompts[1].first_index,
                                       .ignore_eos = true,
                                       .weights = replaced,
                                       .on_end = [&out](inference::RequestId, inference::RequestResult&& result) {
                                         out.push_back(std::move(result.completions[0].completion));
                                       }});
      engine.scheduler().drain();
      return out;
    }();
    CHECK(support::far::counts().since(before).replays > 20);
    const auto near_replaced =
        with_lora("qwen2", false, {.r = 2, .alpha = 64, .target_modules = {"q_proj", "down_proj"}});
    inference::LocalEngine exact(near_replaced->config(), near_replaced->weights());
    const std::vector<inference::Request> asked = {{.prompt = prompts[1].prompt, .given = first.at(0).ids}};
    const auto scored =
        exact.generate(asked, {.temperature = 0.9, .max_new_tokens = 64}, {.seed = 1}).front().front().log_probs;
    CHECK(largest_distance(first[0].log_probs, scored) < 0.1);
  }
  for (std::size_t which = 0; which < far.size(); ++which) {
    INFO("adapter " << which);
    std::vector<float> told;
    for (const auto& group : found[which]) {
      CHECK(group.size() == 3);
      for (const data::Completion& one : group) told.insert(told.end(), one.log_probs.begin(), one.log_probs.end());
    }
    const std::vector<float> exact = scored_by(*near[which], found[which]);
    const double own = largest_distance(told, exact);
    CHECK(own < 1.5 * largest_distance(scored_by(*far[which], found[which]), exact) + 0.02);
    for (std::size_t other = 0; other < far.size(); ++other)
      if (other != which) CHECK(largest_distance(told, scored_by(*near[other], found[which])) > 2 * own);
  }
}

// cuBLAS makes a handle and its memory for each thread that asks it for a product, which CUDA refuses while a pass is recorded.
TEST_CASE("a pass is recorded on a thread that has computed it, and replayed on any") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder("qwen2");
  inference::LocalEngine engine(far->config(), far->weights());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
  const auto replays = [&] {
    const auto before = support::far::counts();
    (void)engine.generate(requests, {.max_new_tokens = 2}, {.seed = 1});
    return support::far::counts().since(before).replays;
  };
  const auto elsewhere = [&] { return std::async(std::launch::async, replays).get(); };
  CHECK(replays() == 0);
  CHECK(elsewhere() == 0);
  CHECK(replays() == 0);
  CHECK(replays() == 1);
  CHECK(elsewhere() == 1);
}

TEST_CASE("a pass that cannot be recorded is computed, and after three of them none is tried") {
  const auto far = far_decoder("qwen2");
  static int begun = 0;
  cuda::Kernels table = *support::far::kernels().table;
  table.graph_begin = [](cuda::Stream) { return ++begun, 900; };  // cudaErrorStreamCaptureUnsupported
  const support::far::WithKernels kernels;
  tensor::own_kernels().table = &table;
  inference::LocalEngine engine(far->config(), far->weights());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
  const auto before = support::far::counts();
  CHECK(engine.generate(requests, {.max_new_tokens = 12}, {.seed = 1})[0][0].ids.size() > 0);
  CHECK(support::far::counts().since(before).replays == 0);
  CHECK(begun == 3);
}

TEST_CASE("a recorded pass that cannot be launched is named, and the next one is computed and recorded anew") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder("qwen2");
  inference::LocalEngine engine(far->config(), far->weights());
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};
  const auto draw = [&] { return engine.generate(requests, {.max_new_tokens = 4}, {.seed = 1}).front(); };
  (void)draw();
  const auto first = draw();
  const auto count = support::far::counts();
  (void)draw();
  REQUIRE(support::far::counts().since(count).replays == 3);
  // Behind the prompt's launches draws and replays take turns.
  bool replay = false, kernel = false;
  for (const int good : {1, 16, 17}) {
    support::far::fail_launch(good);
    const std::string error = support::raised_by([&] { (void)draw(); });
    const bool recorded = error.find("inference.20") != std::string::npos;
    (recorded ? replay : kernel) = true;
    CHECK(support::lacks(error, recorded
                                    ? std::vector<std::string>{"a graph of 4 rows and 1 pages each on far:0, stream 0",
                                                               "CUDA error 701"}
                                    : std::vector<std::string>{"tensor.15", "on far:0, stream 0"}) == "");
  }
  CHECK(replay);
  CHECK(kernel);
  const auto again = draw();
  for (std::size_t c = 0; c < first.size(); ++c) CHECK(first[c].log_probs == again[c].log_probs);
  const auto after = support::far::counts();
  (void)draw();
  CHECK(support::far::counts().since(after).replays == 3);
}
