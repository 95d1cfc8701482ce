#include <rlalgo/serve/task_queue.hpp>

#include <atomic>
#include <future>
#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("tasks are done one after the other; too many are refused, and none is taken at the end") {
  serve::TaskQueue tasks(2);
  std::promise<void> go;
  std::promise<void> begun;
  std::string order;
  tasks.add([&, wait = go.get_future().share()] {
    begun.set_value();
    wait.wait();
    order += "a";
  });
  begun.get_future().wait();
  tasks.add([&] { order += "b"; });
  tasks.add([&] { order += "c"; });
  CHECK(support::raised_by([&] { tasks.add([] {}); }).starts_with("serve.9"));
  go.set_value();
  tasks.stop();
  CHECK(order == "abc");  // what waited was done
  CHECK(support::raised_by([&] { tasks.add([] {}); }).starts_with("serve.10"));
}
