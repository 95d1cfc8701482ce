#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <memory>
#include <vector>

#include <rlalgo/assembly/reference.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::PreferenceData pairs() {
  assembly::PreferenceData out;
  out.train = std::make_shared<data::AnswerSet>(2);
  const std::vector<data::TokenId> prompt = {1, 2}, chosen = {3, 4}, rejected = {5};
  out.train->append(0, true, prompt, chosen);
  out.train->append(0, false, prompt, rejected);
  return out;
}

}  // namespace

TEST_CASE("a reference stays, follows the policy, or leaves its log-probs behind") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::PreferenceData data = pairs();
  CHECK(assembly::make_reference({}, model, nullptr, data).scorer == nullptr);
  const auto frozen = assembly::frozen_reference(model);
  REQUIRE(frozen != nullptr);
  CHECK(frozen != model.decoder);
  const assembly::Reference plain = assembly::make_reference({}, model, frozen, data);
  CHECK(plain.scorer == frozen);
  CHECK(plain.companions.empty());
  CHECK(assembly::make_reference({.follows = trainer::ReferenceSync::Config{.every = 2, .mixup = 0.5}}, model, frozen,
                                 data)
            .companions.size() == 1);
  const support::ScratchDirectory scratch;
  int asked = 0;
  const assembly::ReferenceConfig computed{
      .precomputed = assembly::ReferenceConfig::Precomputed{.directory = scratch.path(), .identity = [&] {
                                                              ++asked;
                                                              return std::string("w");
                                                            }}};
  const assembly::Reference before = assembly::make_reference(computed, model, frozen, data);
  CHECK(before.scorer == nullptr);
  REQUIRE(before.notes.size() == 1);
  CHECK(before.notes[0].find("computed and kept in") != std::string::npos);
  assembly::PreferenceData again = pairs();
  CHECK(assembly::make_reference(computed, model, frozen, again).notes[0].find("read from") != std::string::npos);
  CHECK(asked == 2);
}

TEST_CASE("inputs of a run that learns from preferences") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::PreferenceData data = pairs();
  const auto answers = data.train;
  const auto frozen = assembly::frozen_reference(model);
  assembly::Reference reference = assembly::make_reference({}, model, frozen, data);
  const trainer::OfflineInputs inputs = assembly::offline_inputs(model, std::move(data), std::move(reference));
  CHECK(inputs.policy == model.decoder);
  CHECK(inputs.answers == answers);
  CHECK(inputs.reference == frozen);
  CHECK(inputs.evaluation == nullptr);
  CHECK(inputs.decode(model.tokenizer.encode("1 2", false)) == "1 2");
}

TEST_CASE("the reference of an adapter is what it begins as, or the bare base") {
  assembly::LanguageModelConfig named{.model = {quickstart.string()},
                                      .lora = model::LoraConfig{.r = 2, .target_modules = {"q_proj"}}};
  const assembly::LanguageModel model = assembly::LanguageModel::load(named);
  CHECK(assembly::frozen_reference(model, {.adapter_start = false})->adapter() == nullptr);
  const assembly::ModelPlaces places = assembly::find_model(named.model);
  const std::string before = assembly::reference_identity(named, places);
  named.bfloat16 = true;
  CHECK(assembly::reference_identity(named, places) != before);
}
