#include <support/scratch.hpp>

#include <rlalgo/data/delimited_rows.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {

std::vector<std::string> rows(const std::string& text, char separator = ',', bool numbers = true) {
  const ScratchDirectory scratch;
  DelimitedRows reader(scratch.write("rows.csv", text), separator, numbers);
  std::vector<std::string> out;
  for (Record record; reader.next(record);) out.push_back(record.value.dump());
  return out;
}

using Rows = std::vector<std::string>;

}  // namespace

TEST_CASE("cells in quotes, line feeds in cells, empty cells and short records") {
  CHECK(rows("a,b\n\"x, \"\"y\"\"\nz\",w\r\n,v\n\nu\n") ==
        Rows{R"({"a":"x, \"y\"\nz","b":"w"})", R"({"a":null,"b":"v"})", R"({"a":"u","b":null})"});
  CHECK(rows("a\tb\n1,5\tx\"y\"\n", '\t') == Rows{R"({"a":"1,5","b":"x\"y\""})"});
  CHECK(rows("\xef\xbb\xbf"
             "a\n\"\"\"\"\n") == Rows{R"({"a":"\""})"});
  CHECK(rows("").empty());
  CHECK(rows("a,b\n").empty());
}

TEST_CASE("the type of a column is that of all its cells") {
  CHECK(rows("i,f,b,t\n1,1,True,1\n-2,2.5,false,x\n,,,\n") == Rows{R"({"i":1,"f":1.0,"b":true,"t":"1"})",
                                                                   R"({"i":-2,"f":2.5,"b":false,"t":"x"})",
                                                                   R"({"i":null,"f":null,"b":null,"t":null})"});
  CHECK(rows("a,b\ntrue,nan\n1,1e5\n") == Rows{R"({"a":"true","b":"nan"})", R"({"a":"1","b":"1e5"})"});
  // Beyond 64 bits a whole number stays a text, and so does its column.
  CHECK(rows("a,b\n12345678901234567890123,-9223372036854775808\n5,1\n") ==
        Rows{R"({"a":"12345678901234567890123","b":-9223372036854775808})", R"({"a":"5","b":1})"});
  CHECK(rows("answer,label\n4,1\n5,0\n", ',', false) ==
        Rows{R"({"answer":"4","label":1})", R"({"answer":"5","label":0})"});
}

TEST_CASE("files that are not well formed are data.29, with the line") {
  const auto error = [](const std::string& text) { return raised_by([&] { (void)rows(text); }); };
  CHECK(lacks(error("a,b\n1,2\n1,2,3\n"), {"data.29: ", "3 cells under 2 names", "rows.csv:3"}) == "");
  CHECK(lacks(error("a,b\n\"1,2\n"), {"data.29: ", "quote", "rows.csv:2"}) == "");
  CHECK(lacks(error("a,a\n1,2\n"), {"data.29: ", "two columns called a"}) == "");
  CHECK(lacks(error("a,\n1,2\n"), {"data.29: ", "without a name"}) == "");
}

TEST_CASE("a record without end, and one of very many cells, are data.30 with the line") {
  const auto error = [](const std::string& text) { return raised_by([&] { (void)rows(text); }); };
  CHECK(lacks(error("a,b\n1," + std::string(100000, ',') + "\n"), {"data.30: ", "4096", "rows.csv:2"}) == "");
  CHECK(lacks(error(std::string(100000, ',')), {"data.30: ", "columns", "rows.csv:1"}) == "");
  std::string open = "a,b\n1,2\n1,\"";
  const std::string line(std::size_t{1} << 20U, 'x');
  for (int i = 0; i < 65; ++i) open += line + "\n";
  CHECK(lacks(error(open + "\"\n"), {"data.30: ", "too long", "rows.csv:3", "quote"}) == "");
}
