#include <support/scratch.hpp>

#include <rlalgo/config/reference.hpp>

using namespace rlalgo::config;

TEST_CASE("a recipe without reference has none") {
  RunConfig c;
  c.rl = "orpo";
  CHECK_FALSE(needs_reference(c));
  c.rl = "ipo";
  CHECK(needs_reference(c));
}

TEST_CASE("a synced reference and an adapter: refused before anything is loaded") {
  RunConfig c;
  c.rl = "dpo";
  c.preference.sync_ref_model = true;
  CHECK_NOTHROW(check_reference(c, {}));
  CHECK_THROWS_WITH(check_reference(c, {.base = "base", .adapter = "adapter"}), Catch::Contains("[rlalgo.config.8]"));
  c.lora_model_dir = "adapter";
  CHECK_THROWS_WITH(check_reference(c, {}), Catch::Contains("sync_ref_model"));
  c.rl = "orpo";  // has no reference
  CHECK_NOTHROW(check_reference(c, {}));
}
