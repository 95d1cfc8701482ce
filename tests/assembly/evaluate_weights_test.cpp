#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <rlalgo/assembly/evaluate_weights.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/run/loop.hpp>

using namespace rlalgo;

namespace {
const std::filesystem::path quickstart =
    std::filesystem::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

// What evaluate_weights() asks of a trainer.
struct FixedTrainer {
  struct Config {
    run::LoopConfig loop;
  };
  Config settings;
  std::filesystem::path loaded;
  [[nodiscard]] const Config& config() const { return settings; }
  [[nodiscard]] bool has_companions() const { return false; }
  void load_weights(const std::filesystem::path& path, const run::Json* = nullptr) { loaded = path; }
  [[nodiscard]] core::Metrics evaluate() const {
    core::Metrics out;
    out.mean("loss", 2.0, 1.0);
    return out;
  }
};

}  // namespace

TEST_CASE("weights of a directory are those of one architecture, with the step that it says") {
  const support::ScratchDirectory scratch;
  const auto decoder = model::load_decoder(quickstart);
  FixedTrainer trainer;
  CHECK(assembly::evaluate_weights(trainer, *decoder, {}).step == 0);
  CHECK(trainer.loaded.empty());
  std::filesystem::copy(quickstart / "config.json", scratch.path() / "config.json");
  scratch.write("trainer_state.json", "{\"global_step\": 12, \"epoch\": 1.5}");
  const run::Record record = assembly::evaluate_weights(trainer, *decoder, scratch.path());
  CHECK(record.step == 12);
  CHECK(record.epoch == 1.5);
  CHECK(trainer.loaded == scratch.path());
  model::DecoderConfig other = decoder->config();
  other.layers += 1;
  CHECK(support::lacks(support::raised_by([&] { assembly::detail::require_architecture(scratch.path(), other); }),
                       {"config.29", "layers"}) == "");
}
