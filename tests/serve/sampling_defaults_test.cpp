#include <rlalgo/serve/sampling_defaults.hpp>

#include <limits>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("a generation config gives what it says, and nothing else") {
  const serve::SamplingDefaults none = serve::sampling_defaults({}, "f");
  CHECK_FALSE(none.temperature.has_value());
  CHECK_FALSE(none.max_tokens.has_value());
  model::GenerationConfig config;
  config.temperature = 0.6;
  config.top_k = 20;
  config.max_new_tokens = 99;
  const serve::SamplingDefaults some = serve::sampling_defaults(config, "f");
  CHECK(some.temperature == 0.6);
  CHECK(some.top_k == 20);
  CHECK(some.max_tokens == 99);
  CHECK_FALSE(some.top_p.has_value());
}

TEST_CASE("values that no sampling can have are refused with their file") {
  const auto refused = [](auto change) {
    model::GenerationConfig config;
    change(config);
    const std::string raised = support::raised_by([&] { (void)serve::sampling_defaults(config, "dir/file.json"); });
    return raised.starts_with("serve.25") && raised.find("dir/file.json") != std::string::npos;
  };
  CHECK(refused([](auto& c) { c.temperature = -0.1; }));
  CHECK(refused([](auto& c) { c.temperature = std::numeric_limits<double>::infinity(); }));
  CHECK(refused([](auto& c) { c.top_p = 0.0; }));
  CHECK(refused([](auto& c) { c.top_p = 1.5; }));
  CHECK(refused([](auto& c) { c.min_p = 2.0; }));
  CHECK(refused([](auto& c) { c.repetition_penalty = 0.0; }));
  CHECK(refused([](auto& c) { c.top_k = -2; }));
  CHECK(refused([](auto& c) { c.max_new_tokens = 0; }));
  CHECK_FALSE(refused([](auto& c) { c.temperature = 0.0; }));
}
