#include <rlalgo/tensor/threads.hpp>

#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>

#include <rlalgo/os/processors.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using tensor::ThreadLimit;
using tensor::threads_worth;

TEST_CASE("a thread more for every share of the work, from one to all") {
  const double share = tensor::share_seconds;
  CHECK(threads_worth(0.1 * share, 8) == 1);
  CHECK(threads_worth(1.9 * share, 8) == 1);
  CHECK(threads_worth(2.1 * share, 8) == 2);
  CHECK(threads_worth(7.5 * share, 8) == 7);
  CHECK(threads_worth(1e9, 8) == 8);
  CHECK(threads_worth(std::numeric_limits<double>::infinity(), 8) == 8);
  for (const double unknown : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    CHECK(threads_worth(unknown, 8) == 8);
  CHECK(threads_worth(1.0, 0) == 1);
}

TEST_CASE("a limit lowers LibTorch's threads for a scope, never beyond what was set or there is") {
  const int before = at::get_num_threads();
  at::set_num_threads(64);
  const int most = os::usable_processors();
  CHECK(tensor::available_threads() == std::min(64, most));
  {
    const ThreadLimit all(0.0);
    CHECK(at::get_num_threads() == std::min(64, most));
    {
      const auto tiny = ThreadLimit::of_products(1e6);
      CHECK(at::get_num_threads() == 1);
      const auto large = ThreadLimit::of_products(1e15);
      CHECK(at::get_num_threads() == 1);  // limits nest
    }
    const auto updates = ThreadLimit::of_updates(1000.0);
    CHECK(at::get_num_threads() == 1);
  }
  CHECK(at::get_num_threads() == 64);
  at::set_num_threads(1);
  {
    const ThreadLimit large(1e9);
    CHECK(at::get_num_threads() == 1);
  }
  at::set_num_threads(before);
}
