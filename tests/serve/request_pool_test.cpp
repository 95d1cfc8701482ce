#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include <support/scratch.hpp>

#include <rlalgo/serve/request_pool.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;

TEST_CASE("clients take turns; what waits is bounded; answers are made whatever waits") {
  serve::RequestPool pool(3, 1);
  std::promise<void> go, begun;
  std::string order;
  pool.add("a", [&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  for (const char* name : {"a", "a", "b"}) pool.add(name, [&order, name] { order += name; });
  CHECK(lacks(raised_by([&] { pool.add("c", [] {}); }), {"serve.9", "3 that have not been read"}) == "");
  pool.finish("c", [&order] { order += "!"; });
  go.set_value();
  pool.stop();
  CHECK(order == "ab!a");
  CHECK(lacks(raised_by([&] { pool.add("c", [] {}); }), {"serve.10"}) == "");
  pool.finish("c", [&order] { order += "?"; });
  CHECK(order == "ab!a?");
}

TEST_CASE("a job that takes long holds up one thread") {
  serve::RequestPool pool(100, 2);
  std::promise<void> go;
  pool.add("slow", [&] { go.get_future().wait(); });
  std::promise<void> done;
  pool.add("quick", [&] { done.set_value(); });
  const bool quick = done.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  go.set_value();
  CHECK(quick);
}
