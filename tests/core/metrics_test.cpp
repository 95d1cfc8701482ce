#include <support/catch.hpp>

#include <rlalgo/core/metrics.hpp>

using namespace rlalgo::core;

TEST_CASE("merging parts gives the metrics of the whole") {
  Metrics whole, left, right;
  const auto add = [](Metrics& m, double x, double w) {
    m.mean("mean", x * w, w);
    m.minimum("low", x);
    m.maximum("high", x);
    m.last("last", x);
  };
  add(whole, 1.0, 3.0);
  add(whole, 5.0, 1.0);
  add(left, 1.0, 3.0);
  add(right, 5.0, 1.0);
  left.merge(right);
  CHECK(left.values() == whole.values());
  CHECK(left.value("mean") == 2.0);
  CHECK(left.value("low") == 1.0);
  CHECK(left.value("high") == 5.0);
  CHECK(left.value("last") == 5.0);
}

TEST_CASE("a mean over nothing has no value, and NaN does not win an extreme") {
  Metrics m;
  m.mean("empty", 0.0, 0.0);
  m.maximum("high", std::numeric_limits<double>::quiet_NaN());
  m.maximum("high", -1.0);
  CHECK(std::isnan(m.value("empty")));
  CHECK(m.value("high") == -1.0);
  CHECK(std::isnan(m.value("unknown")));
}
