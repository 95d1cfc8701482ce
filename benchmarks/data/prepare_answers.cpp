// A dataset of many preference rows: read, tokenized by threads into the arena on disk, shuffled, written as a prepared
// file and read back by mapping it. Prints rows/s and the peak of anonymous memory.
//
//   bench_data_prepare_answers [ROWS] [BYTES_PER_ROW] [DIRECTORY] [THREADS]       default 1000000 1024 . (all
//   processors)
//
// RLALGO_TOKENIZER names a model directory (default: a small fixture). The rows are generated once, as JSON lines, and
// removed at the end; the disk must hold them and twice their token ids.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlalgo/data/answer_file.hpp>
#include <rlalgo/data/numpy_permutation.hpp>
#include <rlalgo/data/preference_transform.hpp>
#include <rlalgo/data/prepare_answers.hpp>
#include <rlalgo/data/row_stream.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace {

using namespace rlalgo;

// Megabytes of a line of /proc/self/status: RssAnon (what cannot be dropped), VmHWM (peak, mapped files included).
double status_megabytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::strtod(line.c_str() + key.size() + 1, nullptr) / 1024.0;
  return 0;
}

void write_rows(const std::filesystem::path& path, std::int64_t rows, std::size_t bytes) {
  static const std::vector<std::string> words = {"the",  "answer", "is",   "apples", "per",   "day", "total", "each",
                                                 "and",  "then",   "so",   "she",    "sells", "for", "hours", "12",
                                                 "3.50", "=",      "with", "he",     "makes", "how", "many",  "of"};
  std::ofstream out(path, std::ios::binary);
  std::uint64_t state = 1;
  const auto text = [&](std::size_t size) {
    std::string made;
    while (made.size() < size) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      made += words[(state >> 33U) % words.size()] + " ";
    }
    return made;
  };
  for (std::int64_t i = 0; i < rows; ++i)
    out << "{\"question\": \"" << text(bytes / 4) << i << "\", \"chosen\": \"" << text(3 * bytes / 8)
        << "\", \"rejected\": \"" << text(3 * bytes / 8 - 60) << "\"}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  const std::int64_t rows = std::stoll(argument(1, "1000000"));
  const auto bytes = static_cast<std::size_t>(std::stoull(argument(2, "1024")));
  const std::filesystem::path directory = std::filesystem::path(argument(3, ".")) / "bench_prepare_answers";
  const int threads = std::stoi(argument(4, "0"));
  std::filesystem::create_directories(directory);
  const std::filesystem::path file = directory / "rows.jsonl";
  write_rows(file, rows, bytes);
  const double megabytes = static_cast<double>(std::filesystem::file_size(file)) / 1e6;
  std::printf("%lld rows, %.0f MB; %.0f MB resident before\n", static_cast<long long>(rows), megabytes,
              status_megabytes("VmRSS"));

  const char* chosen = std::getenv("RLALGO_TOKENIZER");
  const text::Tokenizer tokenizer =
      text::Tokenizer::from_directory(chosen != nullptr ? chosen : "tests/golden/text/smollm2");
  data::TextTools tools;
  tools.encode = [&](const std::string& text, bool special) { return tokenizer.encode(text, special); };
  tools.decode = [&](std::span<const data::TokenId> ids) { return tokenizer.decode(ids, false); };
  tools.eos = tokenizer.eos_id();
  tools.eos_text = tokenizer.eos_token();

  double peak = 0;
  const auto note = [&] { peak = std::max(peak, status_megabytes("RssAnon")); };
  os::Stopwatch watch;
  data::DatasetSource source;
  source.path = file.string();
  data::RowStream stream(source);
  data::AnswerSet answers(2, std::make_shared<data::IdArena>(data::ArenaConfig{.directory = directory}));
  data::PrepareConfig config{.tokens = {.max_length = 4096}, .digests = true, .threads = threads};
  config.progress = [&](std::int64_t) { note(); };
  const data::PreparedRows done = data::prepare_answers(
      [&](std::size_t n, std::vector<data::Record>& out) { return stream.next(n, out); },
      data::make_preference_transform("chatml.intel", data::PreferenceFamily::pairs, {}, {}), config, tools, answers);
  const double tokenized = watch.seconds();
  note();
  std::printf("tokenized: %.1f s, %.0f rows/s, %.1f MB/s, %.1f M tokens (%.0f MB of ids%s), %lld dropped\n", tokenized,
              static_cast<double>(rows) / tokenized, megabytes / tokenized,
              static_cast<double>(answers.all_tokens()) / 1e6, static_cast<double>(answers.all_tokens()) * 4e-6,
              answers.arena()->on_disk() ? " on disk" : "", static_cast<long long>(done.counts.too_long));

  watch = {};
  const std::vector<std::size_t> order = data::numpy_permutation(answers.examples(), 42);
  const data::AnswerSet shuffled = answers.selected(order);
  data::write_prepared(directory / "answers.bin", "key", {shuffled, data::AnswerSet(2), {}});
  note();
  std::printf("shuffled and written: %.1f s\n", watch.seconds());
  watch = {};
  const auto back = data::read_prepared(directory / "answers.bin", "key");
  note();
  std::printf("read back: %.2f s, %zu examples\n", watch.seconds(), back->train.examples());
  std::printf("peak of anonymous memory %.0f MB; VmHWM %.0f MB (mapped file pages included)\n", peak,
              status_megabytes("VmHWM"));
  std::filesystem::remove_all(directory);
  return 0;
}
