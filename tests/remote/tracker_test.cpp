#include <rlalgo/remote/tracker.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/run/run_info.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {

// Clients that write what they are told into $TOLD, each in its own way of being called.
constexpr const char* fake_wandb = R"PY(
import json, os, time

def put(what):
    with open(os.environ["TOLD"], "a") as file:
        file.write(json.dumps(what) + "\n")

class Run:
    url, dir = "https://tracker/run", "d"
    def define_metric(self, name, **how): put(["define", name, how])
    def log(self, values):
        how = os.environ.get("WANDB_FAKE", "")
        if how == "raise": raise ValueError("the fake refuses")
        if how == "hang": time.sleep(1000)
        if how == "die": os._exit(3)
        put(["log", values])
    def finish(self, exit_code=0): put(["finish", exit_code])

def init(**how):
    put(["init", how, os.environ.get("WANDB_MODE")])
    return Run()
)PY";
constexpr const char* fake_mlflow = R"PY(
import types
from wandb import put
def set_tracking_uri(uri): put(["uri", uri])
def get_tracking_uri(): return "file:x"
def set_experiment(name): put(["experiment", name])
def start_run(**how):
    put(["start", how])
    return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r1"))
def log_params(params): put(["params", params])
def log_metrics(values, step): put(["log", values, step])
def end_run(status): put(["end", status])
)PY";
constexpr const char* fake_trackio = R"PY(
from wandb import put
def init(**how): put(["init", how])
def log(values, step=None): put(["log", values, step])
def finish(): put(["finish"])
)PY";
constexpr const char* fake_comet = R"PY(
from wandb import put
class Experiment:
    url = "https://comet/e"
    def set_name(self, name): put(["name", name])
    def log_parameters(self, values): put(["params", values])
    def log_metrics(self, values, step=None, epoch=None): put(["log", values, step, epoch])
    def end(self): put(["end"])
def start(**how):
    put(["start", how])
    return Experiment()
)PY";

struct Bench {
  support::ScratchDirectory scratch;
  std::vector<std::string> said;

  Bench() {
    for (const auto& [name, text] : {std::pair("wandb", fake_wandb), std::pair("mlflow", fake_mlflow),
                                     std::pair("trackio", fake_trackio), std::pair("comet_ml", fake_comet)})
      std::ofstream(scratch.path() / (std::string(name) + ".py")) << text;
    fs::create_directories(scratch.path() / "out");
    run::write_run_info(scratch.path() / "out", {.id = "abc", .title = "t"});
    ::setenv("PYTHONPATH", scratch.path().c_str(), 1);
  }
  ~Bench() { ::unsetenv("PYTHONPATH"); }

  remote::TrackerConfig config(const std::string& name, std::map<std::string, std::string> environment = {}) {
    environment["TOLD"] = (scratch.path() / "told").string();
    return {.name = name,
            .environment = std::move(environment),
            .settings = {{"learning_rate", 0.5}, {"trl.beta", 0.0}},
            .tell = [this](const std::string& text) { said.push_back(text); }};
  }
  [[nodiscard]] run::RunStart start() const { return {scratch.path() / "out", "grpo on m", 0, 2, {}}; }
  [[nodiscard]] std::vector<nlohmann::ordered_json> told() const {
    std::vector<nlohmann::ordered_json> out;
    std::ifstream in(scratch.path() / "told");
    for (std::string line; std::getline(in, line);) out.push_back(nlohmann::ordered_json::parse(line));
    return out;
  }
  void train(remote::Tracker& tracker) const {
    tracker.on_start(start());
    tracker.on_record({1, 0.5, {{"loss", 0.25}, {"reward", run::no_value}, {"rewards/f (x)/mean", 1.0}}});
    tracker.on_record({1, 0.5, {{"eval_loss", 0.75}}});
    run::write_run_info(scratch.path() / "out", {.id = "abc", .title = "t", .status = "finished"});
    tracker.on_finish();
  }
};

using Json = nlohmann::ordered_json;

}  // namespace

TEST_CASE("W&B gets the run, its settings, and records by the names of transformers' callback") {
  Bench bench;
  remote::Tracker tracker(bench.config("wandb", {{"WANDB_PROJECT", "p"}, {"WANDB_MODE", "offline"}}));
  bench.train(tracker);
  const auto told = bench.told();
  REQUIRE(told.size() == 6);
  CHECK(
      told[0] ==
      Json::parse(
          R"(["init", {"name": "out", "id": "abc", "resume": "allow", "config": {"learning_rate": 0.5, "trl.beta": 0.0},
                                   "project": "p"}, "offline"])"));
  CHECK(told[1] == Json::parse(R"(["define", "train/global_step", {}])"));
  CHECK(
      told[3] ==
      Json::parse(
          R"(["log", {"train/loss": 0.25, "train/rewards/f (x)/mean": 1.0, "train/epoch": 0.5, "train/global_step": 1}])"));
  CHECK(told[4] == Json::parse(R"(["log", {"eval/loss": 0.75, "train/epoch": 0.5, "train/global_step": 1}])"));
  CHECK(told[5] == Json::parse(R"(["finish", 0])"));
  CHECK(bench.said == std::vector<std::string>{"wandb: https://tracker/run"});
}

TEST_CASE("MLflow, Trackio and Comet are called as their clients want it") {
  {
    Bench bench;
    remote::Tracker tracker(bench.config(
        "mlflow", {{"MLFLOW_TRACKING_URI", "u"}, {"MLFLOW_EXPERIMENT_NAME", "e"}, {"MLFLOW_RUN_NAME", "n"}}));
    bench.train(tracker);
    const auto told = bench.told();
    REQUIRE(told.size() == 7);
    CHECK(told[2] == Json::parse(R"(["start", {"run_name": "n", "run_id": null}])"));
    CHECK(told[3] == Json::parse(R"(["params", {"learning_rate": "0.5", "trl.beta": "0.0"}])"));
    CHECK(told[4] == Json::parse(R"(["log", {"loss": 0.25, "rewards/f _x_/mean": 1.0, "epoch": 0.5}, 1])"));
    CHECK(told[6] == Json::parse(R"(["end", "FINISHED"])"));
    CHECK(bench.said == std::vector<std::string>{"mlflow: file:x, run r1"});
  }
  {
    Bench bench;
    remote::Tracker tracker(bench.config("trackio", {{"TRACKIO_PROJECT_NAME", "p"}}));
    bench.train(tracker);
    const auto told = bench.told();
    REQUIRE(told.size() == 4);
    CHECK(told[0][1]["project"] == "p");
    CHECK(told[2] == Json::parse(R"(["log", {"eval/loss": 0.75, "train/epoch": 0.5, "train/global_step": 1}, 1])"));
  }
  Bench bench;
  remote::Tracker tracker(bench.config("comet", {{"COMET_PROJECT_NAME", "p"}, {"COMET_START_ONLINE", "false"}}));
  bench.train(tracker);
  const auto told = bench.told();
  REQUIRE(told.size() == 6);
  CHECK(
      told[0] ==
      Json::parse(
          R"(["start", {"online": false, "project_name": "p", "workspace": null, "mode": null, "experiment_key": null}])"));
  CHECK(told[1] == Json::parse(R"(["name", "out"])"));
  CHECK(told[5] == Json::parse(R"(["end"])"));
}

TEST_CASE("a client that raises, hangs, dies or is not there ends nothing: one warning says what became of it") {
  const auto ends_with = [](const std::string& how, double seconds) {
    Bench bench;
    remote::TrackerConfig config = bench.config("wandb", {{"WANDB_FAKE", how}});
    config.call_seconds = seconds;
    remote::Tracker tracker(config);
    const os::Stopwatch watch;
    bench.train(tracker);
    CHECK(watch.seconds() < 20.0);
    std::string out;
    for (const std::string& text : bench.said)
      if (text.find("warning") != std::string::npos) out += text;
    return out;
  };
  CHECK_THAT(ends_with("raise", 30),
             Catch::Contains("it gets nothing more: a record cannot be logged: ValueError: the fake refuses"));
  CHECK_THAT(ends_with("hang", 0.5), Catch::Contains("no answer in"));
  CHECK_THAT(ends_with("die", 30), Catch::Contains("its process ended, exit status 3"));
  Bench bench;
  std::filesystem::remove(bench.scratch.path() / "trackio.py");
  remote::Tracker absent(bench.config("trackio"));
  bench.train(absent);
  REQUIRE(bench.said.size() == 1);
  CHECK_THAT(bench.said[0], Catch::Contains("No module named 'trackio'") && Catch::Contains("RLALGO_PYTHON") &&
                                Catch::Contains("metrics.jsonl"));
  remote::TrackerConfig nowhere = bench.config("wandb");
  nowhere.python = "/no/such/python";
  remote::Tracker unstarted(nowhere);
  bench.train(unstarted);
  CHECK_THAT(bench.said.back(), Catch::Contains("/no/such/python cannot be started"));
}

TEST_CASE("a queue that is full drops records, says how many, and never makes the run wait") {
  Bench bench;
  remote::TrackerConfig config = bench.config("wandb", {{"WANDB_FAKE", "hang"}});
  config.most_waiting = 5;
  config.call_seconds = 0.5;
  remote::Tracker tracker(config);
  const os::Stopwatch watch;
  tracker.on_start(bench.start());
  for (std::int64_t step = 1; step <= 1000; ++step) tracker.on_record({step, 0.0, {{"loss", 0.5}}});
  CHECK(watch.seconds() < 2.0);
  tracker.on_finish();
  CHECK_THAT(bench.said.back(), Catch::Contains("warning"));
}

TEST_CASE("a run that failed is told of as one") {
  Bench bench;
  remote::Tracker tracker(bench.config("wandb"));
  tracker.on_start(bench.start());
  run::write_run_info(bench.scratch.path() / "out", {.id = "abc", .title = "t", .status = "failed"});
  tracker.on_finish();
  CHECK(bench.told().back() == Json::parse(R"(["finish", 1])"));
}
