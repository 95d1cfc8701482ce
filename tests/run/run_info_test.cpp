#include <rlalgo/run/run_info.hpp>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;

TEST_CASE("run.json tells what the run is and how it stands") {
  const fake::TempDir dir;
  CHECK(read_run_info(dir.path) == Json::object());
  fake::Run run;
  std::string during;
  run.before_step = [&](std::int64_t) { during = read_run_info(dir.path).value("status", ""); };
  Loop(fake::config(dir.path, 2), run.callbacks()).run();
  CHECK(during == "running");
  const Json info = read_run_info(dir.path);
  CHECK(info["status"] == "finished");
  CHECK(info["step"] == 2);
  CHECK(info["max_steps"] == 2);
  CHECK(info["title"] == "fake run");
  CHECK(info["identity"]["seed"] == 7);
  CHECK(info["started"].get<std::string>().ends_with(" UTC"));

  run.before_step = [](std::int64_t) { throw std::runtime_error("no memory"); };
  CHECK_THROWS(Loop(fake::config(dir.path, 2), run.callbacks()).run());
  CHECK(read_run_info(dir.path)["status"] == "failed");
  CHECK(read_run_info(dir.path)["error"] == "no memory");
}
