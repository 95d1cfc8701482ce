#include <support/scratch.hpp>

#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/identity.hpp>

using namespace rlalgo;

namespace {

std::vector<data::TokenizedPrompt> prompts() {
  return {{.row = 0, .ids = {1, 2, 3}, .prompt = "2 + 2?", .columns = {{"answer", "4"}}},
          {.row = 1, .ids = {1, 2, 4}, .prompt = "3 + 3?", .columns = {{"answer", "6"}}}};
}

void write_model(const support::ScratchDirectory& scratch, const std::string& name, const std::string& weights) {
  (void)scratch.write(name + "/config.json", "{}");
  (void)scratch.write(name + "/model.safetensors", weights);
}

}  // namespace

TEST_CASE("rows are told apart by ids, prompts, columns and order, not by their number") {
  const std::string before = assembly::rows_identity(prompts());
  CHECK(assembly::rows_identity(prompts()) == before);
  auto changed = prompts();
  changed[1].ids[2] = 5;
  CHECK(assembly::rows_identity(changed) != before);
  changed = prompts();
  changed[0].columns["answer"] = "5";
  CHECK(assembly::rows_identity(changed) != before);
  changed = prompts();
  changed[0].prompt = "2 + 2 ?";
  CHECK(assembly::rows_identity(changed) != before);
  changed = prompts();
  std::swap(changed[0], changed[1]);
  CHECK(assembly::rows_identity(changed) != before);
}

TEST_CASE("the identity of weights is that of their bytes") {
  const support::ScratchDirectory one, other;
  for (const auto* scratch : {&one, &other}) write_model(*scratch, "m", "weights");
  CHECK(assembly::weights_identity(one.path() / "m") == assembly::weights_identity(other.path() / "m"));
  write_model(other, "m", "weightz");
  CHECK(assembly::weights_identity(one.path() / "m") != assembly::weights_identity(other.path() / "m"));
}
