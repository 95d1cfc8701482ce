#include <rlalgo/model/quantisation.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("the settings of a quantised base are axolotl's where nothing is said") {
  const model::Quantisation how;
  CHECK(how.code == model::WeightCode::nf4);
  CHECK(how.block == 64);
  CHECK(how.nested);
  CHECK(how.products == model::ProductsIn::model);
  CHECK(model::name_of(model::WeightCode::nf4) == "nf4");
  CHECK(model::name_of(model::WeightCode::fp4) == "fp4");
  CHECK(model::name_of(model::WeightCode::int8) == "int8");
}
