#include <rlalgo/serve/served_model.hpp>

#include <support/catch.hpp>

#include "serve/served.hpp"

TEST_CASE("a model's length is its own unless a shorter one is set") {
  auto model = served::model();
  CHECK(model.length_limit() == 200);
  model.max_model_len = 0;
  CHECK(model.length_limit() == 512);
  model.max_model_len = 5000;
  CHECK(model.length_limit() == 512);
}
