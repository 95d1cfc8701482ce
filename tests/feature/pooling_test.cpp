#include <rlalgo/feature/pooling.hpp>

#include <support/catch.hpp>

using namespace rlalgo::feature;

TEST_CASE("which tokens of a text are pooled") {
  const auto of = [](Pooling p, std::int64_t length, std::int64_t prompt = 0) { return stretches(p, length, prompt); };
  CHECK((of(Pooling::last_token, 5) == std::vector<Stretch>{{4, 5}}));
  CHECK((of(Pooling::mean_pooling, 5, 2) == std::vector<Stretch>{{0, 5}}));
  CHECK((of(Pooling::completion_mean, 5, 2) == std::vector<Stretch>{{2, 5}}));
  CHECK((of(Pooling::concat, 8) == std::vector<Stretch>{{2, 3}, {4, 5}, {6, 7}}));
  CHECK((of(Pooling::concat, 1) == std::vector<Stretch>{{0, 1}, {0, 1}, {0, 1}}));
  CHECK((of(Pooling::concat, 7) == std::vector<Stretch>{{1, 2}, {3, 4}, {5, 6}}));
}

TEST_CASE("a completion of nothing has an empty stretch") {
  CHECK((stretches(Pooling::completion_mean, 3, 3) == std::vector<Stretch>{{3, 3}}));
  CHECK((stretches(Pooling::completion_mean, 3, 9) == std::vector<Stretch>{{3, 3}}));
}
