#include <rlalgo/sampler/open_generation.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>

#include <support/catch.hpp>

using namespace rlalgo;

namespace {

// Four episodes, so many at a time.
class Counting : public sampler::OpenGeneration {
 public:
  explicit Counting(std::size_t rows) : rows_(rows) {
    made_.number = 7;
    made_.generation = std::make_shared<sampler::Generation>();
    made_.generation->episodes.resize(4);
  }
  std::size_t pull() override {
    if (++pulls == fails_at) throw std::runtime_error("not now");
    if (finished() + rows_ >= 4) made_.tokens = 9;
    return finish_rows(std::min<std::size_t>(4, finished() + rows_));
  }
  int pulls = 0, fails_at = 0;

 private:
  std::size_t rows_;
};

}  // namespace

TEST_CASE("a generation is asked for until it is whole, and what remains of it is asked for in one") {
  Counting open(1);
  CHECK_FALSE(open.whole());
  CHECK(open.pull() == 1);
  CHECK(open.finished() == 1);
  CHECK(open.made().number == 7);
  CHECK_FALSE(open.whole());
  const sampler::Made made = sampler::finish(open);
  CHECK(open.pulls == 4);
  CHECK(made.tokens == 9);
  CHECK(made.generation->episodes.size() == 4);

  Counting failing(3);
  failing.fails_at = 2;
  CHECK(failing.pull() == 3);
  CHECK_THROWS_WITH(sampler::finish(failing), "not now");
  CHECK(failing.finished() == 3);
}

TEST_CASE("one that is there already is whole with the first pull") {
  sampler::Made made{.number = 2, .generation = std::make_shared<sampler::Generation>(), .tokens = 5, .about = {}};
  made.generation->episodes.resize(3);
  sampler::WholeGeneration open(made);
  CHECK_FALSE(open.whole());
  open.draw();
  CHECK(open.pull() == 3);
  CHECK(open.whole());
  CHECK(sampler::finish(open).generation == made.generation);
}
