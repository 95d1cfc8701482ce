#include <rlalgo/serve/refusal.hpp>

#include <string>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("a refusal is a numbered error with a status and the field to blame") {
  try {
    serve::refuse_request(404, 5, {.what = "there is no such model", .found = "x"}, "model");
    FAIL("nothing was thrown");
  } catch (const core::Error& error) {
    const auto& refusal = dynamic_cast<const serve::Refusal&>(error);
    CHECK(refusal.status() == 404);
    CHECK(refusal.field() == "model");
    CHECK(refusal.number() == 5);
    CHECK(std::string(refusal.what()) == "[rlalgo.serve.5] there is no such model: found x");
  }
}
