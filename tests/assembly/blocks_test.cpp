#include <rlalgo/assembly/blocks.hpp>

#include <filesystem>
#include <utility>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/assembly/feature_network.hpp>
#include <rlalgo/strided_ebft.hpp>

using namespace rlalgo;

TEST_CASE("blocks of documents are drawn and trained on without a file of settings") {
  const auto quickstart = std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model";
  const support::ScratchDirectory scratch;
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  assembly::Documents documents;
  data::Document document;
  document.ids = model.tokenizer.encode("1 + 1 = 2, 2 + 1 = 3, 3 + 1 = 4, 4 + 1 = 5", false);
  document.loss_mask.assign(document.ids.size(), 1);
  documents.train = {document, document};
  TrainConfig<StridedEbft> config;
  config.run.sampling = {.stride = 4, .context_length = 4, .generate_max_len = 2, .samples = 2, .micro_batch_size = 2};
  config.run.trainer.loop.output_dir = scratch.path();
  config.run.trainer.loop.max_steps = 1;
  config.run.trainer.schedule = {.name = "constant", .learning_rate = 1e-3};
  assembly::Blocks blocks(model);
  auto inputs = assembly::strided_inputs(model, blocks, std::move(documents), assembly::feature_network({}, model));
  CHECK(&inputs.generator == &blocks.engine());
  CHECK(inputs.policy == model.decoder);
  auto trainer = make_trainer<StridedEbft>(std::move(config), std::move(inputs));
  CHECK(trainer.step(0).grad_norm > 0);
}
