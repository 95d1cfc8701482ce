#include <support/catch.hpp>

#include <set>
#include <string>

#include <rlalgo/config/recognised.hpp>

using namespace rlalgo::config;

TEST_CASE("no key is in two tables, and every key has its reason") {
  std::set<std::string> top, trl;
  for (const auto& keys : {lacking_keys(), idle_keys(), removed_keys()}) {
    for (const RecognisedKey& entry : keys) {
      INFO(entry.key);
      CHECK(top.insert(std::string(entry.key)).second);
      CHECK_FALSE(entry.reason.empty());
    }
  }
  for (const auto& keys : {lacking_trl_keys(), idle_trl_keys()}) {
    for (const RecognisedKey& entry : keys) {
      INFO(entry.key);
      CHECK(trl.insert(std::string(entry.key)).second);
      CHECK_FALSE(entry.reason.empty());
    }
  }
}

TEST_CASE("families of keys end in an underscore and hold none of the single keys that mean something else") {
  for (const RecognisedKey& family : idle_prefixes()) {
    CHECK(family.key.ends_with("_"));
    for (const RecognisedKey& entry : idle_keys()) CHECK_FALSE(entry.key.starts_with(family.key));
  }
}
