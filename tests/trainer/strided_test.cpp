#include <rlalgo/trainer/strided.hpp>

#include <memory>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/sampler/rollouts_file.hpp>
#include <rlalgo/strided_ebft.hpp>

using namespace rlalgo;

namespace {

std::vector<data::Document> documents(std::size_t count) {
  std::vector<data::Document> out(count);
  for (std::size_t d = 0; d < count; ++d)
    for (std::size_t i = 0; i < 9 + d; ++i) {
      out[d].ids.push_back(static_cast<data::TokenId>((3 * i + d * d) % 23));
      out[d].loss_mask.push_back(1);
    }
  return out;
}

// Remembers the seeds of the draws, one letter a call: of training, of evaluation.
struct SeededBlocks : inference::BlockEngine {
  using BlockEngine::BlockEngine;
  std::string seen = {};

  inference::BlockSamples generate(const inference::BlockRequest& request, const inference::SamplingConfig& sampling,
                                   inference::DrawKey key) {
    seen += key.seed == 7 ? 't' : key.seed == ~std::uint64_t{7} ? 'e' : '?';
    return BlockEngine::generate(request, sampling, key);
  }
};

struct Run {
  std::shared_ptr<model::Decoder> policy =
      model::random_decoder(model::parse_hf_config(support::small_config("qwen3"), "test"), 3);
  std::shared_ptr<model::Policy> frozen = policy->frozen_copy();
  SeededBlocks engine{policy->config(), policy->weights()};
  std::vector<std::vector<data::Json>> lines;

  run::Outcome train(const std::filesystem::path& directory, std::int64_t steps,
                     std::optional<std::filesystem::path> resume = {}, std::size_t held_out = 0) {
    TrainConfig<StridedEbft> config;
    config.method.loss.cross_entropy = 0.1;
    config.run.sampling = {.stride = 3,
                           .context_length = 3,
                           .generate_max_len = 2,
                           .samples = 3,
                           .micro_batch_size = 2,
                           .gradient_accumulation_steps = 2,
                           .seed = 7};
    config.run.trainer.schedule = {.name = "constant", .learning_rate = 0.01, .total_steps = 4};
    config.run.trainer.loop.max_steps = steps;
    config.run.trainer.loop.output_dir = directory;
    config.run.trainer.loop.logging_steps = 1;
    config.run.trainer.loop.save = run::Cadence::steps(2);
    if (held_out > 0) config.run.trainer.loop.eval = run::Cadence::steps(2);
    config.run.trainer.loop.resume_from_checkpoint = resume;
    trainer::StridedInputs<SeededBlocks> inputs{.policy = policy,
                                                .generator = engine,
                                                .documents = documents(7),
                                                .network = {frozen, {1, 2}},
                                                .evaluation = documents(held_out)};
    inputs.on_documents = [file = sampler::RolloutsFile(directory)](
                              std::int64_t step, const std::vector<sampler::StridedDocument>& shown) mutable {
      std::vector<data::Json> records;
      for (const auto& row : shown) records.push_back(sampler::rollout_record(step, row, 3));
      file.write(step, records);
    };
    return rlalgo::train<StridedEbft>(config, std::move(inputs));
  }
};

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("a run over documents that is resumed ends with the bytes of one that was not interrupted") {
  const support::ScratchDirectory one, two;
  Run whole;
  CHECK(whole.train(one.path(), 4).step == 4);
  Run first, second;
  (void)first.train(two.path(), 2);
  CHECK(second.train(two.path(), 4, two.path() / "checkpoint-2").step == 4);
  CHECK(read(one.path() / "model.safetensors") == read(two.path() / "model.safetensors"));
  const std::string rollouts = read(one.path() / sampler::RolloutsFile::name);
  CHECK_FALSE(rollouts.empty());
  CHECK(rollouts == read(two.path() / sampler::RolloutsFile::name));
}

TEST_CASE("held-out documents are evaluated, every one, with draws of their own") {
  const support::ScratchDirectory directory;
  Run run;
  CHECK(run.train(directory.path(), 2, {}, 5).step == 2);
  const std::string metrics = read(directory.path() / "metrics.jsonl");
  CHECK(metrics.find("eval_ebft/alignment") != std::string::npos);
  CHECK(metrics.find("eval_loss") != std::string::npos);
  CHECK(run.engine.seen == std::string(7, 't') + std::string(5, 'e'));  // an epoch of seven documents; five
}
