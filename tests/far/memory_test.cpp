// The memory of a device that the host may not touch: how generation and training divide it, and what is given back.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/config/parse.hpp>
#include <rlalgo/config/train.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/save.hpp>
#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/far_device.hpp>
#include <support/far_kernels.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";
const auto quickstart = std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart";

// The device says that it has so much while one lives.
struct Memory {
  explicit Memory(double bytes) { support::far::set_memory(static_cast<std::size_t>(bytes)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { support::far::set_memory(0); }
};

std::unique_ptr<model::Decoder> far_decoder(at::ScalarType dtype = at::kFloat) {
  return model::load_decoder(golden / "qwen2", {.dtype = dtype, .device = support::far::device()});
}

std::unique_ptr<model::Decoder> adapted(at::ScalarType dtype = at::kFloat) {
  auto decoder = far_decoder(dtype);
  model::attach_lora(*decoder, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "v_proj", "up_proj", "down_proj"}}, 7);
  for (const auto& p : decoder->parameters())
    if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
  return decoder;
}

const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3, 4, 5}, .count = 4}};

std::vector<data::Completion> draw(inference::LocalEngine& engine, std::int64_t tokens = 10) {
  return engine.generate(requests, {.max_new_tokens = tokens}, {.seed = 1}).front();
}

bool same(const std::vector<data::Completion>& a, const std::vector<data::Completion>& b) {
  for (std::size_t c = 0; c < a.size(); ++c)
    if (a[c].ids != b[c].ids || a[c].log_probs != b[c].log_probs) return false;
  return a.size() == b.size();
}

std::string configuration(const std::string& more, const std::filesystem::path& out) {
  return "base_model: " + (quickstart / "model").string() +
         "\nrl: grpo\nmicro_batch_size: 4\ngradient_accumulation_steps: 2\nmax_steps: 2\nsave_strategy: "
         "\"no\"\ndatasets:\n  - path: " +
         (quickstart / "data/train.jsonl").string() +
         "\n    type: rewards.oai_gsm8k_transform\nlearning_rate: 1.0e-3\ndevice: far:0\noutput_dir: " + out.string() +
         "\ntrl:\n  num_generations: 4\n  max_completion_length: 8\n  reward_funcs: [builtin.gsm8k_format]\n" + more;
}

}  // namespace

TEST_CASE("with a limit all of the pages are taken at once, and given back with the graphs while nobody generates") {
  const auto far = far_decoder();
  const std::size_t page = inference::KvCache(far->config(), inference::CacheElement::float32).page_bytes();
  const std::size_t before = support::far::held_bytes();
  inference::LocalEngine limited(far->config(), far->weights(), {.cache_bytes = 40 * page, .keep_prefixes = true});
  const auto first = draw(limited);
  CHECK(support::far::held_bytes() >= before + 40 * page);
  CHECK(support::far::held_bytes() < before + 60 * page);
  const auto given = support::far::counts();
  limited.release_memory();
  CHECK(support::far::counts().since(given).given_back == 1);
  CHECK(support::far::held_bytes() < before + 20 * page);  // tables of rotations, the last states
  CHECK(same(first, draw(limited)));
  // Without a limit they are as many as were wanted before.
  inference::LocalEngine free(far->config(), far->weights(), {.keep_prefixes = true});
  CHECK(same(first, draw(free)));
  free.release_memory();
  CHECK(same(first, draw(free)));
}

TEST_CASE("a request that is larger than the pages are is refused at once, with its size and what to do") {
  const auto far = far_decoder();
  const std::size_t page = inference::KvCache(far->config(), inference::CacheElement::float32).page_bytes();
  inference::LocalEngine engine(far->config(), far->weights(), {.cache_bytes = 3 * page});
  CHECK(draw(engine, 4).size() == 4);
  const auto before = support::far::counts();
  CHECK(lacks(raised_by([&] { (void)draw(engine, 100); }),
              {"[rlalgo.inference.10]", std::to_string(5 * page) + " bytes for 5 and 100 tokens",
               "at most " + std::to_string(3 * page), "trl.vllm_gpu_memory_utilization", "--gpu-memory-utilization"}) ==
        "");
  CHECK(support::far::counts().since(before).operators == 0);
  CHECK(draw(engine, 4).size() == 4);
}

TEST_CASE("an engine gives its graphs back with its pages and records them anew, with the same numbers") {
  const support::far::WithKernels kernels;
  const auto far = far_decoder(at::kBFloat16);
  inference::LocalEngine engine(far->config(), far->weights());
  for (int i = 0; i < 2; ++i) (void)draw(engine);
  const auto first = draw(engine);
  engine.release_memory();
  const auto before = support::far::counts();
  CHECK(same(first, draw(engine)));
  CHECK(support::far::counts().since(before).replays == 9 - 1);  // the first pass of its kind is computed
}

TEST_CASE("an adapter that is trained decodes in nine launches a layer, from copies that follow its updates") {
  const support::far::WithKernels kernels;
  const auto far = adapted(at::kBFloat16);
  const std::int64_t layers = far->config().layers;
  inference::LocalEngine engine(far->config(), far->weights(), {.merge_adapter = true});
  (void)draw(engine);
  const auto count = [&](std::int64_t tokens) {
    const auto before = support::far::counts();
    (void)draw(engine, tokens);
    return support::far::counts().since(before);
  };
  const auto few = count(4), counts = count(10).since(few);
  CHECK(counts.replays == 6);
  CHECK(counts.nodes == 6 * (2 + 9 * layers));
  CHECK(counts.kernels == 6);
  const auto first = draw(engine);
  // Updated in place, the copies are written where they are: nothing is recorded again.
  for (const auto& p : far->parameters()) p.value.detach().mul_(1.5);
  const auto before = support::far::counts();
  const auto second = draw(engine);
  CHECK(support::far::counts().since(before).replays == 9);
  CHECK_FALSE(same(first, second));
  inference::LocalEngine fresh(far->config(), far->weights(), {.merge_adapter = true});
  CHECK(same(second, draw(fresh)));
  engine.release_memory();
  CHECK(same(second, draw(engine)));
}

TEST_CASE(
    "a merged adapter draws in float32 what the CPU draws with the adapter apart, from copies that are given back") {
  for (const bool dora : {false, true}) {
    const auto make = [&](at::Device device) {
      auto decoder = model::load_decoder(golden / "qwen2", {.device = device});
      model::attach_lora(*decoder, {.r = 4, .alpha = 8, .target_modules = {"q_proj", "down_proj"}, .use_dora = dora},
                         7);
      for (const auto& p : decoder->parameters())
        if (p.name.find("lora_B") != std::string::npos) p.value.detach().fill_(0.02);
      return decoder;
    };
    const auto near = make(at::kCPU), far = make(support::far::device());
    const std::size_t copies = inference::merged_adapter_bytes(far->weights());
    inference::LocalEngine a(near->config(), near->weights(), {.merge_adapter = true}),
        b(far->config(), far->weights(), {.merge_adapter = true});
    const std::size_t before = support::far::held_bytes();
    const auto x = draw(a), y = draw(b);
    CHECK(support::far::held_bytes() >= before + copies);
    for (std::size_t c = 0; c < x.size(); ++c) {
      CHECK(x[c].ids == y[c].ids);
      for (std::size_t t = 0; t < x[c].log_probs.size(); ++t)
        CHECK(std::abs(x[c].log_probs[t] - y[c].log_probs[t]) < 1e-4);
    }
    const std::size_t held = support::far::held_bytes();
    b.release_memory();
    CHECK(support::far::held_bytes() + copies <= held);
  }
  // Copies of what was published last, made once for each publication.
  const auto far = adapted();
  const auto snapshots = std::make_shared<inference::WeightSnapshots>(far->config(), far->weights());
  snapshots->publish(1);
  inference::SnapshotEngine engine(snapshots, {.merge_adapter = true});
  inference::LocalEngine plain(far->config(), far->weights());
  const auto apart = draw(plain), merged = engine.generate(requests, {.max_new_tokens = 10}, {.seed = 1}).front();
  for (std::size_t c = 0; c < apart.size(); ++c) CHECK(apart[c].ids == merged[c].ids);
  const auto count = [&](std::int64_t version) {
    if (version > 0) snapshots->publish(version);
    const auto start = support::far::counts();
    (void)engine.generate(requests, {.max_new_tokens = 4}, {.seed = 1});
    return support::far::counts().since(start).operators;
  };
  const std::int64_t again = count(0), published = count(2);
  CHECK(published >= again + 4 * far->config().layers);
}

TEST_CASE("a share of the device is divided among weights, copies, passes and pages") {
  const auto far = adapted();
  const double weights = inference::weight_bytes(far->config(), far->weights()),
               copies = static_cast<double>(inference::merged_adapter_bytes(far->weights()));
  const double page =
      static_cast<double>(inference::KvCache(far->config(), inference::CacheElement::float32).page_bytes());
  const assembly::GenerationMemoryConfig asked{
      .fraction = 0.5, .key = "trl.vllm_gpu_memory_utilization", .where = "c.yaml:3", .longest = 40, .completions = 8};
  const auto of = [&](double total, assembly::GenerationMemoryConfig config) {
    const Memory memory(total);
    return assembly::generation_memory(*far, config);
  };
  const auto wide = of(1e9, asked);
  CHECK(wide.max_slots == 8);
  CHECK(wide.merge_adapter);
  CHECK(wide.copies == Approx(copies));
  CHECK(static_cast<double>(wide.cache_bytes) <= 0.5e9 - weights - copies - wide.passes);
  CHECK(static_cast<double>(wide.cache_bytes) > 0.5e9 - weights - copies - wide.passes - page);
  CHECK(lacks(wide.line, {"0.5 of 1.0 GB for generation (trl.vllm_gpu_memory_utilization)", "copies with the adapter",
                          "given back while training"}) == "");
  // Room for all completions, but not for copies beside them.
  const double bare = weights + wide.passes;
  const auto tight = of(2.0 * (bare + 24.5 * page + 0.5 * copies), asked);
  CHECK_FALSE(tight.merge_adapter);
  CHECK(tight.copies == 0.0);
  CHECK(tight.line.find("the adapter stays apart") != std::string::npos);
  CHECK(lacks(raised_by([&] { (void)of(2.0 * (bare + 2.0 * page), asked); }),
              {"[rlalgo.assembly.2]", "c.yaml:3", "40 tokens", "set trl.vllm_gpu_memory_utilization to "}) == "");
  auto unlimited = asked;
  unlimited.fraction = 0.0;
  const auto needs = of(1e9, unlimited);
  CHECK(needs.cache_bytes == 0);
  CHECK(needs.merge_adapter);
  CHECK(needs.needed == Approx(8 * 3 * page));
  CHECK_FALSE(of(1.1 * (bare + 24.0 * page), unlimited).merge_adapter);
  unlimited.completions = 1000;
  CHECK(of(1e9, unlimited).max_slots == 256);
}

TEST_CASE("a run takes its share while it generates, gives it back while it trains, and stays below the estimate") {
  support::far::device();
  const support::ScratchDirectory scratch;
  const std::string lora =
      "adapter: lora\nlora_r: 4\nlora_alpha: 8\nlora_target_modules: [q_proj, v_proj, down_proj]\n";
  const std::string eight = "  generation_quantization: int8\n  generation_kv_cache_dtype: fp8\n";
  for (const std::string& adapter : {std::string(), lora})
    for (const std::string& share :
         {std::string(), std::string("  vllm_gpu_memory_utilization: 0.4\n"),
          eight + "  vllm_gpu_memory_utilization: 0.4\n", std::string("  generation_quantization: fp8\n")}) {
      INFO(adapter << share);
      const Memory memory(60e6);
      const auto run =
          config::load_run_config(scratch.write("c.yaml", configuration(share, scratch.path() / "out") + adapter));
      assembly::Overview plan;
      config::TrainMessages messages;
      messages.planned = [&](const assembly::Overview& o) {
        plan = o;
        support::far::reset_peak();
      };
      const std::size_t before = support::far::held_bytes();
      (void)config::train(run, messages);
      double all = 0.0;
      for (const auto& [what, bytes] : plan.memory) all += what == "program" ? 0.0 : bytes;
      const double peak = static_cast<double>(support::far::peak_bytes() - before);
      CAPTURE(peak, all, plan.generation);
      CHECK(plan.memory_limit == Approx(60e6));
      CHECK(peak <= 1.1 * all);  // every tensor of the device is a multiple of 4,096 bytes, and these are small
      CHECK(peak >= 0.4 * all);
      const bool quantises = share.find("quantization") != std::string::npos;
      CHECK((plan.generation.find("copies in 8 bits") != std::string::npos) == quantises);
      CHECK(
          (plan.generation.find(share.find("utilization") == std::string::npos ? "as completions need them"
                                                                               : "0.4 of 60 MB") != std::string::npos));
    }
  const Memory memory(60e6);
  const auto small = config::load_run_config(
      scratch.write("c.yaml", configuration("  vllm_gpu_memory_utilization: 0.01\n", scratch.path() / "small")));
  CHECK(lacks(raised_by([&] { (void)config::train(small); }), {"[rlalgo.assembly.2]", "c.yaml:17", "0.01 of 60 MB"}) ==
        "");
}

TEST_CASE("a device takes 2,048 tokens of prompts a pass, and no more memory for it than is estimated") {
  const support::ScratchDirectory scratch;
  model::save_decoder(*model::random_decoder(model::parse_hf_config(support::small_config("qwen2"), "test"), 4),
                      scratch.path() / "model", {});
  const auto near = model::load_decoder(scratch.path() / "model");
  const auto far = model::load_decoder(scratch.path() / "model", {.device = support::far::device()});
  const std::int64_t length = 500, tokens = 4;
  std::vector<inference::Request> asked = {{.prompt = std::vector<data::TokenId>(length), .count = 2}};
  for (std::int64_t i = 0; i < length; ++i)
    asked[0].prompt[static_cast<std::size_t>(i)] = static_cast<data::TokenId>(i * i % 23);
  const auto draw = [&](const model::Decoder& decoder, inference::EngineConfig config) {
    inference::LocalEngine engine(decoder.config(), decoder.weights(), config);
    const auto before = support::far::counts();
    const auto out = engine.generate(asked, {.max_new_tokens = tokens}, {.seed = 1}).front();
    return std::pair(out, support::far::counts().since(before).operators);
  };
  const inference::EngineConfig config{.max_slots = 4, .prefill_rows = 0};
  const std::size_t before = support::far::held_bytes();
  support::far::reset_peak();
  const auto [found, operators] = draw(*far, config);
  const auto taken = static_cast<double>(support::far::peak_bytes() - before);
  const inference::MemoryShare share =
      inference::memory_share(far->config(), far->weights(), config, 0.5, length + tokens);
  CHECK(taken <
        share.passes + 2 * 2 * share.page_memory(length + tokens) + 1e6);  // pages double as they are wanted; tables
  const auto exact = draw(*near, config).first;
  const auto [chunked, more] = draw(*far, {.max_slots = 4, .prefill_rows = 128});
  for (std::size_t c = 0; c < exact.size(); ++c) {
    CHECK(found[c].ids == exact[c].ids);
    CHECK(chunked[c].ids == exact[c].ids);
  }
  CHECK(more > operators + 2 * operators / tokens);  // three passes more
}

TEST_CASE("the device refuses tensors of the host among its own, and products of whole numbers, as a GPU does") {
  const auto numbers = at::TensorOptions().dtype(at::kFloat);
  const tensor::Tensor here = tensor::ones({2, 2}, numbers), there = here.to(support::far::device());
  const auto refuses = [](const auto& act) {
    try {
      act();
    } catch (const c10::Error&) {
      return true;
    }
    return false;
  };
  CHECK_FALSE(refuses([&] { (void)there.add(there.sum().to(at::kCPU)); }));
  CHECK(refuses([&] { (void)there.add(here); }));
  CHECK(refuses([&] { (void)tensor::concatenate({there, here}, 0); }));
  CHECK(refuses([&] { (void)tensor::mm(there.to(at::kLong), there.to(at::kLong)); }));
}
