#include <support/scratch.hpp>

#include <rlalgo/data/load.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScopedVariable;
using rlalgo::support::ScratchDirectory;

namespace {
std::string numbered(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i) out += "{\"n\": " + std::to_string(i) + "}\n";
  return out;
}
DatasetSource source(const std::string& path, const std::string& split = {}) {
  DatasetSource s;
  s.path = path;
  s.split = split;
  return s;
}
std::string error_of(const DatasetSource& s) {
  return raised_by([&] { (void)load(s); });
}
}  // namespace

TEST_CASE("a file has the split train; slices are honoured") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("rows.jsonl", numbered(0, 10));
  CHECK(load(source(file)).size() == 10);
  const Table slice = load(source(file, "train[-3:]+train[:20%]"));
  REQUIRE(slice.size() == 5);
  CHECK(slice.row(0)["n"] == 7);
  CHECK(slice.row(3)["n"] == 0);
  CHECK(lacks(error_of(source(file, "test")), {"data.7: ", "\"test\"", "expected train"}) == "");
  CHECK(lacks(error_of(source(file, "train[:0]")), {"data.5: ", "train[:0]"}) == "");
}

TEST_CASE("an empty file and a missing path") {
  const ScratchDirectory scratch;
  CHECK(lacks(error_of(source(scratch.write("rows.jsonl", ""))), {"data.5: "}) == "");
  const ScopedVariable cache("HF_HUB_CACHE", scratch.path().string());
  CHECK(lacks(error_of(source("owner/nothing")), {"data.1: ", "nothing is downloaded"}) == "");
  CHECK(lacks(error_of(source("./nothing.jsonl")), {"data.1: ", "./nothing.jsonl", "the working directory"}) == "");
  CHECK(lacks(error_of(DatasetSource{}), {"data.1: ", "neither path nor data_files"}) == "");
}

TEST_CASE("a directory is read by the splits its files and folders are named after") {
  const ScratchDirectory scratch;
  scratch.write("a/train.jsonl", numbered(0, 4));
  scratch.write("a/test.jsonl", numbered(4, 6));
  scratch.write("a/extra.jsonl", numbered(6, 9));
  scratch.write("a/README.md", "x");
  scratch.write("a/LICENSE", "x");
  const std::string a = (scratch.path() / "a").string();
  CHECK(load(source(a)).size() == 4);
  CHECK(load(source(a, "test")).size() == 2);
  CHECK(lacks(error_of(source(a, "tset")), {"data.7: ", "test, train", "did you mean test?"}) == "");
  DatasetSource typed = source(a);
  typed.ds_type = "json";
  CHECK(load(typed).size() == 4);  // README.md and LICENSE are no rows
  typed.ds_type = "text";
  CHECK(lacks(error_of(typed), {"data.1: ", "no dataset file"}) == "");
  scratch.write("b/validation/part-1.jsonl", numbered(0, 2));
  scratch.write("b/validation/part-0.jsonl", numbered(2, 3));
  const Table validation = load(source((scratch.path() / "b").string(), "validation"));
  REQUIRE(validation.size() == 3);
  CHECK(validation.row(0)["n"] == 2);  // part-0 first
  scratch.write("c/one.jsonl", numbered(0, 2));
  scratch.write("c/constrained.jsonl", numbered(2, 3));  // holds the letters of "train", not the word
  CHECK(load(source((scratch.path() / "c").string())).size() == 3);
  scratch.write("d/notes.md", "x");
  CHECK(lacks(error_of(source((scratch.path() / "d").string())), {"data.1: ", "no dataset file"}) == "");
}

TEST_CASE("data_files: in the order given, patterns sorted, with or without a directory") {
  const ScratchDirectory scratch;
  scratch.write("d/b.jsonl", numbered(0, 1));
  scratch.write("d/a.jsonl", numbered(1, 2));
  DatasetSource s = source((scratch.path() / "d").string());
  s.data_files = {"b.jsonl", "a.jsonl"};
  CHECK(load(s).row(0)["n"] == 0);
  s.data_files = {"*.jsonl"};
  CHECK(load(s).row(0)["n"] == 1);
  s.data_files = {"c*.jsonl"};
  CHECK(lacks(error_of(s), {"data.1: ", "c*.jsonl"}) == "");
  DatasetSource pathless;
  pathless.ds_type = "json";
  pathless.data_files = {(scratch.path() / "d/b.jsonl").string()};
  CHECK(load(pathless).size() == 1);
}

TEST_CASE("data_files by split") {
  const ScratchDirectory scratch;
  const std::string a = scratch.write("d/a.jsonl", numbered(0, 1)), b = scratch.write("d/b.jsonl", numbered(1, 3));
  DatasetSource s;
  s.split_files = {{"train", {a}}, {"held", {b, a}}};
  CHECK(load(s).size() == 1);
  s.split = "held[1:]";
  const Table held = load(s);
  REQUIRE(held.size() == 2);
  CHECK(held.row(0)["n"] == 2);
  CHECK(held.row(1)["n"] == 0);
  s.split = "test";
  CHECK(lacks(error_of(s), {"data.7: ", "held, train", b}) == "");
  s.path = (scratch.path() / "d").string();
  s.split_files = {{"test", {"b.jsonl"}}};
  CHECK(load(s).size() == 2);
  s.split_files = {{"test", {"c.jsonl"}}};
  CHECK(lacks(error_of(s), {"data.1: ", "c.jsonl"}) == "");
}

TEST_CASE("a format as path: its files are data_files, whatever they are called") {
  const ScratchDirectory scratch;
  const std::string rows = scratch.write("d/a.rows", numbered(0, 2)), table = scratch.write("d/a.table", "n,t\n7,x\n");
  DatasetSource s = source("json");
  s.data_files = {rows};
  CHECK(load(s).size() == 2);
  s.split_files = {{"test", {rows, rows}}};
  s.data_files.clear();
  s.split = "test";
  CHECK(load(s).size() == 4);
  s = source("csv");
  s.data_files = {table};
  CHECK(load(s).row(0)["n"] == 7);
  s.path = "text";
  CHECK(load(s).columns() == std::vector<std::string>{"text"});
  s.ds_type = "json";
  CHECK(lacks(error_of(s), {"data.6: ", "ds_type: json", "text"}) == "");
  CHECK(lacks(error_of(source("json")), {"data.1: ", "path: json", "data_files"}) == "");
  s.path = "webdataset";
  CHECK(lacks(error_of(s), {"data.6: ", "webdataset"}) == "");
}

TEST_CASE("a pattern as path, and folders at any depth") {
  const ScratchDirectory scratch;
  scratch.write("d/b.jsonl", numbered(0, 1));
  scratch.write("d/a.jsonl", numbered(1, 2));
  scratch.write("d/x/y/c.jsonl", numbered(2, 3));
  scratch.write("d/x/.hidden/c.jsonl", numbered(3, 4));
  scratch.write("d/x/notes.md", "");
  const std::string d = (scratch.path() / "d").string();
  const auto all = [&](const std::string& pattern) {
    std::string out;
    const Table rows = load(source(pattern));
    for (std::size_t i = 0; i < rows.size(); ++i) out += rows.row(i)["n"].dump();
    return out;
  };
  CHECK(all(d + "/*.jsonl") == "10");
  CHECK(all(d + "/[b-z].jsonl") == "0");
  CHECK(all(d + "/**/*.jsonl") == "102");
  CHECK(all(d + "/**/c.jsonl") == "2");
  CHECK(all(d + "/*/**/c.jsonl") == "2");
  CHECK(lacks(error_of(source(d + "/*.csv")), {"data.1: ", "*.csv", "no file"}) == "");
  DatasetSource both = source(d + "/*.jsonl");
  both.data_files = {d + "/a.jsonl"};
  CHECK(lacks(error_of(both), {"data.1: ", "data_files"}) == "");
  both.path = d + "/b.jsonl";  // a file: one of the two would be ignored
  CHECK(lacks(error_of(both), {"data.1: ", "path is a file"}) == "");
  scratch.write("d/[odd].jsonl", numbered(5, 6));
  CHECK(all(d + "/[odd].jsonl") == "5");  // a file of that name comes first
}

TEST_CASE("formats: by extension or ds_type; what is not read is refused by name") {
  const ScratchDirectory scratch;
  CHECK(load(source(scratch.write("t.txt", "one\ntwo\n"))).row(1)["text"] == "two");
  DatasetSource s = source(scratch.write("noextension", numbered(0, 1)));
  CHECK(load(s).size() == 1);
  s.ds_type = "text";
  CHECK(load(s).columns() == std::vector<std::string>{"text"});
  s.ds_type = "feather";
  CHECK(lacks(error_of(s), {"data.6: ", "feather"}) == "");
  CHECK(lacks(error_of(source(scratch.write("x.jsonl", "PAR1"))), {"data.6: ", "Parquet", "ds_type: parquet"}) == "");
  CHECK(lacks(error_of(source(scratch.write("y.jsonl", "ARROW1"))), {"data.6: ", "ds_type: arrow"}) == "");
  CHECK(lacks(error_of(source(scratch.write("x.jsonl.xz", ""))), {"data.6: ", "unxz"}) == "");
  CHECK(load(source(scratch.write("x.csv", "a,b\n1,x\n"))).row(0)["a"] == 1);
  CHECK(load(source(scratch.write("x.csv.d/rows.jsonl", numbered(0, 1)))).size() ==
        1);  // only the file's own name counts
}

TEST_CASE("an id is looked up in the cache, its configuration is a folder") {
  const ScratchDirectory scratch;
  const ScopedVariable cache("HF_HUB_CACHE", scratch.path().string());
  scratch.write("datasets--owner--rows/refs/main", "c1");
  scratch.write("datasets--owner--rows/snapshots/c1/main/train.jsonl", numbered(0, 3));
  scratch.write("datasets--owner--rows/snapshots/c1/other/train.jsonl", numbered(0, 5));
  DatasetSource s = source("owner/rows", "train");
  s.name = "main";
  CHECK(load(s).size() == 3);
}

TEST_CASE("rows of one entry share their columns") {
  const ScratchDirectory scratch;
  const Table table = load(source(scratch.write("rows.jsonl", "{\"a\": 1}\n{\"b\": 2}\n")));
  CHECK(table.row(0).dump() == R"({"a":1,"b":null})");
  CHECK(lacks(error_of(source(scratch.write("mixed.jsonl", "{\"a\": 1}\n{\"a\": \"x\"}\n"))), {"data.8: "}) == "");
}
