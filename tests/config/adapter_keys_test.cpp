#include <support/scratch.hpp>

#include <rlalgo/config/adapter_keys.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Node text(const std::string& word) { return make_scalar(word, false, {.file = "c.yaml", .line = 3}); }
}  // namespace

TEST_CASE("how an adapter starts") {
  using rlalgo::model::LoraInit;
  LoraInit init = LoraInit::standard;
  rlalgo::config::detail::read_initialisation(text("false"), init);
  CHECK(init == LoraInit::standard);
  rlalgo::config::detail::read_initialisation(text("pissa"), init);
  CHECK(init == LoraInit::pissa);
  CHECK(lacks(raised_by([&] { rlalgo::config::detail::read_initialisation(text("eva"), init); }),
              {"config.10", "peft_init_lora_weights eva", "c.yaml:3", "orthogonal"}) == "");
}

TEST_CASE("targets are a list, or one pattern") {
  rlalgo::model::LoraConfig a;
  for (const Key& row : adapter_keys(a))
    if (row.name == "lora_target_modules") row.reader(text("all-linear"));
  CHECK(a.target_pattern == "all-linear");
  CHECK(a.target_modules.empty());
}

TEST_CASE("without an adapter none of its keys has an effect") {
  rlalgo::model::LoraConfig a;
  for (const Key& row : adapter_keys(a, false))
    CHECK(row.idle_because().find("adapter: lora") != std::string_view::npos);
  for (const Key& row : adapter_keys(a)) CHECK(row.idle_because().empty());
}
