// Writes the quickstart's word problems as JSONL with GSM8K's columns: {"question", "answer": "…\n#### n"}.
//
//   quickstart_make_problems OUTPUT_DIR [--train 2000] [--test 200]
//
// The test split shares no question with the train split.
#include <filesystem>
#include <iostream>
#include <set>
#include <string>

#include <nlohmann/json.hpp>
#include <rlalgo/os/atomic_file.hpp>

#include "problems.hpp"

namespace {

constexpr std::uint64_t seed = 20260101;

std::string line(const quickstart::Problem& p) {
  nlohmann::ordered_json row;
  row["question"] = p.question;
  row["answer"] = quickstart::right_solution(p);
  return row.dump() + "\n";
}

}  // namespace

int main(int argc, char** argv) try {
  std::size_t train = 2000, test = 200;
  if (argc < 2) {
    std::cerr << "usage: quickstart_make_problems OUTPUT_DIR [--train N] [--test N]\n";
    return 2;
  }
  for (int i = 2; i + 1 < argc; i += 2) (std::string(argv[i]) == "--train" ? train : test) = std::stoul(argv[i + 1]);
  const std::filesystem::path directory = argv[1];
  std::filesystem::create_directories(directory);

  std::set<std::string> seen;
  std::uint64_t index = 0;
  const auto write = [&](const std::string& name, std::size_t rows) {
    rlalgo::os::AtomicFile file(directory / name);
    for (std::size_t made = 0; made < rows; ++index) {
      const quickstart::Problem p = quickstart::make_problem(seed, index);
      if (!seen.insert(p.question).second) continue;
      file.write(line(p));
      ++made;
    }
    file.commit();
  };
  write("test.jsonl", test);
  write("train.jsonl", train);
  std::cout << directory.string() << ": " << train << " train and " << test << " test problems\n";
  return 0;
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
