#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

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

// `times` gzip members, each of `text`.
std::string write_gzip(const ScratchDirectory& scratch, const std::string& name, const std::string& text,
                       int times = 1) {
  const std::string path = (scratch.path() / name).string();
  gzFile file = ::gzopen(path.c_str(), "wb");
  REQUIRE(::gzwrite(file, text.data(), static_cast<unsigned>(text.size())) == static_cast<int>(text.size()));
  REQUIRE(::gzclose(file) == Z_OK);
  std::ifstream in(path, std::ios::binary);
  const std::string member((std::istreambuf_iterator<char>(in)), {});
  std::ofstream out(path, std::ios::binary | std::ios::app);
  for (int i = 1; i < times; ++i) out << member;
  return path;
}
std::string error_of_file(const std::string& path) {
  return raised_by([&] {
    Table table;
    if (path.find(".txt") == std::string::npos)
      read_json_rows(table, path);
    else
      read_text_rows(table, path);
  });
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
  CHECK(lacks(error_of(scratch, "{\"a\": 1}\n{\"a\": 1e999}\n"), {"data.3: ", "rows.jsonl:2", "'1e999'"}) == "");
  CHECK(lacks(error_of(scratch, "[{\"a\": 1},\n{\"a\": -1e999}]"), {"data.3: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, "{\n\"a\": 1\n}\n{\n\"a\": 1e999\n}\n"), {"data.3: ", "rows.jsonl:4"}) == "");
  CHECK(lacks(error_of(scratch, "just words\n"), {"data.3: ", "rows.jsonl:1"}) == "");
}

TEST_CASE("what a value could not keep is refused with its line") {
  const ScratchDirectory scratch;
  const auto error = [&](const std::string& text) { return raised_by([&] { (void)read(scratch, text); }); };
  CHECK(lacks(error("{\"a\": 1}\n{\"a\": 12345678901234567890123}\n"),
              {"data.36", "12345678901234567890123", "rows.jsonl:2"}) == "");
  CHECK(lacks(error("{\"a\": 1}\n{\"a\": 1, \"a\": 2}\n"), {"data.36", "\"a\" twice", "rows.jsonl:2"}) == "");
  CHECK(lacks(error("[{\"a\": 1},\n {\"a\": {\"b\": 1, \"b\": 2}}]"), {"data.36", "\"b\" twice", "rows.jsonl:2"}) ==
        "");
  CHECK(lacks(error("{\"a\":\n 1}\n{\"a\": 2,\n\"a\": 3}"), {"data.36", "\"a\" twice"}) == "");
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

TEST_CASE("JSON that is nested too deeply, or has too many names, is refused with its line") {
  const ScratchDirectory scratch;
  const std::string deep = std::string(100000, '[') + std::string(100000, ']'), good = "{\"a\": 1}\n";
  CHECK(lacks(error_of(scratch, good + "{\"a\": " + deep + "}\n"), {"data.30: ", "200 levels", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, "{\"a\": " + deep + "}\n" + good), {"data.30: ", "rows.jsonl:1"}) == "");
  CHECK(lacks(error_of(scratch, "[\n{\"a\": " + deep + "}]"), {"data.30: ", "rows.jsonl:2"}) == "");
  CHECK(lacks(error_of(scratch, deep), {"data.30: ", "rows.jsonl:1"}) == "");
  CHECK(lacks(error_of(scratch, "{\n\"a\":\n" + deep + "\n}\n"), {"data.30: ", "rows.jsonl:3"}) == "");
  CHECK(lacks(error_of(scratch, "{\"rows\": [{\"a\": " + deep + "}]}", "rows"), {"data.30: ", "rows.jsonl:1"}) == "");
  std::string wide = "{\"a\": 0";
  for (int i = 0; i < 5000; ++i) wide += ", \"c" + std::to_string(i) + "\": 0";
  CHECK(lacks(error_of(scratch, good + wide + "}\n"), {"data.30: ", "5001", "columns", "rows.jsonl:2"}) == "");
}

TEST_CASE("a dataset file that is no regular file is refused at once") {
  const ScratchDirectory scratch;
  const std::string fifo = (scratch.path() / "rows.jsonl").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  CHECK(lacks(error_of_file(fifo), {"data.2: ", "a named pipe", "rows.jsonl"}) == "");
  CHECK(lacks(error_of_file("/dev/zero"), {"data.2: ", "a device"}) == "");
}

TEST_CASE("no file makes reading endless: lines, empty lines, compressed bytes") {
  const ScratchDirectory scratch;
  // 8 GiB of line feeds in 8 MB.
  const std::string feeds(std::size_t{64} << 20U, '\n');
  const std::string many = write_gzip(scratch, "feeds.jsonl.gz", feeds, 128);
  CHECK(std::filesystem::file_size(many) < 10'000'000);
  CHECK(lacks(error_of_file(many), {"data.30: ", "empty lines", "feeds.jsonl.gz:1000001"}) == "");
  std::filesystem::rename(many, scratch.path() / "feeds.txt.gz");
  CHECK(lacks(error_of_file((scratch.path() / "feeds.txt.gz").string()), {"data.30: ", "empty lines"}) == "");
  // Compressed bytes that are nothing but rows, again and again.
  std::string rows;
  while (rows.size() < std::size_t{16} << 20U) rows += "{\"text\": \"the same\", \"n\": [1, 2, 3]}\n";
  rlalgo::data::detail::InputFile bomb(write_gzip(scratch, "rows.jsonl.gz", rows, 8));
  std::string line;
  CHECK(lacks(raised_by([&] {
                while (bomb.read_line(line)) continue;
              }),
              {"data.30: ", "expands too far", "less than 200 times", "gunzip -k"}) == "");
  rlalgo::data::detail::InputFile twice(write_gzip(scratch, "twice.jsonl.gz", rows, 2));
  std::size_t count = 0;
  while (twice.read_line(line)) ++count;
  CHECK(count == 2 * static_cast<std::size_t>(std::count(rows.begin(), rows.end(), '\n')));
  // A line of a terabyte of holes.
  const std::string holes = scratch.write("holes.jsonl", "{\"a\": 1}\n");
  std::filesystem::resize_file(holes, std::uint64_t{1} << 40U);
  CHECK(lacks(error_of_file(holes), {"data.30: ", "a line", "67108864 bytes", "holes.jsonl:2"}) == "");
  const std::string array = scratch.write("array.json", "[{\"a\": 1}, {\"a\": 2}]");
  CHECK(lacks(raised_by([&] { (void)rlalgo::data::detail::InputFile(array, {.document = 19}).read_all(); }),
              {"data.30: ", "19 bytes", "array.json", "JSON lines"}) == "");
}

TEST_CASE("an array may be one line that is longer than any row") {
  const ScratchDirectory scratch;
  std::string array = "[{\"text\": \"" + std::string(std::size_t{33} << 20U, 'x') + "\"}, {\"text\": \"";
  array += std::string(std::size_t{33} << 20U, 'y') + "\"}]";
  const Table table = read(scratch, array);
  REQUIRE(table.size() == 2);
  CHECK(table.row(1)["text"].get_ref<const std::string&>().size() == std::size_t{33} << 20U);
}
