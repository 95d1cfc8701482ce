#include <support/scratch.hpp>

#include <rlalgo/config/overrides.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
Document overridden(const std::string& text, const std::vector<std::string>& arguments) {
  Document document = parse_document(text, "c.yaml");
  apply_overrides(document, arguments);
  return document;
}
std::string json(const std::string& text, const std::vector<std::string>& arguments) {
  return to_json(overridden(text, arguments).root).dump();
}
}  // namespace

TEST_CASE("values replace and add keys; dashes are underscores") {
  CHECK(json("a_b: 1\n", {"--a-b", "2"}) == R"({"a_b":2})");
  CHECK(json("a: 1\n", {"--a=x", "--b-c", "1e-5", "--n", "-1"}) == R"({"a":"x","b_c":1e-05,"n":-1})");
  CHECK(json("a: 1\n", {"--a="}) == R"({"a":null})");
}

TEST_CASE("an option without a value is true, with no- false") {
  CHECK(json("a: 1\n", {"--flag", "--no-other-flag", "--last"}) ==
        R"({"a":1,"flag":true,"other_flag":false,"last":true})");
  CHECK(json("a: 1\n", {"--no-trl.use-vllm"}) == R"({"a":1,"trl":{"use_vllm":false}})");
}

TEST_CASE("sections are made, null sections too, and others replaced with a warning") {
  CHECK(json("a: 1\ntrl:\n", {"--trl.beta", "0.1", "--trl.epsilon", "0.2"}) ==
        R"({"a":1,"trl":{"beta":0.1,"epsilon":0.2}})");
  const Document replaced = overridden("trl: 5\n", {"--trl.beta", "0.1"});
  CHECK(to_json(replaced.root).dump() == R"({"trl":{"beta":0.1}})");
  REQUIRE(replaced.warnings.size() == 1);
  CHECK(lacks(replaced.warnings[0], {"trl is the integer 5", "c.yaml:1", "--trl.beta"}) == "");
}

TEST_CASE("list items by index, and whole lists as YAML") {
  CHECK(json("datasets:\n- path: a\n", {"--datasets.0.path", "x", "--datasets.0.split", "train[:5]"}) ==
        R"({"datasets":[{"path":"x","split":"train[:5]"}]})");
  CHECK(json("datasets:\n- path: a\n", {"--datasets.1.path", "b"}) == R"({"datasets":[{"path":"a"},{"path":"b"}]})");
  CHECK(json("a: 1\n", {"--datasets.0.path", "b"}) == R"({"a":1,"datasets":[{"path":"b"}]})");
  CHECK(json("a: 1\n", {"--f", "[x.y, z.w]", "--m={k: 1}"}) == R"({"a":1,"f":["x.y","z.w"],"m":{"k":1}})");
}

TEST_CASE("overridden values say so") {
  const Document document = overridden("a: 1\n", {"--f", "[x]", "--no-g"});
  CHECK(document.root.find("f")->items[0].place.text() == "command line --f");
  CHECK(document.root.find("g")->place.command_line());
}

TEST_CASE("arguments that are no options") {
  const auto error = [](const std::vector<std::string>& arguments) {
    return raised_by([&] { (void)overridden("a: 1\nl: [1]\n", arguments); });
  };
  CHECK(lacks(error({"a=2"}), {"config.12: ", "a=2"}) == "");
  CHECK(lacks(error({"--"}), {"config.12: "}) == "");
  CHECK(lacks(error({"--=5"}), {"config.12: "}) == "");
  CHECK(lacks(error({"--a..b", "5"}), {"config.12: "}) == "");
  CHECK(lacks(error({"--l.3", "5"}), {"config.12: ", "an index from 0 to 1"}) == "");
  CHECK(lacks(error({"--l.x", "5"}), {"config.12: "}) == "");
  CHECK(lacks(error({"--a", "[1, "}), {"config.2: ", "command line --a"}) == "");
  CHECK(lacks(error({"--a", "[&x [*x]]"}), {"config.2: ", "command line --a:1:6"}) == "");
  std::string deep = "--a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  CHECK(lacks(error({deep, "5"}), {"config.12: ", "100001", "64 at most"}) == "");
  for (const char* open : {"[", "{a: "}) {
    std::string nested;
    for (int i = 0; i < 25000; ++i) nested += open;
    CHECK(lacks(error({"--a", nested}), {"config.2: "}) == "");
  }
}
