#include <rlalgo/serve/errands.hpp>

#include <atomic>
#include <future>
#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("errands are done one after the other; too many are refused, and none is taken at the end") {
  serve::Errands errands(2);
  std::promise<void> go;
  std::promise<void> begun;
  std::string order;
  errands.add([&, wait = go.get_future().share()] {
    begun.set_value();
    wait.wait();
    order += "a";
  });
  begun.get_future().wait();
  errands.add([&] { order += "b"; });
  errands.add([&] { order += "c"; });
  CHECK(support::raised_by([&] { errands.add([] {}); }).starts_with("serve.9"));
  go.set_value();
  errands.stop();
  CHECK(order == "abc");  // what waited was done
  CHECK(support::raised_by([&] { errands.add([] {}); }).starts_with("serve.10"));
}
