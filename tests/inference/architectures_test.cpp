// The engine against the training path, which is tested against transformers: every architecture, with adapters.
#include <rlalgo/inference/local_engine.hpp>

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/model/adapter_files.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/tree_builder.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>

using namespace rlalgo;

namespace {

const std::filesystem::path golden = std::filesystem::path(rlalgo::support::test_dir) / "golden";

// The largest difference of log-probs between what the engine drew and what the training path says of it.
double worst_difference(model::Decoder& decoder, std::int64_t tokens, std::int64_t prompt = 5) {
  inference::LocalEngine engine(decoder.config(), decoder.weights(), {.max_slots = 3, .prefill_rows = 7, .threads = 1});
  std::vector<inference::Request> requests;
  for (std::int32_t r = 0; r < 3; ++r) {
    std::vector<data::TokenId> ids;
    for (std::int32_t i = 0; i < prompt + r; ++i) ids.push_back((7 * i + r) % 20);
    requests.push_back({.prompt = ids, .count = 2});
  }
  const auto completions = engine.generate(requests, {.max_new_tokens = tokens}, {.seed = 4});
  std::vector<model::Sequence> rows;
  std::vector<float> drawn;
  for (std::size_t r = 0; r < requests.size(); ++r)
    for (const auto& completion : completions[r]) {
      rows.push_back({requests[r].prompt, completion.ids});
      drawn.insert(drawn.end(), completion.log_probs.begin(), completion.log_probs.end());
    }
  const c10::NoGradGuard no_grad;
  const auto scores = decoder.score(model::build_tree(rows), {}).log_prob.to(at::kFloat);
  REQUIRE(scores.numel() == static_cast<std::int64_t>(drawn.size()));
  double worst = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i)
    worst = std::max(worst, std::abs(static_cast<double>(scores.const_data_ptr<float>()[i]) - drawn[i]));
  return worst;
}

// Bytes of this process in memory now, or the most since `from_here`; free memory of the heap is not counted.
double resident(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(field + ":")) return std::stod(line.substr(field.size() + 1)) * 1024;
  return 0;
}
double from_here() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5\n";
  return resident("VmRSS");
}

}  // namespace

TEST_CASE("trainer, reference and engine of an adapter hold one model in memory") {
  model::Json shape = rlalgo::support::small_config("qwen3");
  for (const auto& [key, value] : {std::pair("vocab_size", 512), std::pair("hidden_size", 512),
                                   std::pair("intermediate_size", 2048), std::pair("num_hidden_layers", 4)})
    shape[key] = value;
  shape["initializer_range"] = 0.02;
  const auto decoder = model::random_decoder(model::parse_hf_config(shape, "test"), 3);
  double weights = 0;
  for (const auto& [name, value] : decoder->named_tensors()) weights += static_cast<double>(value.nbytes());
  REQUIRE(weights > 50e6);
  const double before = from_here();
  const bool counted = resident("VmHWM") < before + 1e6;  // not where the kernel keeps no such count
  model::attach_lora(*decoder, {.r = 4, .alpha = 8, .target_pattern = "all-linear"}, 1);
  const auto reference = decoder->reference();
  CHECK(worst_difference(*decoder, 4) < 1e-3);
  const std::vector<data::TokenId> prompt = {1, 2, 3}, completion = {4, 5, 6, 7};
  const auto score = [&](model::Decoder& policy) {
    return policy.score(model::build_tree(std::vector<model::Sequence>{{prompt, completion}}), {}).log_prob.sum();
  };
  score(*decoder).backward();
  {
    const c10::NoGradGuard no_grad;
    static_cast<void>(score(*reference));
  }
  INFO(weights / 1e6 << " MB of weights");
  if (counted) CHECK(resident("VmHWM") - before < weights / 2);
  // the bytes are those that the file or the initialiser made, for each of them
  for (std::size_t layer = 0; layer < 4; ++layer)
    CHECK(reference->weights().layers[layer].down_proj.weight.const_data_ptr() ==
          decoder->weights().layers[layer].down_proj.weight.const_data_ptr());
}

TEST_CASE("the engine's log-probs are those of the training path for every architecture") {
  for (const auto& entry : std::filesystem::directory_iterator(golden / "model")) {
    const auto decoder = model::load_decoder(entry.path());
    INFO(entry.path().filename().string());
    CHECK(worst_difference(*decoder, 40) < 1e-4);
  }
}

TEST_CASE("the engine computes with adapters") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"plain", "llama3_rope"}, {"patterns", "qwen2"},    {"dora", "qwen3"},           {"pissa", "llama"},
      {"head", "llama"},        {"experts", "qwen3_moe"}, {"experts_down", "mixtral"}, {"experts_joined", "gpt_oss"}};
  for (const auto& [name, base] : cases) {
    const auto decoder = model::load_decoder(golden / "model" / base);
    model::load_adapter(*decoder, golden / "adapter" / name);
    INFO(name);
    CHECK(worst_difference(*decoder, 30) < 1e-4);
  }
}

TEST_CASE("completions say which experts their tokens passed, whatever was in the cache") {
  for (const char* name : {"qwen3_moe", "mixtral", "gpt_oss"}) {
    const auto decoder = model::load_decoder(golden / "model" / name);
    inference::LocalEngine engine(
        decoder->config(), decoder->weights(),
        {.max_slots = 3, .prefill_rows = 7, .threads = 1, .keep_prefixes = true, .routed_experts = true});
    std::vector<data::TokenId> prompt;
    for (std::int32_t i = 0; i < 45; ++i) prompt.push_back((7 * i) % 20);
    const std::vector<inference::Request> requests = {{.prompt = prompt, .count = 4},
                                                      {.prompt = {1, 2, 3}, .count = 1}};
    const auto once = engine.generate(requests, {.max_new_tokens = 40}, {.seed = 4});
    const auto again = engine.generate(requests, {.max_new_tokens = 40}, {.seed = 4});  // the prompt's pages are there
    std::vector<model::Sequence> rows;
    for (std::size_t r = 0; r < requests.size(); ++r)
      for (std::size_t c = 0; c < once[r].size(); ++c) {
        CHECK(again[r][c].routed_experts == once[r][c].routed_experts);
        CHECK(once[r][c].routed_experts.size() % (requests[r].prompt.size() + once[r][c].ids.size() - 1) == 0);
        rows.push_back({requests[r].prompt, once[r][c].ids, once[r][c].routed_experts});
      }
    const c10::NoGradGuard no_grad;
    const auto replayed = decoder->score(model::build_tree(rows), {});
    for (auto& one : rows) one.routed_experts = {};
    const auto plain = decoder->score(model::build_tree(rows), {});
    INFO(name);
    CHECK(replayed.replay_mismatch.item<double>() < 1e-3);  // of a million choices few are as close as rounding
    CHECK((replayed.log_prob - plain.log_prob).abs().max().item<double>() < 1e-3);
    // One token: its prompt is all that was computed.
    const auto short_one = engine.generate(std::span(requests).subspan(1), {.max_new_tokens = 1}, {.seed = 4})[0][0];
    CHECK(short_one.routed_experts.size() == 3 * once[1][0].routed_experts.size() / (2 + once[1][0].ids.size()));
    inference::LocalEngine other(decoder->config(), decoder->weights(), {.threads = 1});
    CHECK(other.generate(requests, {.max_new_tokens = 4}, {.seed = 4})[0][0].routed_experts.empty());
  }
}

TEST_CASE("the engine sees an adapter that is put on later, and every change of it") {
  const auto decoder = model::random_decoder(model::parse_hf_config(rlalgo::support::small_config("llama"), "test"), 3);
  inference::LocalEngine engine(decoder->config(), decoder->weights(), {.threads = 1});
  const inference::Request request{.prompt = {1, 2, 3}};
  const auto draw = [&] { return engine.generate(std::span(&request, 1), {.max_new_tokens = 9}, {.seed = 1})[0][0]; };
  const auto before = draw();
  model::attach_lora(*decoder, {.r = 2, .alpha = 8, .target_pattern = "all-linear"}, 1);
  CHECK(draw().log_probs == before.log_probs);  // B is zero
  {
    const c10::NoGradGuard no_grad;
    for (auto& p : decoder->parameters()) p.value.add_(0.3);
  }
  CHECK(draw().log_probs != before.log_probs);
  CHECK(worst_difference(*decoder, 9) < 1e-4);
}
