#include <support/scratch.hpp>

#include <rlalgo/data/json_rows.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {
Table read(const ScratchDirectory& scratch, const std::string& text, const std::string& field = {}) {
  Table table;
  read_json_rows(table, scratch.write("rows.jsonl", text), field);
  return table;
}
std::string error_of(const ScratchDirectory& scratch, const std::string& text, const std::string& field = {}) {
  return raised_by([&] { (void)read(scratch, text, field); });
}
}  // namespace

TEST_CASE("one object per line, with empty lines, CRLF and a byte-order mark") {
  const ScratchDirectory scratch;
  const Table table = read(scratch, "\xef\xbb\xbf{\"a\": 1}\r\n\r\n  {\"a\": 2}\n{\"a\": 3}");
  REQUIRE(table.size() == 3);
  CHECK(table.row(2)["a"] == 3);
  CHECK(lacks(table.where(1), {"rows.jsonl:3"}) == "");
}

TEST_CASE("one array of objects, objects over several lines, and a field of one object") {
  const ScratchDirectory scratch;
  const Table array = read(scratch, "[{\"a\": 1},\n {\"a\": 2}]");
  REQUIRE(array.size() == 2);
  CHECK(lacks(array.where(1), {"rows.jsonl[1]"}) == "");
  const Table pretty = read(scratch, "{\n  \"a\": 1\n}\n{\n  \"a\": 2\n}\n");
  REQUIRE(pretty.size() == 2);
  CHECK(pretty.row(1)["a"] == 2);
  CHECK(lacks(pretty.where(1), {"rows.jsonl:4"}) == "");
  CHECK(read(scratch, "{\"a\": 1,\n\"b\": 2}").size() == 1);
  CHECK(read(scratch, "{\"data\": [{\"a\": 1}, {\"a\": 2}]}", "data").size() == 2);
  CHECK(read(scratch, "\n \n").empty());
}

TEST_CASE("invalid JSON names its line") {
  const ScratchDirectory scratch;
  CHECK(lacks(error_of(scratch, "{\"a\": 1}\n{\"a\": 2\n{\"a\": 3}\n"), {"data.3: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, "{\"a\": 1\n{\"a\": 2}\n"), {"data.3: ", "rows.jsonl:1"}) == "");
  CHECK(lacks(error_of(scratch, "{\"a\": 1}\n\n{\"a\": nope}\n"), {"data.3: ", "rows.jsonl:3"}) == "");
  CHECK(lacks(error_of(scratch, "[{\"a\": 1},\n{\"a\" 2}]"), {"data.3: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, "{\n  \"a\": 1\n}\n{\n  \"a\" 2\n}\n"), {"data.3: ", "rows.jsonl:5"}) == "");
  CHECK(lacks(error_of(scratch, "{\"a\": \"\xff\"}\n"), {"data.3: ", "rows.jsonl:1"}) == "");
  CHECK(lacks(error_of(scratch, "just words\n"), {"data.3: ", "rows.jsonl:1"}) == "");
}

TEST_CASE("a row that is no object, and a field that is no list") {
  const ScratchDirectory scratch;
  CHECK(lacks(error_of(scratch, "{\"a\": 1}\n[1]\n"), {"data.4: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, "[1]"), {"data.4: ", "rows.jsonl[0]"}) == "");
  CHECK(lacks(error_of(scratch, "{\"rows\": 1}", "rows"), {"data.4: "}) == "");
  CHECK(lacks(error_of(scratch, "{\"rows\": []}", "data"), {"data.4: ", "no such field"}) == "");
}

TEST_CASE("what cannot be read, and what is of another format") {
  const ScratchDirectory scratch;
  CHECK(lacks(raised_by([&] {
                Table t;
                read_json_rows(t, scratch.path() / "none.jsonl");
              }),
              {"data.2: ", "No such file"}) == "");
  CHECK(lacks(raised_by([&] {
                Table t;
                read_json_rows(t, scratch.path());
              }),
              {"data.2: "}) == "");
  CHECK(lacks(error_of(scratch, "PAR1xxxx"), {"data.6: ", "Parquet"}) == "");
  CHECK(lacks(error_of(scratch, std::string("\x1f\x8b\x08", 3)), {"data.28: ", "ends too early"}) == "");
}

TEST_CASE("text files give one row per line, empty lines too") {
  const ScratchDirectory scratch;
  Table table;
  read_text_rows(table, scratch.write("t.txt", "one\r\n\nthree"));
  REQUIRE(table.size() == 3);
  CHECK(table.row(0)["text"] == "one");
  CHECK(table.row(1)["text"] == "");
  CHECK(table.row(2)["text"] == "three");
}
