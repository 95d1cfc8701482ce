#include <rlalgo/run/metrics_log.hpp>

#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include <support/catch.hpp>

#include "run/files.hpp"

using namespace rlalgo::run;

TEST_CASE("metrics.jsonl grows by whole lines and starts over from a history") {
  const fake::TempDir dir;
  MetricsLog log(dir.path);
  log.restart();
  log.append({1, 0.5, {{"loss", 2.0}}});
  log.append({2, 1.0, {{"loss", no_value}}});
  const std::string two =
      "{\"step\": 1, \"epoch\": 0.5, \"loss\": 2.0}\n{\"step\": 2, \"epoch\": 1.0, \"loss\": null}\n";
  CHECK(fake::read(dir.path / "metrics.jsonl") == two);
  CHECK(log.lines().size() == 2);

  // A resumed run: the history of the checkpoint replaces whatever a killed run left, a half line included.
  std::ofstream(dir.path / "metrics.jsonl", std::ios::app) << "{\"step\": 3, \"epo";
  MetricsLog resumed(dir.path);
  resumed.restart(Json::array({Json::parse(log.lines()[0])}));
  resumed.append({2, 1.0, {{"loss", no_value}}});
  CHECK(fake::read(dir.path / "metrics.jsonl") == two);
}

TEST_CASE("a directory that is not there is a numbered error") {
  MetricsLog log("/nonexistent/rlalgo");
  CHECK(fake::error_of([&] { log.append({1, 0, {}}); }) == "os.1");
}

TEST_CASE("a line that does not fit is a numbered error and leaves whole lines only") {
  const fake::TempDir dir;
  const int status = fake::in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{100, 100};  // bytes: the first line fits, the second only in part
    ::setrlimit(RLIMIT_FSIZE, &small);
    MetricsLog log(dir.path);
    log.append({1, 0.5, {{"a metric of some length", 0.125}}});
    return fake::error_of([&] { log.append({2, 0.5, {{"a metric of some length", 0.125}}}); }) == "os.1" ? 0 : 1;
  });
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(fake::read(dir.path / "metrics.jsonl") ==
        "{\"step\": 1, \"epoch\": 0.5, \"a metric of some length\": 0.125}\n");
}
