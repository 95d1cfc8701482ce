#include <support/catch.hpp>

#include <rlalgo/advantage/concept.hpp>
#include <rlalgo/advantage/none.hpp>

using namespace rlalgo;

TEST_CASE("no estimator is none") { STATIC_REQUIRE_FALSE(advantage::AdvantageEstimator<advantage::None>); }
