#include <support/scratch.hpp>

#include <rlalgo/config/document.hpp>

using namespace rlalgo::config;
using rlalgo::support::exit_code_of;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {
std::string error_of(const std::string& text) {
  return raised_by([&] { (void)parse_document(text, "c.yaml"); });
}
}  // namespace

TEST_CASE("every value knows its line and column") {
  const Document document =
      parse_document("base_model: m\ntrl:\n  beta: 0.1  # comment\n  funcs:\n  - a.b\n  - 'c.d'\n", "c.yaml");
  const Node* trl = document.root.find("trl");
  REQUIRE(trl != nullptr);
  CHECK(document.root.members[1].place.line == 2);
  CHECK(trl->find("beta")->place.line == 3);
  CHECK(trl->find("beta")->place.column == 9);
  CHECK(trl->find("funcs")->items[1].place.text() == "c.yaml:6");
  CHECK(trl->find("funcs")->items[1].quoted);
}

TEST_CASE("anchors, merge keys and explicit tags") {
  const Document document = parse_document(
      "a: &base {x: 1, y: 2}\nb:\n  <<: *base\n  x: 3\nc: !!str 5\nd:\n  <<: [*base, {z: 4}]\n", "c.yaml");
  CHECK(to_json(document.root).dump() == R"({"a":{"x":1,"y":2},"b":{"x":3,"y":2},"c":"5","d":{"x":1,"y":2,"z":4}})");
}

TEST_CASE("of a key written twice the last counts, with a warning") {
  const Document document = parse_document("a: 1\nb: 2\na: 3\n", "c.yaml");
  CHECK(document.root.find("a")->integer == 3);
  REQUIRE(document.warnings.size() == 1);
  CHECK(lacks(document.warnings[0], {"a is written twice", "c.yaml:1", "c.yaml:3"}) == "");
}

TEST_CASE("what is not YAML is placed by line and column") {
  CHECK(lacks(error_of("a: 1\n  b: 2\n"), {"config.2: ", "c.yaml:2:4", "indentation"}) == "");
  CHECK(lacks(error_of("trl:\n  beta: 1\n   x: 2\n"), {"config.2: ", "c.yaml:3:"}) == "");
  CHECK(lacks(error_of("trl:\n  beta: 1\n x: 2\n"), {"config.2: ", "c.yaml:3:2"}) == "");
  CHECK(lacks(error_of("a: [1, 2\nb: 3\n"), {"config.2: ", "c.yaml:2:"}) == "");
  CHECK(lacks(error_of("a:\n\tb: 1\n"), {"config.2: ", "c.yaml:2:", "tabs"}) == "");
  CHECK(lacks(error_of("a: b: c\n"), {"config.2: ", "c.yaml:1:5"}) == "");
  CHECK(lacks(error_of("x: *nope\n"), {"config.2: ", "c.yaml:1:4"}) == "");
  CHECK(lacks(error_of("ä: 'it''s'\na: \"x\nb: 2\n"), {"config.2: ", "c.yaml:2:4", "never closed"}) == "");
  CHECK(lacks(error_of("a: 'x\\'\nb: 'y\n"), {"config.2: ", "c.yaml:2:4", "never closed"}) == "");
  CHECK(error_of("a: \"x \\\" y\"\nb: 'it''s'\nc: \"\"\n") == "nothing");
  CHECK(lacks(error_of("a: &x [*x]\n"), {"config.2: ", "inside itself"}) == "");
  CHECK(lacks(error_of("a: !!python/object:os.system x\n"), {"config.2: ", "python/object", "c.yaml:1"}) == "");
  CHECK(lacks(error_of("a: 1\n---\nb: 2\n"), {"config.2: ", "second document"}) == "");
  CHECK(lacks(error_of("? [1, 2]\n: 3\n"), {"config.2: ", "key"}) == "");
  CHECK(lacks(error_of("a:\n  <<: 5\n  b: 1\n"), {"config.2: ", "c.yaml:2:", "<<"}) == "");
  CHECK(exit_code_of([] { (void)parse_document("a: b: c", "c.yaml"); }) == 2);
}

TEST_CASE("a document is one mapping") {
  CHECK(lacks(error_of(""), {"config.3: ", "an empty file"}) == "");
  CHECK(lacks(error_of("- a\n- b\n"), {"config.3: ", "a list of 2"}) == "");
  CHECK(lacks(error_of("word\n"), {"config.3: ", "\"word\""}) == "");
}

TEST_CASE("JSON is read too, tabs and all") {
  const Document document = parse_document("{\n\t\"a\": 1,\n\t\"b\": {\"c\": \"x\\ty\"}\n}\n", "c.json");
  CHECK(to_json(document.root).dump() == R"({"a":1,"b":{"c":"x\ty"}})");
  CHECK(document.root.find("b")->place.line == 3);
}

TEST_CASE("files and directories") {
  const ScratchDirectory scratch;
  const std::string file = scratch.write("run/config.yaml", "a: 1\n");
  CHECK(load_document(file).root.find("a")->integer == 1);
  CHECK(load_document(scratch.path() / "run").file == file);
  CHECK(lacks(raised_by([&] { (void)load_document(scratch.path() / "none.yaml"); }),
              {"config.1: ", "No such file", "none.yaml"}) == "");
  scratch.write("run/second.yml", "a: 2\n");
  CHECK(lacks(raised_by([&] { (void)load_document(scratch.path() / "run"); }),
              {"config.1: ", "2 .yml or .yaml files"}) == "");
}
