#include <rlalgo/model/context_ring.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

struct Place final : model::ContextRing {
  Place(int rank, int size) : rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  std::function<void()> pass(const model::Tensor&, const model::Tensor&) override { return {}; }
  int rank_, size_;
};

}  // namespace

TEST_CASE("what is here after so many passes came from so many ranks before") {
  const Place place(1, 3);
  CHECK(place.origin(0) == 1);
  CHECK(place.origin(1) == 0);
  CHECK(place.origin(2) == 2);
  CHECK(place.origin(3) == 1);
}
