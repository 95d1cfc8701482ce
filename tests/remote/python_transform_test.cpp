#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/os/clock.hpp>
#include <rlalgo/remote/python_transform.hpp>

using namespace rlalgo;
using data::Json;
using data::Table;
using support::lacks;
using support::raised_by;

namespace {

constexpr const char* user_py = R"(
import time

def plain(cfg, *args, **kwargs):
    def row(example):
        print("to stderr")
        example["prompt"] = cfg.prefix + cfg["prefix"] + example["q"]
        return example
    return row

def renamed(cfg, dataset_idx=None):
    assert cfg.nothing is None and cfg.trl.beta == 0.5 and dataset_idx == 2
    def row(example, missing=None):
        return {"prompt": example["q"], "chosen": (1, float("nan"))}
    return row, {"remove_columns": ["q"]}

def batched(cfg):
    def rows(columns):
        return {"prompt": [q for q in columns["q"] for _ in range(2)]}
    return rows, {"batched": True, "remove_columns": "__all__"}

def uneven(cfg):
    return lambda columns: {"prompt": ["x"]}, {"batched": True}

def raising(cfg):
    def row(example):
        return {"prompt": 1 / (example["n"] - 3)}
    return row

def no_dict(cfg):
    return lambda example: None

def no_function(cfg):
    return 5

def refusing(cfg):
    raise ValueError("bad cfg")

def slow(cfg):
    def row(example):
        time.sleep(60)
    return row

def dying(cfg):
    import os
    return lambda example: os._exit(3)

def tokenizing(cfg):
    def row(example, tokenizer):
        return {}
    return row
)";

constexpr const char* no_transformers = R"(
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "transformers" else found(name, *rest)

def optional(cfg):
    def row(example, tokenizer=None):
        return {"prompt": "tokenizer is %r" % tokenizer}
    return row

def required(cfg):
    def row(example, tokenizer):
        return {}
    return row
)";

constexpr const char* with_transformers = R"(
class AutoTokenizer:
    @staticmethod
    def from_pretrained(directory):
        return "tokenizer of " + directory
)";

struct Fixture {
  support::ScratchDirectory scratch;
  Table table;
  Fixture() {
    scratch.write("user.py", user_py);
    for (int n = 0; n < 5; ++n)
      table.append(Json{{"q", "q" + std::to_string(n)}, {"n", n}},
                   {std::make_shared<const std::string>("rows.jsonl"), n + 1, -1});
  }
  [[nodiscard]] Table run(const std::string& function, std::size_t chunk = 2, double seconds = 60.0) const {
    remote::PythonTransform transform(
        function, Json{{"prefix", "p"}, {"trl", {{"beta", 0.5}}}},
        {.search_paths = {scratch.path()}, .call_seconds = seconds, .chunk_rows = chunk, .dataset_index = 2});
    return transform(table);
  }
  [[nodiscard]] std::string error(const std::string& function, double seconds = 60.0) const {
    return raised_by([&] { (void)run(function, 2, seconds); });
  }
};

}  // namespace

TEST_CASE("a row function changes rows and keeps columns, order and origins") {
  const Fixture f;
  const Table out = f.run("user.plain");
  REQUIRE(out.size() == 5);
  CHECK(out.row(4).dump() == R"({"q":"q4","n":4,"prompt":"ppq4"})");
  CHECK(out.where(4) == "rows.jsonl:5");
}

TEST_CASE("options: removed columns, batches that make other numbers of rows") {
  const Fixture f;
  CHECK(f.run("user.renamed").row(1).dump() == R"({"n":1,"prompt":"q1","chosen":[1,null]})");
  const Table out = f.run("user.batched");
  REQUIRE(out.size() == 10);
  CHECK(out.row(3).dump() == R"({"prompt":"q1"})");
  CHECK(out.where(9) == "rows.jsonl:5");
}

TEST_CASE("what can go wrong in a transform has its number") {
  const Fixture f;
  CHECK(lacks(f.error("absent.x"), {"remote.41: ", "no module named 'absent'"}) == "");
  CHECK(lacks(f.error("user.absent"), {"remote.41: ", "it has: batched, dying"}) == "");
  CHECK(lacks(f.error("user.refusing"), {"remote.41: ", "bad cfg"}) == "");
  CHECK(lacks(f.error("user.no_function"), {"remote.41: ", "int, not a function"}) == "");
  CHECK(lacks(f.error("user.raising"), {"remote.42: ", "ZeroDivisionError", "rows.jsonl:4", "user.py"}) == "");
  CHECK(lacks(f.error("user.no_dict"), {"remote.43: ", "NoneType", "rows.jsonl:1"}) == "");
  CHECK(lacks(f.error("user.uneven"), {"remote.43: ", "different lengths"}) == "");
  CHECK(lacks(f.error("user.dying"), {"remote.45: ", "exit status 3"}) == "");
  const os::Stopwatch watch;
  CHECK(lacks(f.error("user.slow", 0.3), {"remote.44: ", "in time"}) == "");
  CHECK(watch.seconds() < 30.0);
  const support::ScopedVariable python("RLALGO_PYTHON", "no-such-python");
  CHECK(lacks(f.error("user.plain"), {"remote.40: ", "no-such-python"}) == "");
}

TEST_CASE("a row function gets the tokenizer where Python has transformers, else keeps its default") {
  const Fixture f;
  f.scratch.write("user.py", no_transformers);
  CHECK(f.run("user.optional").row(0)["prompt"] == "tokenizer is None");
  const std::string refused = f.error("user.required");
  CHECK(lacks(refused, {"remote.41: ", "wants a tokenizer"}) == "");
  f.scratch.write("transformers.py", with_transformers);
  const std::string text = no_transformers;
  f.scratch.write("mine.py", text.substr(text.find("def optional")));
  remote::PythonTransform transform("mine.optional", Json::object(),
                                    {.search_paths = {f.scratch.path()}, .tokenizer = "/some/model"});
  CHECK(transform(f.table).row(0)["prompt"] == "tokenizer is 'tokenizer of /some/model'");
}
