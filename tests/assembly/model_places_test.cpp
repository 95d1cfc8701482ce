#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>

#include <rlalgo/assembly/model_places.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";
}  // namespace

TEST_CASE("a directory is found, with the tokenizer of another one where that is named") {
  const support::ScratchDirectory scratch;
  const assembly::ModelPlaces places = assembly::find_model({quickstart.string()});
  CHECK(places.base == quickstart);
  CHECK(places.tokenizer == quickstart);
  CHECK(places.adapter.empty());
  CHECK(places.base_model == quickstart.string());
  CHECK(assembly::find_model({quickstart.string()}, assembly::NamedModel{scratch.path().string()}).tokenizer ==
        scratch.path());
}

TEST_CASE("an adapter stands for its base, and what is nowhere is refused with its place") {
  const support::ScratchDirectory scratch;
  scratch.write("a/adapter_config.json", "{\"base_model_name_or_path\": \"" + quickstart.string() + "\"}");
  const assembly::ModelPlaces places = assembly::find_model({(scratch.path() / "a").string()});
  CHECK(places.base == quickstart);
  CHECK(places.adapter == scratch.path() / "a");
  CHECK(places.tokenizer == quickstart);  // the adapter has none
  CHECK(support::lacks(support::raised_by([] { (void)assembly::resolve_model("no/such-model", "c.yaml:1"); }),
                       {"config.20", "no/such-model", "c.yaml:1", "rlalgo fetch"}) == "");
}
