#include <rlalgo/cpu/features.hpp>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include <support/catch.hpp>

using namespace rlalgo::cpu;

namespace {

// Whether Linux lists a feature of the processor.
bool listed(const std::string& feature) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line);
    for (std::string word; words >> word;)
      if (word == feature) return true;
    return false;
  }
  return false;
}

}  // namespace

TEST_CASE(
    "the processor's instructions for bfloat16 are those that Linux lists, unless RLALGO_CPU names a set without") {
  const char* const named = std::getenv("RLALGO_CPU");
  const std::string_view name = named == nullptr ? "" : named;
  const bool allowed = name.empty() || name == "avx512_bf16" || name == "amx_bf16";
  CHECK(multiplies_bfloat16() == (listed("avx512_bf16") && allowed));
  CHECK(has_amx() == (listed("amx_bf16") && listed("amx_tile")));
}
