// A phase does every item of every row once, whatever the threads and however it is divided.
#include <support/catch.hpp>

#include <atomic>
#include <cstdint>
#include <vector>

#include <rlalgo/inference/detail/phases.hpp>
#include <rlalgo/os/thread_pool.hpp>

using namespace rlalgo;
using inference::detail::PhaseRows;
using inference::detail::Phases;
using inference::detail::PhaseWork;

namespace {

// How often each item of each row was done: [items, m].
std::vector<int> done(Phases& phases, std::int64_t m, const PhaseWork& work, int threads) {
  const bool columns = work.columns > 0;
  std::vector<std::atomic<int>> count(static_cast<std::size_t>((columns ? work.columns : work.each) * m));
  std::atomic<int> strangers{0};
  phases.run(m, work, [&](PhaseRows rows, std::int64_t begin, std::int64_t end, int thread) {
    if (thread < 0 || thread >= threads) ++strangers;
    for (std::int64_t item = begin; item < end; ++item)
      for (std::int64_t i = 0; i < (columns ? rows.count : 1); ++i) {
        const std::int64_t row = rows.first + (columns ? i : item % rows.count);
        ++count[static_cast<std::size_t>((columns ? item : item / rows.count) * m + row)];
      }
  });
  CHECK(strangers == 0);
  return {count.begin(), count.end()};
}

}  // namespace

TEST_CASE("a phase does all items of all rows once, with rows divided or items") {
  for (const int threads : {1, 2, 3, 5})
    for (const std::int64_t least : {0, 1, 24}) {
      os::ThreadPool pool(threads);
      Phases phases(pool);
      phases.divide_rows_from(least);
      for (const std::int64_t m : {1, 2, 47, 48, 63, 64, 65, 180, 191, 300})
        for (const std::int64_t flops : {1, 3'000, 1'000'000})
          for (const PhaseWork work :
               {PhaseWork{.columns = 1, .flops = flops}, PhaseWork{.columns = 15, .flops = flops},
                PhaseWork{.columns = 576, .flops = flops}, PhaseWork{.each = 1, .flops = flops},
                PhaseWork{.each = 3, .flops = flops}}) {
            INFO("threads " << threads << ", rows " << m << ", divided from " << least << ", columns " << work.columns
                            << ", each " << work.each << ", flops " << flops);
            const std::vector<int> found = done(phases, m, work, threads);
            CHECK(found == std::vector<int>(found.size(), 1));
          }
    }
}

TEST_CASE("rows are divided where every thread has enough of them and kernels need no more sixteens for that") {
  os::ThreadPool two(2), eight(8);
  Phases phases(two), many(eight);
  CHECK_FALSE(phases.divides_rows(1000));  // nobody has said from when
  phases.divide_rows_from(24);
  many.divide_rows_from(24);
  CHECK_FALSE(phases.divides_rows(46));
  CHECK_FALSE(phases.divides_rows(48));  // 3 sixteens, 4 if divided
  CHECK(phases.divides_rows(49));
  CHECK(phases.divides_rows(64));
  CHECK_FALSE(phases.divides_rows(65));
  CHECK(phases.divides_rows(96));
  // Eight threads would read W eight times: 96 rows each.
  CHECK_FALSE(many.divides_rows(8 * 80));
  CHECK(many.divides_rows(8 * 96));
  phases.divide_rows_from(64);
  CHECK_FALSE(phases.divides_rows(64));
  CHECK(phases.divides_rows(128));
  os::ThreadPool one(1);
  Phases alone(one);
  alone.divide_rows_from(24);
  CHECK_FALSE(alone.divides_rows(1000));
}

TEST_CASE("with rows divided a thread begins with its own rows") {
  os::ThreadPool pool(2);
  Phases phases(pool);
  phases.divide_rows_from(24);
  std::int64_t first = -1;
  phases.run(64, {.columns = 576, .flops = 100'000}, [&](PhaseRows rows, std::int64_t, std::int64_t, int thread) {
    if (thread == 0 && first < 0) first = rows.first;
  });
  CHECK(first <= 0);  // −1: the other one was so fast that it took them all
}
