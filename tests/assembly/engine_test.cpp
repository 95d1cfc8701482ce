#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <iostream>
#include <memory>
#include <type_traits>

#include <rlalgo/assembly/engine.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";
}  // namespace

TEST_CASE("an engine draws with the trainer's weights, or with copies where generation is asynchronous") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  const assembly::Opening opening{model, std::make_shared<distributed::World>(), std::cerr, {}};
  const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3}}};
  int opened = 0;
  const assembly::Engine engine{.stop_strings = true, .threads = 1};
  engine.open<false>(opening, [&](auto drawn) {
    ++opened;
    STATIC_REQUIRE(std::is_same_v<decltype(drawn.sync), sync::SharedWeights>);
    CHECK(drawn.snapshots == nullptr);
    CHECK(drawn.moved);
    drawn.sync.publish(0);
    // A stop string ends a completion: the engine decodes as it draws.
    const auto out =
        drawn.generator->generate(requests, {.max_new_tokens = 4, .stop_strings = {"\x01none"}}, {.seed = 1});
    CHECK(out.at(0).at(0).ids.size() <= 4);
  });
  engine.open<true>(opening, [&](auto drawn) {
    ++opened;
    STATIC_REQUIRE(std::is_same_v<decltype(drawn.sync), sync::SnapshotWeights>);
    REQUIRE(drawn.snapshots != nullptr);
    drawn.sync.publish(5);
    CHECK(drawn.hold() == 5);
    const std::uint64_t before = drawn.progress();
    (void)drawn.generator->generate(requests, {.max_new_tokens = 2}, {.seed = 1});
    CHECK(drawn.progress() > before);
  });
  CHECK(opened == 2);
}
