#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <memory>
#include <sstream>
#include <type_traits>

#include <rlalgo/assembly/colocated_server.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";
}  // namespace

TEST_CASE("a server in this process listens, draws, and takes weights in memory") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  std::ostringstream log;
  const assembly::Opening opening{model, std::make_shared<distributed::World>(), log, {}};
  bool served = false;
  assembly::ColocatedServer().open<false>(opening, [&](auto drawn) {
    if constexpr (std::is_same_v<decltype(drawn.sync), colocated::ServedWeights>) {
      served = true;
      CHECK(drawn.address.starts_with("http://127.0.0.1:"));
      drawn.sync.publish(0);
      const std::vector<inference::Request> requests = {{.prompt = {1, 2, 3}, .count = 2}};
      CHECK(drawn.generator->generate(requests, {.max_new_tokens = 3}, {.seed = 1}).at(0).size() == 2);
    }
  });
  CHECK(served);
  CHECK(log.str().find("agents ask this process: http://127.0.0.1:") != std::string::npos);
}
