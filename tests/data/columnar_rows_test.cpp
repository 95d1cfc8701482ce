#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <support/not_run.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/columnar_rows.hpp>
#include <rlalgo/data/load.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScopedVariable;
using rlalgo::support::ScratchDirectory;

namespace {

std::string golden(const std::string& name) {
  return std::string(rlalgo::support::test_dir) + "/golden/data/columnar/" + name;
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Ends a test case on a machine without Arrow.
void need_arrow() {
  const std::string raised = raised_by([] { (void)columnar_library(); });
  rlalgo::support::needs(raised == "nothing", "built without Arrow");
}

std::vector<Json> rows_of(const std::string& file, const std::vector<std::string>& columns = {},
                          std::vector<std::string>* told = nullptr) {
  ColumnarRows rows(file, columns, [&](const std::string& line) {
    if (told != nullptr) told->push_back(line);
  });
  std::vector<Json> out;
  for (Record record; rows.next(record);) {
    CHECK(record.origin.text() == file + "[" + std::to_string(out.size()) + "]");
    parse(record);
    out.push_back(record.value);
  }
  return out;
}

std::vector<Json> lines_of(const std::string& file) {
  std::vector<Json> out;
  const auto rows = open_json_rows(file);
  for (Record record; rows->next(record);) {
    parse(record);
    out.push_back(record.value);
  }
  return out;
}

}  // namespace

TEST_CASE("Parquet: every type, compression and page format as pyarrow reads it") {
  need_arrow();
  const std::vector<Json> expected = lines_of(golden("typed.jsonl"));
  REQUIRE(expected.size() == 9);
  for (const char* name : {"none", "snappy", "zstd", "gzip", "lz4"}) {
    INFO(name);
    CHECK(rows_of(golden(std::string("typed-") + name + ".parquet")) == expected);
  }
}

TEST_CASE("Arrow: streams and files, with the types that Parquet has not") {
  need_arrow();
  const std::vector<Json> expected = lines_of(golden("arrow.jsonl"));
  REQUIRE(expected.size() == 9);
  for (const char* name : {"stream-none.arrow", "stream-zstd.arrow", "file.arrow"}) {
    INFO(name);
    CHECK(rows_of(golden(name)) == expected);
  }
}

TEST_CASE("columns: those that are named, in the order of the file; rows are passed over by the group") {
  need_arrow();
  const std::string file = golden("typed-zstd.parquet");
  const std::vector<Json> two = rows_of(file, {"small", "score"});
  REQUIRE(two.size() == 9);
  CHECK(two[1].dump() == R"({"score":0.3333333333333333,"small":-3})");
  CHECK(lacks(raised_by([&] {
                (void)rows_of(file, {"small", "nothere"});
              }),
              {"data.40: ", file, "column nothere", "messages, score"}) == "");
  for (const std::size_t skipped : {0U, 1U, 3U, 4U, 5U, 8U, 9U, 20U}) {
    for (const char* name : {"typed-zstd.parquet", "stream-none.arrow", "file.arrow"}) {
      ColumnarRows rows(golden(name), {"small"});
      CHECK(rows.skip(skipped) == std::min<std::size_t>(skipped, 9));
      Record record;
      REQUIRE(rows.next(record) == (skipped < 9));
      if (skipped >= 9) continue;
      CHECK(record.origin.item == static_cast<std::int64_t>(skipped));
      parse(record);
      CHECK(record.value["small"] == static_cast<int>(skipped) - 4);
      CHECK(rows.skip(100) == 8 - skipped);
    }
  }
}

TEST_CASE("bounds of a split count rows without making them") {
  need_arrow();
  DatasetSource source;
  source.data_files = {golden("pairs-0.parquet"), golden("pairs-1.parquet")};
  const std::vector<Json> expected = lines_of(golden("pairs.jsonl"));
  for (const auto& [split, begin, end] : std::vector<std::tuple<std::string, std::size_t, std::size_t>>{
           {"train", 0, 24}, {"train[:50%]", 0, 12}, {"train[4:14]", 4, 14}, {"train[-3:]", 21, 24}}) {
    source.split = split;
    const Table rows = load(source);
    REQUIRE(rows.size() == end - begin);
    for (std::size_t i = 0; i < rows.size(); ++i) CHECK(rows.row(i) == expected[begin + i]);
  }
}

TEST_CASE("JSON columns are what their texts hold") {
  need_arrow();
  CHECK(rows_of(golden("json.parquet")) == std::vector<Json>{Json::parse(R"({"j":{"a":[1,2.5]}})"),
                                                             Json::parse(R"({"j":null})"),
                                                             Json::parse(R"({"j":"x"})")});
  const std::string bad = golden("json-bad.parquet");
  CHECK(lacks(raised_by([&] { (void)rows_of(bad); }), {"data.41: ", "no JSON", bad + "[0], column j"}) == "");
}

TEST_CASE("what JSON has no form for is left out or null, and told; images are refused") {
  need_arrow();
  std::vector<std::string> told;
  const std::vector<Json> rows = rows_of(golden("no-form.parquet"), {}, &told);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].dump() == R"({"a":1.0,"file":{"path":"p"},"q":"1 + 1 ="})");
  CHECK(rows[1].dump() == R"({"a":null,"file":null,"q":"2 + 2 ="})");
  REQUIRE(told.size() == 4);
  CHECK(lacks(told[0], {"column b is left out", "binary"}) == "");
  CHECK(lacks(told[1], {"column file.bytes is left out"}) == "");
  CHECK(lacks(told[2], {"column wait is left out", "duration"}) == "");
  CHECK(lacks(told[3], {"column a has numbers that are not finite"}) == "");
  CHECK(lacks(raised_by([] { (void)rows_of(golden("images.parquet")); }), {"data.37: ", "image (binary)"}) == "");
  const std::vector<Json> part =
      rows_of(golden("images.parquet"), {"images"});  // refused by the row: require_no_images
  REQUIRE(part.size() == 1);
  CHECK(part[0].dump() == R"({"images":[{"path":"p"}]})");
}

TEST_CASE("files that cannot be read: each by its number, with its name") {
  need_arrow();
  const ScratchDirectory scratch;
  const auto raised = [](const std::string& file) { return raised_by([&] { (void)rows_of(file); }); };
  const std::string whole = bytes_of(golden("typed-zstd.parquet"));
  REQUIRE(whole.size() > 4000);
  for (const std::size_t size : {whole.size() / 2, whole.size() - 1, std::size_t{5}}) {
    const std::string file = scratch.write("cut.parquet", whole.substr(0, size));
    CHECK(lacks(raised(file), {"data.38: ", "damaged", file}) == "");
  }
  CHECK(lacks(raised(scratch.write("a.parquet", "")), {"data.38: ", "an empty file"}) == "");
  CHECK(lacks(raised(scratch.write("b.parquet", "version https://git-lfs.github.com/spec/v1\n")),
              {"data.38: ", "neither Parquet nor Arrow", "LFS"}) == "");
  std::string flipped = whole;
  flipped[440] = static_cast<char>(flipped[440] ^ 0x10);
  CHECK(lacks(raised(scratch.write("c.parquet", flipped)), {"data.38: ", "CRC"}) == "");
  CHECK(lacks(raised(golden("encrypted.parquet")), {"data.39: ", "encrypted"}) == "");
  CHECK(lacks(raised(golden("encrypted-column.parquet")), {"data.39: ", "encrypted"}) == "");
  CHECK(lacks(raised(golden("utf8-bad.parquet")), {"data.41: ", "no UTF-8", "[1], column t"}) == "");
  CHECK(lacks(raised(golden("long-row.parquet")), {"data.30: ", "[0], column t", "67108864"}) == "");
  CHECK(lacks(raised(scratch.path().string()), {"data.2: ", "a directory"}) == "");
  CHECK(lacks(raised("/nothing/x.parquet"), {"data.2: ", "/nothing/x.parquet"}) == "");
  const std::string stream = bytes_of(golden("stream-none.arrow"));
  CHECK(lacks(raised(scratch.write("d.arrow", stream.substr(0, stream.size() - 8))), {"data.38: ", "no end mark"}) ==
        "");
  CHECK(lacks(raised(scratch.write("e.arrow", stream.substr(0, stream.size() / 2))), {"data.38: ", "damaged"}) == "");
  const std::string file = bytes_of(golden("file.arrow"));
  CHECK(lacks(raised(scratch.write("f.arrow", file.substr(0, file.size() / 2))), {"data.38: ", "damaged"}) == "");
  CHECK(rows_of(golden("no-rows.parquet")).empty());
  CHECK(rows_of(golden("empty-group.parquet")).size() == 2);
}

TEST_CASE("any damage is an error or other rows, and never the end of the program") {
  need_arrow();
  const ScratchDirectory scratch;
  for (const char* name : {"typed-snappy.parquet", "stream-none.arrow", "file.arrow"}) {
    const std::string whole = bytes_of(golden(name));
    std::uint64_t state = 1;
    for (int i = 0; i < 60; ++i) {
      std::string bytes = whole;
      for (int k = 0; k < 3; ++k) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        bytes[(state >> 33U) % bytes.size()] = static_cast<char>(state >> 25U);
      }
      const std::string raised = raised_by([&] { (void)rows_of(scratch.write("damaged", bytes)); });
      if (raised != "nothing") CHECK(raised.starts_with("data."));
    }
  }
}

TEST_CASE("without a plug-in, or Arrow, the error names the remedy") {
  const ScratchDirectory scratch;
  // A process that has loaded one already keeps it; what loading says is asked of the loader.
  const ScopedVariable none("RLALGO_ARROW_PLUGIN", scratch.path().string() + "/none.so");
  const detail::LoadedColumnarPlugin absent = detail::load_columnar_plugin();
  CHECK(absent.plugin == nullptr);
  CHECK(lacks(absent.found, {"none.so"}) == "");
  CHECK(lacks(absent.remedy, {"scripts/setup.sh"}) == "");
  const ScopedVariable other("RLALGO_ARROW_PLUGIN", "libz.so.1");
  CHECK(lacks(detail::load_columnar_plugin().found, {"libz.so.1 is no such plug-in"}) == "");
  CHECK(detail::missing_arrow("libarrow.so.2600: cannot open shared object file: No such file or directory") == "26");
  CHECK(detail::missing_arrow("libparquet.so.2600: cannot open") == "26");
  CHECK(detail::missing_arrow("libz.so.1: cannot open") == "");
}
