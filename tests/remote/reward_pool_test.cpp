#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/catch.hpp>
#include <support/prompts.hpp>
#include <support/scratch.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/reward_pool.hpp>
#include <rlalgo/reward/failure_policy.hpp>

using namespace rlalgo;
using remote::PythonReward;
using remote::RewardPool;
using reward::Json;
using Values = std::vector<double>;

namespace {

constexpr const char* rewards_py = R"(
import asyncio, os, signal, time

def once(path):
    # True the first time, whatever the process.
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

def who(completions, log_extra, log_metric, **kwargs):
    log_extra("pid", [os.getpid()] * len(completions))
    log_metric("rows", len(completions))
    return [float(len(completions))] * len(completions)

def dies_once(completions, path, **kwargs):
    if once(path[0]):
        os.kill(os.getpid(), signal.SIGKILL)
    return [1.0] * len(completions)

def hangs_once(completions, path, **kwargs):
    if once(path[0]):
        time.sleep(600)
    return [2.0] * len(completions)

def garbage_once(completions, path, **kwargs):
    if once(path[0]):
        os.write(3, b"\x00 no json\n")
    print('{"answers": []}')
    return [3.0] * len(completions)

def always_dies(completions, **kwargs):
    os._exit(5)

def no_seven(completions, log_extra, **kwargs):
    if "seven" in completions:
        raise ValueError("seven")
    log_extra("seen", list(completions))
    return [float(len(c)) for c in completions]

def short(completions, **kwargs):
    return []

turn = asyncio.Event()

async def waits(completions, **kwargs):
    await asyncio.wait_for(turn.wait(), 20)
    return [1.0] * len(completions)

async def wakes(completions, **kwargs):
    await asyncio.sleep(0.05)
    turn.set()
    return [2.0] * len(completions)

async def fails(completions, **kwargs):
    raise RuntimeError("asynchronously")

def scaled(completions, factor, **kwargs):
    return [factor * len(c) for c in completions]
)";

struct Bench {
  rlalgo::support::ScratchDirectory directory;
  std::vector<std::string> texts;
  rlalgo::support::Prompts prompts;
  std::vector<Json> completions, columns;
  std::vector<std::span<const std::int32_t>> ids;
  reward::RewardLog log;
  remote::PoolConfig config;

  Bench(std::size_t workers, const std::vector<std::pair<std::string, std::string>>& rows) {
    directory.write("pool_rewards.py", rewards_py);
    config.workers = workers;
    config.python.search_paths = {directory.path()};
    config.python.call_seconds = 60;
    for (const auto& [prompt, text] : rows) {
      prompts.emplace_back(prompt);
      completions.emplace_back(text);
      texts.push_back(text);
      columns.push_back({{"path", (directory.path() / "mark").string()}});
      ids.emplace_back();
    }
  }
  reward::RewardCall call() {
    return {.prompts = prompts,
            .completions = completions,
            .texts = texts,
            .completion_ids = ids,
            .columns = columns,
            .step = 4,
            .log = &log};
  }
  std::string error(int number, reward::RewardFunction& function) {
    try {
      (void)reward::evaluate(function, call());
    } catch (const core::Error& e) {
      CHECK(e.room() == "remote");
      CHECK(e.number() == number);
      return e.what();
    }
    FAIL("no error");
    return {};
  }
};

const std::vector<std::pair<std::string, std::string>> three_groups = {{"a", "1"}, {"a", "2"}, {"b", "3"},
                                                                       {"b", "4"}, {"c", "5"}, {"c", "6"}};

}  // namespace

TEST_CASE("a batch is shared by several processes, groups intact") {
  Bench bench(2, three_groups);
  const auto pool = std::make_shared<RewardPool>(bench.config);
  PythonReward who(pool, "pool_rewards.who");
  CHECK(who.name() == "who");
  // ceil(3 groups / 2 workers) = 2 groups, then 1.
  CHECK(reward::evaluate(who, bench.call()) == Values{4, 4, 4, 4, 2, 2});
  REQUIRE(bench.log.extras.size() == 1);
  const Json& pids = bench.log.extras[0].second;
  CHECK(pids[0] == pids[3]);
  CHECK(pids[4] == pids[5]);
  CHECK(pids[0] != pids[4]);
  CHECK(bench.log.metrics == std::vector<std::pair<std::string, double>>{{"rows", 4.0}, {"rows", 2.0}});
}

TEST_CASE("a process that dies, hangs or prints garbage is replaced, and the call tried again") {
  const auto [function, value, seconds, found] =
      GENERATE(table<const char*, double, double, const char*>({{"pool_rewards.dies_once", 1.0, 60.0, "remote.7"},
                                                                {"pool_rewards.hangs_once", 2.0, 5.0, "remote.6"},
                                                                {"pool_rewards.garbage_once", 3.0, 60.0, "remote.8"}}));
  Bench bench(1, three_groups);
  bench.config.python.call_seconds = seconds;
  const auto pool = std::make_shared<RewardPool>(bench.config);
  PythonReward reward(pool, function);
  CHECK(reward::evaluate(reward, bench.call()) == Values(6, value));
  REQUIRE(bench.log.warnings.size() == 1);
  CHECK_THAT(bench.log.warnings[0], Catch::Contains(found) && Catch::Contains("started again"));
}

TEST_CASE("retries are bounded, and the next call starts afresh") {
  Bench bench(2, three_groups);
  bench.config.max_retries = 2;
  const auto pool = std::make_shared<RewardPool>(bench.config);
  PythonReward dying(pool, "pool_rewards.always_dies"), who(pool, "pool_rewards.who");
  const std::string text = bench.error(7, dying);
  CHECK_THAT(text, Catch::Contains("exit status 5") && Catch::Contains("attempt 3 of 3"));
  CHECK(reward::evaluate(who, bench.call()) == Values{4, 4, 4, 4, 2, 2});
}

TEST_CASE("coroutine functions wait at the same time") {
  Bench bench(1, three_groups);
  const auto pool = std::make_shared<RewardPool>(bench.config);
  // The first returns only after the second has run; the third fails on its own.
  PythonReward waits(pool, "pool_rewards.waits"), wakes(pool, "pool_rewards.wakes"), fails(pool, "pool_rewards.fails"),
      who(pool, "pool_rewards.who");
  for (int twice = 0; twice < 2; ++twice) {
    CHECK(reward::evaluate(waits, bench.call()) == Values(6, 1.0));
    CHECK(reward::evaluate(who, bench.call()) == Values(6, 6.0));
    CHECK(reward::evaluate(wakes, bench.call()) == Values(6, 2.0));
    CHECK_THAT(bench.error(3, fails), Catch::Contains("RuntimeError: asynchronously"));
  }
}

TEST_CASE("keywords of the configuration reach the function") {
  Bench bench(1, {{"a", "xyz"}});
  const auto pool = std::make_shared<RewardPool>(bench.config);
  PythonReward twice(pool, "pool_rewards.scaled", {{"factor", 2}}),
      thrice(pool, "pool_rewards.scaled", {{"factor", 3}});
  CHECK(reward::evaluate(twice, bench.call()) == Values{6});
  CHECK(reward::evaluate(thrice, bench.call()) == Values{9});
}

TEST_CASE("with a failure policy the rows that fail stand alone") {
  Bench bench(1, {{"a", "one"}, {"a", "seven"}, {"b", "three"}, {"b", "seven"}, {"b", "ten"}});
  const auto pool = std::make_shared<RewardPool>(bench.config);
  const auto no_seven = std::make_shared<PythonReward>(pool, "pool_rewards.no_seven");
  const auto short_list = std::make_shared<PythonReward>(pool, "pool_rewards.short");
  const auto dying = std::make_shared<PythonReward>(pool, "pool_rewards.always_dies");
  CHECK_THAT(bench.error(3, *no_seven), Catch::Contains("ValueError: seven"));
  reward::Guarded zero(no_seven, reward::OnFailure::zero);
  CHECK(reward::evaluate(zero, bench.call()) == Values{3, 0, 5, 0, 3});
  CHECK(bench.log.own_metrics.back() == std::pair<std::string, double>("rewards/no_seven/failed", 0.4));
  CHECK_THAT(bench.log.warnings.back(), Catch::Contains("failed for 2 of 5 completions, which count as 0") &&
                                            Catch::Contains("ValueError: seven"));
  CHECK(bench.log.extras.back().second == Json{"one", nullptr, "three", nullptr, "ten"});
  for (const auto& function : {short_list, dying}) {
    reward::Guarded nan(function, reward::OnFailure::nan);
    for (const double value : reward::evaluate(nan, bench.call())) CHECK(std::isnan(value));
    CHECK(bench.log.own_metrics.back().second == 1.0);
  }
  CHECK_THAT(bench.log.warnings.back(), Catch::Contains("remote.7") && Catch::Contains("not scored"));
}
