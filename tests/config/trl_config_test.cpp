#include <support/catch.hpp>

#include <set>
#include <string_view>

#include <rlalgo/config/trl_config.hpp>

using namespace rlalgo::config;

TEST_CASE("the ratio may have to be corrected where another policy draws") {
  TrlConfig t;
  CHECK_FALSE(t.may_correct());
  t.generation_quantization = "int8";
  CHECK(t.may_correct());
  t = {};
  t.async_prefetch = true;
  CHECK(t.may_correct());
  t = {};
  t.use_vllm = true;
  CHECK(t.may_correct());
  t = {};
  t.replay_buffer_size = 1;
  CHECK_FALSE(t.may_correct());
  t.replay_recompute_logps = true;
  CHECK(t.may_correct());
}

TEST_CASE("no key of the section has two rows") {
  TrlConfig t;
  std::set<std::string_view> names;
  for (const Key& row : trl_keys(t)) {
    INFO(row.name);
    CHECK(row.name.starts_with("trl."));
    CHECK(names.insert(row.name).second);
  }
}
