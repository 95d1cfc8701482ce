#include <rlalgo/inference/engine_device_for.hpp>

#include <rlalgo/model/load.hpp>
#include <rlalgo/os/thread_pool.hpp>

#include <support/catch.hpp>
#include <support/decoders.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("an engine's half is made for the device of its configuration") {
  os::ThreadPool pool(1);
  const auto decoder = model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 3);
  inference::EngineConfig config = inference::EngineConfig{}.for_weights(decoder->weights());
  config.device = at::Device(at::kMeta);
  const auto meta = inference::engine_device_for(decoder->config(), config, pool, 8);
  CHECK(support::number_raised_by([&] { (void)meta->view(decoder->weights(), nullptr, {}); }) == "inference.6");
  config.quantization = inference::Quantization::fp8;
  config.cache_element = inference::CacheElement::float8;
  CHECK_NOTHROW((void)inference::engine_device_for(decoder->config(), config, pool, 8));
  // Of which the CPU has neither.
  config.device = at::Device(at::kCPU);
  const auto refused = [&] {
    return support::number_raised_by([&] { (void)inference::engine_device_for(decoder->config(), config, pool, 8); });
  };
  CHECK(refused() == "inference.19");
  config.quantization = inference::Quantization::int8;
  CHECK(refused() == "inference.19");
  config.cache_element = inference::CacheElement::float32;
  CHECK(refused() == "nothing");
}
