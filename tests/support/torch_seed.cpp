// Every test of a program with torch draws its random tensors from the same seed, whichever tests run before it:
// torch's own generator starts from entropy. RLALGO_TEST_SEED sets another.
#include <cstdint>
#include <cstdlib>
#include <string>

#include <ATen/Context.h>

#define CATCH_CONFIG_EXTERNAL_INTERFACES  // Catch2 2 declares listeners only then
#include <support/catch.hpp>

namespace {

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

std::uint64_t seed() {
  const char* const set = std::getenv("RLALGO_TEST_SEED");
  return set == nullptr ? 1 : std::stoull(set);
}

struct TorchSeed : Listener {
  using Listener::Listener;
  void testCaseStarting(const Catch::TestCaseInfo&) override { at::manual_seed(seed()); }
};

}  // namespace

CATCH_REGISTER_LISTENER(TorchSeed)
