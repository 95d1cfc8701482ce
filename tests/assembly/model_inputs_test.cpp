#include <rlalgo/assembly/model_inputs.hpp>

#include <filesystem>
#include <memory>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/trainer/offline.hpp>

using namespace rlalgo;

TEST_CASE("inputs of a trainer get the model, how it is saved, and the ranks") {
  const auto quickstart = std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model";
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  const auto world = std::make_shared<distributed::World>();
  trainer::OfflineInputs inputs;
  assembly::set_model(inputs, model, world, nullptr);
  CHECK(inputs.policy == model.decoder);
  CHECK(inputs.world == world);
  CHECK(inputs.placement == nullptr);
  const support::ScratchDirectory scratch;
  inputs.save_model(scratch.path() / "model");
  inputs.save_output(scratch.path() / "output");
  for (const char* name : {"model", "output"}) CHECK(std::filesystem::exists(scratch.path() / name / "config.json"));
}
