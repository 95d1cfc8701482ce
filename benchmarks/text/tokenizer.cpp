// Tokenizing and rendering speed. RLALGO_TOKENIZER names a model directory (default: a small fixture), RLALGO_TEXT a
// UTF-8 file; the yardstick is the same in Python: see benchmarks/compare/tokenizers_text.py.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/text/chat_template.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace {

using namespace rlalgo;

std::string setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

std::string directory() { return setting("RLALGO_TOKENIZER", "tests/golden/text/smollm2"); }

// The lines of the text file, as a dataset has them.
const std::vector<std::string>& rows() {
  static const std::vector<std::string> lines = [] {
    std::ifstream file(setting("RLALGO_TEXT", "README.md"));
    std::vector<std::string> out;
    for (std::string line; std::getline(file, line);) out.push_back(line + "\n");
    if (out.empty())
      out.emplace_back("Weng earns $12 an hour for babysitting. Yesterday, she just did 50 minutes of babysitting.\n");
    return out;
  }();
  return lines;
}

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(text::Tokenizer::from_directory(directory()));
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state) {
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(directory());
  std::int64_t bytes = 0, tokens = 0;
  for (auto _ : state) {
    for (const std::string& row : rows()) {
      tokens += static_cast<std::int64_t>(tokenizer.encode(row).size());
      bytes += static_cast<std::int64_t>(row.size());
    }
  }
  state.SetBytesProcessed(bytes);
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(encode)->Unit(benchmark::kMillisecond);

void decode(benchmark::State& state) {
  const text::Tokenizer tokenizer = text::Tokenizer::from_directory(directory());
  std::vector<std::vector<std::int32_t>> ids;
  for (const std::string& row : rows()) ids.push_back(tokenizer.encode(row));
  std::int64_t bytes = 0;
  for (auto _ : state) {
    for (const auto& row : ids) bytes += static_cast<std::int64_t>(tokenizer.decode(row).size());
  }
  state.SetBytesProcessed(bytes);
}
BENCHMARK(decode)->Unit(benchmark::kMillisecond);

void render(benchmark::State& state) {
  const text::ChatTemplate chat = text::ChatTemplate::from_source(std::string(*text::ChatTemplate::bundled("qwen3")));
  const text::Json messages = text::Json::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many legs have 3 spiders?"},
          {"role": "assistant", "content": "<think>\n8 each\n</think>\n\n24"}, {"role": "user", "content": "And 5?"}])");
  for (auto _ : state) benchmark::DoNotOptimize(chat.render(messages, {.add_generation_prompt = true}));
}
BENCHMARK(render)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
