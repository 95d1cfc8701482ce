#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>
#include <support/scratch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/os/interruption.hpp>
#include <rlalgo/remote/python_worker.hpp>

using namespace rlalgo;
using remote::PythonConfig;
using remote::PythonWorker;
using reward::Json;
using Values = std::vector<double>;

namespace {

constexpr const char* rewards_py = R"(
import asyncio, os, random, subprocess, sys, time, functools

def length(completions, **kwargs):
    return [float(len(c)) for c in completions]

def right(completions, answer, **kwargs) -> list[float]:
    return [1.0 if c == a else 0.0 for c, a in zip(completions, answer)]

def chat(prompts, completions, **kwargs):
    return [len(p[-1]["content"]) + len(c[0]["content"]) for p, c in zip(prompts, completions)]

def everything(prompts, completions, completion_ids, answer, level, trainer_state, log_extra, log_metric):
    assert prompts == ["p0", "p1"] and completions == ["one", "two"], (prompts, completions)
    assert completion_ids == [[1, 2, 0], []] and answer == ["one", "x"] and level == [3, None]
    log_metric("seen", sum(map(len, completion_ids)))
    log_metric("odd", float("nan"))
    log_extra("upper", [c.upper() for c in completions])
    log_extra("NaN kept", [float("nan"), 1.5])
    return [trainer_state.global_step, True]

def sometimes(completions, **kwargs):
    return [None, float("nan"), float("inf"), -float("inf"), 0.1][: len(completions)]

def as_tuple(completions, **kwargs):
    return tuple(1 for _ in completions)

def generator(completions, **kwargs):
    return (2 for _ in completions)

async def later(completions, **kwargs):
    await asyncio.sleep(0.01)
    return [3.0 for _ in completions]

async def later_again(completions, **kwargs):
    return [float(id(asyncio.get_running_loop())) for _ in completions]

def raises(completions, **kwargs):
    return inner(completions)

def inner(completions):
    raise ValueError("no number in " + completions[0])

def half_a_character(completions, **kwargs):
    raise ValueError("cut: \ud83d end")

def half_in_a_log(completions, log_extra, **kwargs):
    log_extra("text", ["\ud83d", "a\udc80b"])
    return [1.0, 1.0]

def five_megabytes(completions, **kwargs):
    raise ValueError("x" * 5000000 + "end")

def colours(completions, **kwargs):
    raise ValueError("\x1b[31mred\rgone")

def deep_log(completions, log_extra, **kwargs):
    value = []
    for _ in range(kwargs["depth"][0]):
        value = [value]
    log_extra("deep", [value, value])
    return [1.0, 1.0]

def missing(completions, no_such_column):
    return []

def short(completions, **kwargs):
    return [1.0]

def words(completions, **kwargs):
    return ["1.0" for _ in completions]

def nothing(completions, **kwargs):
    pass

def one_number(completions, **kwargs):
    return 1.0

def hangs(completions, **kwargs):
    pid_file = kwargs["pid_file"][0]
    child = subprocess.Popen(["sleep", "1000"])
    with open(pid_file, "w") as f:
        f.write("%d %d" % (os.getpid(), child.pid))
    while True:
        time.sleep(0.05)

def started_elsewhere(pid_file):
    # A session of its own, a double fork, and one without environment; then this process.
    script = 'import os, sys, time; open(sys.argv[1], "a").write("%d " % os.getpid()); time.sleep(1000)'
    begun = [sys.executable, "-c", script, pid_file]
    subprocess.Popen(begun, start_new_session=True)
    subprocess.Popen(begun, start_new_session=True, env={})
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(begun[0], begun)
        os._exit(0)
    os.waitpid(first, 0)
    while len(open(pid_file).read().split()) < 3 if os.path.exists(pid_file) else True:
        time.sleep(0.01)
    with open(pid_file, "a") as f:
        f.write("%d " % os.getpid())

def leaves(completions, **kwargs):
    started_elsewhere(kwargs["pid_file"][0])
    return [1.0 for _ in completions]

def leaves_and_dies(completions, **kwargs):
    started_elsewhere(kwargs["pid_file"][0])
    os._exit(6)

def leaves_and_holds_the_interpreter(completions, **kwargs):
    started_elsewhere(kwargs["pid_file"][0])
    sum(range(10 ** 15))

def spins(completions, **kwargs):
    while True:
        pass

def prints(completions, **kwargs):
    print("{\"values\": [9, 9]}")
    print("printed", file=sys.stderr)
    os.write(1, b"raw\n")
    subprocess.run(["echo", "from a child"])
    return [1.0 for _ in completions]

def exits(completions, **kwargs):
    sys.exit(3)

def dies(completions, **kwargs):
    os._exit(5)

def crashes(completions, **kwargs):
    os.kill(os.getpid(), 11)

def forks_and_dies(completions, **kwargs):
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(6)

def damages(completions, **kwargs):
    os.write(3, b"hello\n")
    return [1.0 for _ in completions]

def echoes(completions, **kwargs):
    return [1.0 if c == "“日本” \U0001f600 \ufffd" else 0.0 for c in completions]

def draws(completions, **kwargs):
    return [random.random() for _ in completions]

def reads_input(completions, **kwargs):
    return [float(sys.stdin.read() == "") for _ in completions]

def counts(completions, **kwargs):
    counts.calls = getattr(counts, "calls", 0) + 1
    return [counts.calls for _ in completions]

class Scorer:
    def __call__(self, completions, **kwargs):
        return [4.0 for _ in completions]

scorer = Scorer()
partial = functools.partial(length, extra=1)
not_a_function = 3
)";

struct Bench {
  rlalgo::support::ScratchDirectory directory;
  std::shared_ptr<PythonWorker> worker;
  std::vector<std::string> texts = {"one", "two"};
  rlalgo::support::Prompts prompts = {"p0", "p1"};
  std::vector<Json> completions = {"one", "two"}, columns = {Json::object(), Json::object()};
  std::vector<std::vector<std::int32_t>> ids = {{1, 2, 0}, {}};
  std::int64_t step = 7;
  reward::RewardLog log;

  explicit Bench(double call_seconds = 60) {
    directory.write("rewards.py", rewards_py);
    PythonConfig config;
    config.search_paths = {directory.path()};
    config.call_seconds = call_seconds;
    worker = std::make_shared<PythonWorker>(config);
  }
  void set_texts(const std::vector<std::string>& values) {
    texts = values;
    completions.assign(values.begin(), values.end());
    prompts.assign(values.size(), "p");
    columns.assign(values.size(), Json::object());
    ids.assign(values.size(), {});
  }
  Values call(const std::string& function) {
    (void)worker->load(function);
    const std::vector<std::span<const std::int32_t>> views(ids.begin(), ids.end());
    return worker->call(function, reward::RewardCall{.prompts = prompts,
                                                     .completions = completions,
                                                     .texts = texts,
                                                     .completion_ids = views,
                                                     .columns = columns,
                                                     .step = step,
                                                     .log = &log});
  }
  // The text of the error that the call raises, whose number must be `number`.
  std::string error(int number, const std::string& function) {
    try {
      (void)call(function);
    } catch (const core::Error& e) {
      CHECK(e.room() == "remote");
      CHECK(e.number() == number);
      CHECK(e.exit_code() == 1);
      return e.what();
    }
    FAIL("no error from " << function);
    return {};
  }
};

bool gone_within(pid_t process, double seconds) {
  for (const os::Deadline deadline(seconds); !deadline.passed();) {
    std::ifstream status("/proc/" + std::to_string(process) + "/stat");
    std::string id, name, state;
    if (!(status >> id >> name >> state) || state == "Z") return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

TEST_CASE("a function is called with keywords and returns one number per completion") {
  Bench bench;
  CHECK(bench.call("rewards.length") == Values{3, 3});
  bench.columns = {{{"answer", "one"}}, {{"answer", "x"}}};
  CHECK(bench.call("rewards.right") == Values{1, 0});
  bench.columns = {{{"answer", "one"}, {"level", 3}}, {{"answer", "x"}, {"prompt", "not passed"}}};
  CHECK(bench.call("rewards.everything") == Values{7, 1});
  REQUIRE(bench.log.metrics.size() == 2);
  CHECK(bench.log.metrics[0] == std::pair<std::string, double>("seen", 3.0));
  CHECK(std::isnan(bench.log.metrics[1].second));
  REQUIRE(bench.log.extras.size() == 2);
  CHECK(bench.log.extras[0].first == "upper");
  CHECK(bench.log.extras[0].second == Json{"ONE", "TWO"});
  CHECK(bench.log.extras[1].first == "NaN kept");
  CHECK(bench.log.extras[1].second == Json{nullptr, 1.5});
}

TEST_CASE("conversations arrive as lists of messages") {
  Bench bench;
  bench.prompts = {{{{"role", "user"}, {"content", "hello"}}}, {{{"role", "user"}, {"content", ""}}}};
  bench.completions = {{{{"role", "assistant"}, {"content", "one"}}}, {{{"role", "assistant"}, {"content", "four"}}}};
  CHECK(bench.call("rewards.chat") == Values{8, 4});
}

TEST_CASE("None and NaN mean not applicable, infinities stay") {
  Bench bench;
  bench.set_texts({"a", "b", "c", "d", "e"});
  const Values values = bench.call("rewards.sometimes");
  CHECK(std::isnan(values[0]));
  CHECK(std::isnan(values[1]));
  CHECK(values[2] == std::numeric_limits<double>::infinity());
  CHECK(values[3] == -std::numeric_limits<double>::infinity());
  CHECK(values[4] == 0.1);
}

TEST_CASE("tuples, generators, callable objects, partials and coroutines are fine too") {
  Bench bench;
  CHECK(bench.call("rewards.as_tuple") == Values{1, 1});
  CHECK(bench.call("rewards.generator") == Values{2, 2});
  CHECK(bench.call("rewards.later") == Values{3, 3});
  CHECK(bench.call("rewards.scorer") == Values{4, 4});
  CHECK(bench.call("rewards.later_again") == bench.call("rewards.later_again"));  // one loop for the run
  CHECK(bench.worker->load("rewards.length") == "length");
  CHECK(bench.worker->load("rewards.later") == "later");
  CHECK(bench.worker->load("rewards.scorer") == "Scorer");
  CHECK(bench.worker->load("rewards.partial") == "length");
  CHECK(bench.worker->load_function("rewards.later").asynchronous);
  CHECK_FALSE(bench.worker->load_function("rewards.length").asynchronous);
}

TEST_CASE("an exception arrives with the user's traceback, and the worker lives on") {
  Bench bench;
  const std::string text = bench.error(3, "rewards.raises");
  CHECK_THAT(text, Catch::Contains("'rewards.raises'") && Catch::Contains("ValueError: no number in one") &&
                       Catch::Contains("step 7") && Catch::Contains("Traceback (most recent call last)") &&
                       Catch::Contains("rewards.py\", line") && Catch::Contains("in inner") &&
                       Catch::Contains("raise ValueError"));
  CHECK_THAT(text, !Catch::Contains("<string>"));
  const std::string half = bench.error(3, "rewards.half_a_character");
  CHECK_THAT(half, Catch::Contains("ValueError: cut: ") && Catch::Contains("\xef\xbf\xbd end") &&
                       Catch::Contains("rewards.py") && !Catch::Contains("descriptor"));
  const std::string large = bench.error(3, "rewards.five_megabytes");
  CHECK(large.size() < 20000);
  CHECK_THAT(large, Catch::Contains("bytes left out") && Catch::Contains("xend") && Catch::Contains("Traceback"));
  CHECK_THAT(bench.error(3, "rewards.colours"), Catch::Contains("\\x1b[31mred\\x0dgone") && !Catch::Contains("\x1b"));
  CHECK(bench.call("rewards.half_in_a_log") == Values{1, 1});
  bench.columns.assign(2, Json{{"depth", 100}});
  CHECK(bench.call("rewards.deep_log") == Values{1, 1});
  bench.columns.assign(2, Json{{"depth", 300}});
  CHECK_THAT(bench.error(5, "rewards.deep_log"), Catch::Contains("nested more than 200 levels deep"));
  bench.columns.assign(2, Json{{"depth", 100000}});
  CHECK_THAT(bench.error(3, "rewards.deep_log"), Catch::Contains("RecursionError"));
  bench.columns.assign(2, Json::object());
  CHECK_THAT(bench.error(3, "rewards.missing"), Catch::Contains("no_such_column"));
  CHECK_THAT(bench.error(3, "rewards.exits"), Catch::Contains("SystemExit: 3"));
  CHECK(bench.call("rewards.length") == Values{3, 3});
}

TEST_CASE("wrong counts and things that are no numbers") {
  Bench bench;
  CHECK_THAT(bench.error(4, "rewards.short"), Catch::Contains("1 values for 2 completions"));
  CHECK_THAT(bench.error(5, "rewards.words"), Catch::Contains("value 0 is '1.0' (str)"));
  CHECK_THAT(bench.error(5, "rewards.nothing"), Catch::Contains("returned NoneType"));
  CHECK_THAT(bench.error(5, "rewards.one_number"), Catch::Contains("returned float"));
}

TEST_CASE("a function that hangs is killed at its deadline, with everything it started") {
  Bench bench(4.0);
  const std::string pid_file = (bench.directory.path() / "pids").string();
  bench.columns = {{{"pid_file", pid_file}}, {{"pid_file", pid_file}}};
  const os::Stopwatch watch;
  const std::string text = bench.error(6, "rewards.hangs");
  CHECK(watch.seconds() < 60.0);
  CHECK_THAT(text, Catch::Contains("'rewards.hangs'") && Catch::Contains("no answer after 4.") &&
                       Catch::Contains("within 4.0 s") && Catch::Contains("step 7"));
  pid_t python = 0, child = 0;
  std::ifstream(pid_file) >> python >> child;
  REQUIRE(python > 0);
  CHECK(gone_within(python, 20.0));
  CHECK(gone_within(child, 20.0));
  CHECK_THAT(bench.error(7, "rewards.length"), Catch::Contains("signal 9"));
}

TEST_CASE("a function that spins without letting go is killed too") {
  Bench bench(1.0);
  CHECK_THAT(bench.error(6, "rewards.spins"), Catch::Contains("within 1.0 s"));
}

TEST_CASE("what Python prints goes to stderr, not to stdout") {
  const rlalgo::support::ScratchDirectory directory;
  const std::string out = directory.write("out", ""), err = directory.write("err", "");
  const int saved[2] = {::dup(1), ::dup(2)};
  {
    const int files[2] = {::open(out.c_str(), O_WRONLY), ::open(err.c_str(), O_WRONLY)};
    for (int i = 0; i < 2; ++i) {
      ::dup2(files[i], i + 1);
      ::close(files[i]);
    }
  }
  Values values;
  {
    Bench bench;
    values = bench.call("rewards.prints");
  }
  for (int i = 0; i < 2; ++i) {
    ::dup2(saved[i], i + 1);
    ::close(saved[i]);
  }
  CHECK(values == Values{1, 1});
  const auto text = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  CHECK(text(out).empty());
  for (const char* line : {"{\"values\": [9, 9]}", "printed", "raw", "from a child"})
    CHECK_THAT(text(err), Catch::Contains(line));
}

TEST_CASE("printing damages nothing; input is empty") {
  Bench bench;
  CHECK(bench.call("rewards.prints") == Values{1, 1});
  CHECK(bench.call("rewards.length") == Values{3, 3});
  CHECK(bench.call("rewards.reads_input") == Values{1, 1});
}

TEST_CASE("the death of the process is reported with how it ended") {
  for (const auto& [function, how] : {std::pair{"rewards.dies", "exit status 5"},
                                      {"rewards.crashes", "signal 11"},
                                      {"rewards.forks_and_dies", "exit status 6"}}) {
    Bench bench(100.0);
    const os::Stopwatch watch;
    CHECK_THAT(bench.error(7, function), Catch::Contains(how));
    CHECK(watch.seconds() < 60.0);
    CHECK_THAT(bench.error(7, "rewards.length"), Catch::Contains(how));
  }
}

TEST_CASE("writing on the protocol's descriptor is found out") {
  Bench bench;
  CHECK_THAT(bench.error(8, "rewards.damages"), Catch::Contains("hello") && Catch::Contains("descriptor 3"));
}

TEST_CASE("any text arrives as it is, a character cut in two as the replacement character") {
  Bench bench;
  bench.set_texts({"“日本” \U0001f600 \ufffd", "“日本” \U0001f600 \xf0\x9f"});
  CHECK(bench.call("rewards.echoes") == Values{1, 1});
}

TEST_CASE("a large batch goes through in both directions") {
  Bench bench;
  bench.set_texts(std::vector<std::string>(64, std::string(100'000, 'x')));
  CHECK(bench.call("rewards.length") == Values(64, 100'000.0));
}

TEST_CASE("modules are imported once; random draws depend on the call alone") {
  Bench bench;
  CHECK(bench.call("rewards.counts") == Values{1, 1});
  CHECK(bench.call("rewards.counts") == Values{2, 2});
  const Values first = bench.call("rewards.draws");
  CHECK(bench.call("rewards.draws") == first);
  Bench other;
  CHECK(other.call("rewards.draws") == first);
  other.step = 8;
  CHECK(other.call("rewards.draws") != first);
}

TEST_CASE("functions that cannot be loaded") {
  Bench bench;
  CHECK_THAT(bench.error(2, "rewards.lenght"), Catch::Contains("no function 'lenght'") && Catch::Contains("length"));
  CHECK_THAT(bench.error(2, "rewards.not_a_function"), Catch::Contains("no function 'not_a_function'"));
  CHECK_THAT(bench.error(2, "rewardz.length"),
             Catch::Contains("no module named 'rewardz'") && Catch::Contains(bench.directory.path().string()));
  bench.directory.write("broken.py", "import json\nx = (1,\n");
  CHECK_THAT(bench.error(2, "broken.f"), Catch::Contains("SyntaxError") && Catch::Contains("broken.py"));
  bench.directory.write("needs.py", "import os\nimport a_package_that_is_not_there\n");
  CHECK_THAT(bench.error(2, "needs.f"), Catch::Contains("a_package_that_is_not_there") && Catch::Contains("line 2"));
  bench.directory.write("stops.py", "import sys\nsys.exit(1)\n");
  CHECK_THAT(bench.error(2, "stops.f"), Catch::Contains("SystemExit"));
  bench.directory.write("package/__init__.py", "");
  bench.directory.write("package/inner.py", "def f(completions, **kwargs):\n    return [6 for _ in completions]\n");
  CHECK(bench.call("package.inner.f") == Values{6, 6});
}

TEST_CASE("the first search path wins, and no file there shadows what the worker needs") {
  rlalgo::support::ScratchDirectory first, second;
  first.write("scores.py", "def f(completions, **kwargs):\n    return [1 for _ in completions]\n");
  second.write("scores.py", "def f(completions, **kwargs):\n    return [2 for _ in completions]\n");
  second.write("other.py", "def f(completions, **kwargs):\n    return [3 for _ in completions]\n");
  first.write("select.py", "raise RuntimeError('shadow')\n");
  Bench bench;
  PythonConfig config;
  config.search_paths = {first.path(), second.path()};
  bench.worker = std::make_shared<PythonWorker>(config);
  CHECK(bench.call("scores.f") == Values{1, 1});
  CHECK(bench.call("other.f") == Values{3, 3});
}

TEST_CASE("Python that cannot be started") {
  Bench bench;
  PythonConfig config;
  config.python = "/no/such/python3";
  bench.worker = std::make_shared<PythonWorker>(config);
  CHECK_THAT(bench.error(1, "rewards.length"), Catch::Contains("/no/such/python3") && Catch::Contains("No such file") &&
                                                   Catch::Contains("RLALGO_PYTHON"));
  const rlalgo::support::ScopedVariable chosen("RLALGO_PYTHON", "/not/here/either");
  bench.worker = std::make_shared<PythonWorker>(PythonConfig{});
  CHECK_THAT(bench.error(1, "rewards.length"), Catch::Contains("/not/here/either"));
}

TEST_CASE("an import that takes too long") {
  Bench bench;
  bench.directory.write("slow.py", "import time\ntime.sleep(1000)\n");
  PythonConfig config;
  config.search_paths = {bench.directory.path()};
  config.start_seconds = 1.0;
  bench.worker = std::make_shared<PythonWorker>(config);
  CHECK_THAT(bench.error(6, "slow.f"), Catch::Contains("importing"));
}

TEST_CASE("exit handlers run at the end of a run") {
  rlalgo::support::ScratchDirectory directory;
  directory.write("tidy.py",
                  "import atexit, pathlib\n"
                  "atexit.register(lambda: pathlib.Path(__file__).with_name('done').write_text('x'))\n"
                  "def f(completions, **kwargs):\n    return [1 for _ in completions]\n");
  {
    PythonConfig config;
    config.search_paths = {directory.path()};
    PythonWorker worker(config);
    (void)worker.load("tidy.f");
  }
  CHECK(std::filesystem::exists(directory.path() / "done"));
}

TEST_CASE("what a function starts ends with it, in whatever session it is") {
  const auto pids_of = [](const std::string& pid_file) {
    std::vector<pid_t> out;
    std::ifstream file(pid_file);
    for (pid_t pid = 0; file >> pid;) out.push_back(pid);
    return out;
  };
  rlalgo::support::ScratchDirectory directory;
  const std::string pid_file = (directory.path() / "pids").string();
  {
    Bench bench(4.0);
    bench.columns = {{{"pid_file", pid_file}}, {{"pid_file", pid_file}}};
    SECTION("at the end of a run") { CHECK(bench.call("rewards.leaves") == Values{1, 1}); }
    SECTION("when it dies") { CHECK_THAT(bench.error(7, "rewards.leaves_and_dies"), Catch::Contains("exit status 6")); }
    SECTION("when it hangs, and no thread of Python runs any more") {
      (void)bench.error(6, "rewards.leaves_and_holds_the_interpreter");
    }
  }
  const std::vector<pid_t> pids = pids_of(pid_file);
  REQUIRE(pids.size() == 4);
  for (const pid_t pid : pids) CHECK(gone_within(pid, 0.5));  // they are gone already
}

TEST_CASE("a stop that is asked for while Python starts is not waited with") {
  Bench bench;
  bench.directory.write("slow.py", "import time\ntime.sleep(1000)\n");
  const os::Stopwatch watch;
  std::thread asks([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    os::Interruption::request(15);
  });
  CHECK_THROWS_AS(bench.worker->load("slow.f"), os::Interrupted);
  asks.join();
  os::Interruption::clear();
  CHECK(watch.seconds() < 30.0);
}

TEST_CASE("of a step that is to be finished first, a stop waits two seconds for Python, however it hangs") {
  const std::string body = GENERATE("    while True:\n        pass\n",  // holds the interpreter most of the time
                                    "    [os.write(3, b' ') and time.sleep(0.05) for _ in range(4000)]\n");  // drips
  Bench bench(60.0);
  bench.directory.write("slow.py",
                        "import os, time\ndef f(completions, **rest):\n" + body + "    return [1.0]\n" +
                            "def g(completions, **rest):\n    time.sleep(0.8)\n    return [1.0] * len(completions)\n");
  bench.worker->load("slow.f");
  bench.worker->load("slow.g");
  const os::Interruption::Deferred step;
  os::Interruption::request(2);
  CHECK(bench.call("slow.g").size() == bench.texts.size());  // what is soon finished is
  const os::Stopwatch watch;
  CHECK_THROWS_AS(bench.call("slow.f"), os::Interrupted);
  CHECK(watch.seconds() < 4.5);
  os::Interruption::clear();
}

TEST_CASE("when the trainer is killed in the middle of a call, Python goes too") {
  rlalgo::support::ScratchDirectory directory;
  directory.write("rewards.py", rewards_py);
  const std::string function = GENERATE("rewards.hangs", "rewards.leaves_and_holds_the_interpreter");
  const std::string pid_file = (directory.path() / "pids").string();
  const std::size_t expected = function == "rewards.hangs" ? 2 : 4;
  const pid_t trainer = ::fork();
  if (trainer == 0) {
    PythonConfig config;
    config.search_paths = {directory.path()};
    PythonWorker worker(config);
    const std::vector<std::string> texts = {"x"};
    const rlalgo::support::Prompts prompts = {"p"};
    const std::vector<Json> completions = {"x"}, columns = {{{"pid_file", pid_file}}};
    const std::vector<std::span<const std::int32_t>> ids(1);
    (void)worker.load(function);
    (void)worker.call(
        function,
        {.prompts = prompts, .completions = completions, .texts = texts, .completion_ids = ids, .columns = columns});
    ::_exit(0);
  }
  REQUIRE(trainer > 0);
  std::vector<pid_t> started;
  for (const os::Deadline deadline(60.0); started.size() < expected && !deadline.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    started.clear();
    std::ifstream file(pid_file);
    for (pid_t pid = 0; file >> pid;) started.push_back(pid);
  }
  ::kill(trainer, SIGKILL);
  int status = 0;
  ::waitpid(trainer, &status, 0);
  REQUIRE(started.size() == expected);
  for (const pid_t pid : started) CHECK(gone_within(pid, 20.0));
}
