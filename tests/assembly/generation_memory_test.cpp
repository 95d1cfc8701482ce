#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>

#include <rlalgo/assembly/generation_memory.hpp>
#include <rlalgo/model/load.hpp>

using namespace rlalgo;

namespace {

const assembly::GenerationMemoryConfig config{
    .fraction = 0.3, .key = "trl.vllm_gpu_memory_utilization", .where = "c.yaml:7", .longest = 1000, .completions = 64};
const inference::MemoryShare share{
    .total = 80e9, .fraction = 0.3, .weights = 14e9, .copies = 3e9, .passes = 1e9, .page_bytes = 4'000'000};

}  // namespace

// On a device: tests/far/memory_test.cpp.
TEST_CASE("on the CPU nothing is limited, merged or told") {
  const auto decoder =
      model::load_decoder(std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model");
  const assembly::GenerationMemory none = assembly::generation_memory(*decoder, config);
  CHECK(none.max_slots == 0);
  CHECK(none.cache_bytes == 0);
  CHECK_FALSE(none.merge_adapter);
  CHECK(none.line.empty());
}

TEST_CASE("a plan says how a device is divided") {
  assembly::GenerationMemory memory{.cache_bytes = 6'000'000'000, .merge_adapter = true, .copies = 3e9};
  CHECK(assembly::detail::line_of(config, share, memory, 3'000'000'000) ==
        "0.3 of 80.0 GB for generation (trl.vllm_gpu_memory_utilization): weights 14.0 GB, copies with the adapter 3.0 "
        "GB, passes 1.0 GB, "
        "keys and values 6.0 GB: 48,000 tokens, 45 of the longest completions at a time; given back while training");
  memory = {.needed = 2e9};
  auto asynchronous = config;
  asynchronous.asynchronous = true;
  CHECK(assembly::detail::line_of(asynchronous, share, memory, 3'000'000'000) ==
        "keys and values as completions need them, at most 2.0 GB; the adapter stays apart: copies of 3.0 GB would not "
        "leave room");
}

TEST_CASE("a share that holds not one completion is refused with the one that does") {
  auto small = share;
  small.fraction = 0.2;
  const std::string error = support::raised_by([&] { assembly::detail::refuse_share(config, small, 132e6); });
  CHECK(support::lacks(error, {"[rlalgo.assembly.2]", "0.2 of 80.0 GB is 16.0 GB", "weights 14.0 GB", "132 MB",
                               "1,000 tokens", "c.yaml:7", "set trl.vllm_gpu_memory_utilization to 0.23 or more"}) ==
        "");
  const std::string never = support::raised_by([&] { assembly::detail::refuse_share(config, small, 70e9); });
  CHECK(never.find("all of the device would not hold one") != std::string::npos);
}
