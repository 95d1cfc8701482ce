#include <support/scratch.hpp>

#include <rlalgo/config/reference.hpp>

using namespace rlalgo::config;

TEST_CASE("the identity of weights is that of their bytes") {
  const rlalgo::support::ScratchDirectory one, other;
  for (const auto* scratch : {&one, &other}) {
    const auto write = [&](const char* name, const char* text) { (void)scratch->write(name, text); };
    write("config.json", "{}");
    write("model.safetensors", "weights");
  }
  CHECK(weights_identity(one.path()) == weights_identity(other.path()));
  (void)other.write("model.safetensors", "weightz");
  CHECK(weights_identity(one.path()) != weights_identity(other.path()));
}

TEST_CASE("a recipe without reference has none") {
  RunConfig c;
  c.rl = "orpo";
  CHECK_FALSE(needs_reference(c));
  c.rl = "ipo";
  CHECK(needs_reference(c));
}
