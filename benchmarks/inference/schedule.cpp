// What the host does for a token step of the engine, whatever the device needs for the pass: choosing rows, pages, taking drawn tokens,
// end conditions. The device is one that computes nothing and draws the same token everywhere.
//
// Arguments: completions that decode at once; whether each has a text and a sink, as those of a server that streams. Prompts of 128 tokens,
// four completions each; 256 new tokens. Counters: microseconds a token step, of all completions together: `us`, and of them `overlapped`,
// which the host spends between the beginning of a pass and the question for its tokens.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/inference/scheduler.hpp>
#include <rlalgo/model/decoder_config.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/thread_pool.hpp>

using namespace rlalgo;

namespace {

constexpr std::int64_t prompt_tokens = 128, new_tokens = 256, completions = 4;

class NoDevice final : public inference::Forward {
 public:
  explicit NoDevice(std::int64_t rows) : rows_(rows) {}
  [[nodiscard]] std::int64_t max_rows() const override { return rows_; }
  [[nodiscard]] std::int64_t max_logits() const override { return rows_; }
  void reserve(std::int64_t) override {}
  [[nodiscard]] bool overlaps() const override { return true; }
  void run(const Weights&, std::span<const inference::Row> rows) override {
    benchmark::DoNotOptimize(rows.data());
    watch_ = {};
  }
  void draw(const Weights&, std::span<const std::int64_t>, std::span<inference::detail::Draw> draws) override {
    overlapped += watch_.seconds();
    for (auto& draw : draws) {
      draw.drawn = {.id = 7, .log_prob = -1.0F};
      draw.known = true;
    }
  }
  [[nodiscard]] const float* logits(const Weights&, std::span<const std::int64_t>) override { return nullptr; }
  double overlapped = 0.0;  // seconds

 private:
  std::int64_t rows_;
  os::Stopwatch watch_;
};

// A text as a tokenizer of bytes makes it, and what a server would send of it.
inference::TextStream text() {
  return {[](data::TokenId id) { return std::string(1, static_cast<char>('a' + id % 26)); },
          [] { return std::string(); }};
}

void token_step(benchmark::State& state) {
  model::DecoderConfig decoder;
  decoder.vocab_size = 151'936, decoder.hidden_size = 64, decoder.layers = 1, decoder.heads = 1;
  decoder.kv_heads = 1, decoder.head_dim = 8, decoder.max_position_embeddings = 4096;
  const std::int64_t running = state.range(0);
  NoDevice device(running + 256);
  inference::KvCache cache(decoder, inference::CacheElement::bfloat16);
  os::ThreadPool pool(1);
  double seconds = 0.0, overlapped = 0.0;
  std::string sent;
  std::int64_t steps = 0;
  std::uint64_t drawn = 0;
  for (auto _ : state) {
    inference::Scheduler scheduler(decoder, device, cache, pool, {.max_slots = running}, text);
    scheduler.set_weights(std::make_shared<inference::Forward::Weights>());
    for (std::int64_t i = 0; i < running; i += completions) {
      inference::RequestSpec spec;
      for (std::int64_t t = 0; t < prompt_tokens; ++t)
        spec.prompt.push_back(static_cast<data::TokenId>(10 + i * prompt_tokens + t));
      spec.count = std::min(completions, running - i);
      spec.sampling.max_new_tokens = new_tokens;
      if (state.range(1) != 0) {
        spec.text = true;
        spec.on_token = [&sent](const inference::TokenEvent& event) {
          const nlohmann::json choice = {
              {"index", event.completion}, {"text", event.text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
          sent = nlohmann::json{{"id", "cmpl-1"},
                                {"object", "text_completion"},
                                {"created", 1},
                                {"model", "m"},
                                {"choices", {choice}}}
                     .dump();
        };
      }
      scheduler.submit(std::move(spec));
    }
    while (scheduler.counts().drawn_tokens < static_cast<std::uint64_t>(2 * running)) scheduler.step();
    device.overlapped = 0.0;
    const os::Stopwatch watch;
    for (std::int64_t t = 0; t < new_tokens / 2; ++t, ++steps) scheduler.step();
    seconds += watch.seconds();
    overlapped += device.overlapped;
    drawn = scheduler.counts().drawn_tokens;
  }
  state.counters["drawn"] = static_cast<double>(drawn);
  state.counters["overlapped"] = overlapped * 1e6 / static_cast<double>(steps);
  state.counters["us"] = seconds * 1e6 / static_cast<double>(steps);
}

}  // namespace

BENCHMARK(token_step)->ArgsProduct({{1, 64, 256}, {0, 1}})->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
