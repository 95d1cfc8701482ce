#include <support/catch.hpp>

#include <algorithm>
#include <set>

#include <rlalgo/config/supported.hpp>

using namespace rlalgo::config;

TEST_CASE("what is supported is known, and nothing is listed twice") {
  for (const Names* names : {&schedulers(), &optimizers()}) {
    CHECK(std::set<std::string>(names->known.begin(), names->known.end()).size() == names->known.size());
    CHECK_FALSE(names->supported.empty());
    for (const std::string& name : names->supported) {
      INFO(name);
      CHECK(std::count(names->known.begin(), names->known.end(), name) == 1);
    }
  }
}

TEST_CASE("the defaults of RunConfig are supported") {
  const auto supports = [](const Names& names, const std::string& name) {
    return std::count(names.supported.begin(), names.supported.end(), name) == 1;
  };
  CHECK(supports(schedulers(), "cosine"));
  CHECK(supports(optimizers(), "adamw_torch_fused"));
}

TEST_CASE("the spellings of AdamW with moments in 8 bits are those that mean bitsandbytes") {
  for (const OptimizerName& row : optimizer_names()) {
    INFO(row.name);
    const bool eight = row.name == "adamw_8bit" || row.name == "adamw_bnb_8bit" || row.name == "paged_adamw_8bit";
    CHECK((moments_of(row.name) == Moments::blockwise_8bit) == eight);
    CHECK_FALSE((row.smaller && eight));  // nothing of those is left out, so nothing is told
  }
  CHECK(moments_of("lion_8bit") == Moments::whole);
}

TEST_CASE("what moves the weights, by the optimizer's name") {
  CHECK(optimizer_named("adamw_torch").rule == UpdateRule::adamw);
  for (const char* name : {"lion", "lion_32bit", "paged_lion_32bit", "lion_8bit", "paged_lion_8bit"})
    CHECK(optimizer_named(name).rule == UpdateRule::lion);
  CHECK(optimizer_named("adafactor").rule == UpdateRule::adafactor);
  CHECK(optimizer_named("muon").rule == UpdateRule::muon);
  CHECK_FALSE(optimizer_named("lion_32bit").smaller);
  CHECK(optimizer_named("lion_8bit").smaller);
}
