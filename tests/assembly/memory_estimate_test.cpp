#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <rlalgo/assembly/memory_estimate.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>

using namespace rlalgo;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/model";

// By what for.
std::map<std::string, double> estimated(const model::Decoder& decoder, const assembly::EstimateConfig& config,
                                        std::int64_t ranks = 1, std::int64_t completions = 0, bool copied = false,
                                        std::int64_t longest = 10) {
  assembly::Overview o;
  o.ranks = ranks;
  o.longest = longest, o.completion_length = 20, o.rows_per_step = 4, o.completions_per_row = completions,
  o.micro_batch_tokens = 60;
  assembly::estimate_memory(o, config, decoder, copied);
  std::map<std::string, double> out(o.memory.begin(), o.memory.end());
  out["all"] = o.memory_bytes();
  return out;
}

struct Sizes {
  double outside = 0.0, layer = 0.0, all = 0.0, experts = 0.0;  // bytes in float32
};
Sizes sizes_of(const model::Decoder& decoder) {
  Sizes out;
  std::map<std::string, double> layers;
  for (const auto& p : decoder.named_tensors()) {
    const auto bytes = 4.0 * static_cast<double>(p.second.numel());
    const std::string prefix = "model.layers.";
    if (!p.first.starts_with(prefix))
      out.outside += bytes;
    else if (p.first.find(".experts.") != std::string::npos)
      out.experts += bytes;
    else
      layers[p.first.substr(0, p.first.find('.', prefix.size()))] += bytes;
  }
  out.all = out.outside + out.experts;
  for (const auto& [name, bytes] : layers) {
    out.layer = std::max(out.layer, bytes);
    out.all += bytes;
  }
  return out;
}

}  // namespace

TEST_CASE("one rank has all weights, gradients and states, and the larger of backward pass and generation") {
  const auto decoder = model::load_decoder(golden / "qwen2");
  const Sizes size = sizes_of(*decoder);
  const model::DecoderConfig& c = decoder->config();
  const auto training = estimated(*decoder, {}, 1, 0, true);
  CHECK(training.at("weights") == Approx(size.all));
  CHECK(training.at("gradients") == Approx(size.all));
  CHECK(training.at("optimizer") == Approx(2.0 * size.all));
  CHECK(training.at("reference") == Approx(size.all));
  const double token =
      4.0 * static_cast<double>(
                c.layers * (2 * c.hidden_size + 2 * (c.heads + c.kv_heads) * c.head_dim + 2 * c.intermediate_size));
  CHECK(training.at("backward pass") == Approx(60.0 * (token + 16.0 * static_cast<double>(c.vocab_size))));
  // Keys and values of 4 × 8 completions; gradients are gone by then.
  const auto wide = estimated(*decoder, {}, 1, 8, false, 100'000);
  CHECK(wide.at("keys and values") ==
        Approx(32.0 * 100'020.0 * static_cast<double>(c.layers * 2 * c.kv_heads * c.head_dim) * 4.0));
  CHECK(wide.at("gradients") == 0.0);
  CHECK_FALSE(wide.contains("backward pass"));
  CHECK(estimated(*decoder, {}, 1, 1, false, 100'000).at("keys and values") == Approx(wide.at("keys and values") / 8));
}

TEST_CASE("shards divide what is sharded, and what is whole for a while is counted") {
  const auto decoder = model::load_decoder(golden / "qwen2");
  const Sizes size = sizes_of(*decoder);
  const auto of = [&](std::int64_t stage, std::int64_t ranks) {
    return estimated(*decoder, {.stage = stage, .shard_ranks = ranks}, ranks);
  };
  const auto one = of(1, 4), two = of(2, 4), three = of(3, 4);
  CHECK(one.at("weights") == Approx(size.all));
  CHECK(two.at("weights") == Approx(size.all));
  CHECK(three.at("weights") == Approx(size.all / 4 + size.outside + 2 * size.layer));
  for (const auto& stage : {one, two, three}) CHECK(stage.at("optimizer") == Approx(2.0 * size.all / 4));
  CHECK(one.at("gradients") == Approx(size.all + 2.0 * std::max(size.outside, size.layer)));
  const double way = std::max(size.outside + 3 * size.layer, 3 * size.outside);
  for (const auto& stage : {two, three}) CHECK(stage.at("gradients") == Approx(size.all / 4 + way));
  CHECK(two.at("all") < one.at("all"));
  CHECK(of(3, 8).at("optimizer") == Approx(size.all / 4));
  // Ranks that share nothing add what a sum of gradients takes; ranks that share rows have a part of the tokens.
  CHECK(estimated(*decoder, {}, 2).at("gradients") == Approx(size.all + std::max(size.outside, size.layer)));
  CHECK(estimated(*decoder, {.row_ranks = 2}, 2).at("backward pass") ==
        Approx(estimated(*decoder, {}, 2).at("backward pass") / 2));
  CHECK(estimated(*decoder, {}, 2).at("backward pass") == Approx(estimated(*decoder, {}).at("backward pass")));
  // An engine of this process reads whole weights.
  assembly::EstimateConfig draws{.stage = 3, .shard_ranks = 4};
  draws.generation.needed = 1e12;
  const auto generating = estimated(*decoder, draws, 4, 8);
  CHECK(generating.at("weights") == Approx(size.all / 4 + size.all));
  CHECK(generating.at("keys and values") == Approx(1e12));
  CHECK(generating.at("gradients") == 0.0);
  // An asynchronous run has both, and two copies of what is trained.
  draws.asynchronous = true;
  const auto both = estimated(*decoder, draws, 4, 8);
  CHECK(both.at("keys and values") == Approx(1e12));
  CHECK(both.at("gradients") > 0.0);
  CHECK(both.at("copies of what is trained") == Approx(2.0 * size.all));
}

TEST_CASE("experts that ranks share are divided by those ranks alone") {
  const auto decoder = model::load_decoder(golden / "qwen3_moe");
  const Sizes size = sizes_of(*decoder);
  REQUIRE(size.experts > 0.0);
  const double rest = size.all - size.experts;
  const auto apart = estimated(*decoder, {.expert_ranks = 2}, 2);
  CHECK(apart.at("weights") == Approx(rest + size.experts / 2));
  CHECK(apart.at("optimizer") == Approx(2.0 * (rest + size.experts / 2)));
  CHECK(apart.at("gradients") == Approx(rest + std::max(size.outside, size.layer) + size.experts / 2));
  const auto both = estimated(*decoder, {.stage = 3, .shard_ranks = 4, .expert_ranks = 2}, 4);
  CHECK(both.at("optimizer") == Approx(2.0 * (rest / 4 + size.experts / 2)));
  // Not divided they are a part of their layers, which are whole for a while.
  const auto together = estimated(*decoder, {.stage = 3, .shard_ranks = 4}, 4);
  CHECK(together.at("optimizer") == Approx(2.0 * size.all / 4));
  CHECK(together.at("weights") ==
        Approx(size.all / 4 + size.outside +
               2 * (size.layer + size.experts / static_cast<double>(decoder->config().layers))));
}

TEST_CASE("inputs of layers that lie elsewhere are told beside, and a base in bits is counted in bits") {
  const auto decoder = model::load_decoder(golden / "qwen2");
  const model::DecoderConfig& c = decoder->config();
  const auto kept = [&](bool checkpointing, const std::string& away) {
    return estimated(*decoder, {.checkpointing = checkpointing, .checkpoints_away = away}).at("backward pass") /
               (4.0 * 60.0) -
           4.0 * static_cast<double>(c.vocab_size);
  };
  const auto layer =
      static_cast<double>(2 * c.hidden_size + 2 * (c.heads + c.kv_heads) * c.head_dim + 2 * c.intermediate_size);
  CHECK(kept(true, "") == Approx(layer + static_cast<double>(c.layers * c.hidden_size)));
  CHECK(kept(true, "in a file") == Approx(layer));
  assembly::Overview o;
  o.micro_batch_tokens = 60;
  assembly::estimate_memory(o, {.checkpointing = true, .checkpoints_away = "in a file"}, *decoder, false);
  CHECK(o.elsewhere == "inputs of layers " +
                           assembly::bytes_text(4.0 * 60.0 * static_cast<double>(c.layers * c.hidden_size)) +
                           " in a file");

  auto bits = model::load_decoder(golden / "qwen2", {.quantisation = model::Quantisation{}});
  model::attach_lora(*bits, {.r = 4, .alpha = 8, .target_modules = {"q_proj"}}, 7);
  double adapter = 0.0;
  for (const auto& p : bits->parameters()) adapter += static_cast<double>(p.value.nbytes());
  const auto small = estimated(*bits, {});
  CHECK(small.at("weights") == Approx(inference::weight_bytes(bits->config(), bits->weights())));
  CHECK(small.at("weights") < 0.6 * sizes_of(*decoder).all);
  CHECK(small.at("gradients") == Approx(adapter));
}
