#include <sys/stat.h>

#include <string_view>

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

TEST_CASE("a line without its colon is named, wherever the parser stumbles over it") {
  const auto names = [](const char* text, const char* place, const char* remedy) {
    return lacks(error_of(text), {"config.2: ", place, "a line without a colon", remedy});
  };
  CHECK(names("base_model: x\nrl grpo\n", "c.yaml:2:1", "write rl: grpo") == "");
  CHECK(names("base_model: x\n\nrl grpo", "c.yaml:3:1", "write rl: grpo") == "");
  CHECK(names("a: x\nrl grpo\nmax_steps 3\nb: 1\n", "c.yaml:2:1", "write rl: grpo") == "");
  CHECK(names("a: x\nrl grpo\n# three\nb: 1\n", "c.yaml:2:1", "write rl: grpo") == "");
  CHECK(names("a: x\nrl\nb: 1\n", "c.yaml:2:1", "a key ends in a colon") == "");
  CHECK(names("trl:\n  beta: 0\n  num_generations 8\nseed: 1\n", "c.yaml:3:1", "write num_generations: 8") == "");
  CHECK(names("trl:\n  num_generations 8\n  beta: 0\n", "c.yaml:2:1", "write num_generations: 8") == "");
  CHECK(names("d:\n  - path: x\n    type y\n", "c.yaml:3:1", "write type: y") == "");
  CHECK(names("a: x\r\nrl grpo\r\n", "c.yaml:2:1", "write rl: grpo") == "");
  // Values of several lines, as YAML has them.
  for (const char* text : {"a: x\n  rl grpo\nb: 1\n", "a:\n  x\n  rl grpo\n", "a: \"x\n  y z\"\n", "a: [1,\n2 3]\n",
                           "a: {b: c\nd e}\n", "a: |\n  x\n  y z\nb: 1\n", "a: 'x\ny z'\n", "- \n"})
    CHECK(error_of(text).find("without a colon") == std::string::npos);
  CHECK(lacks(error_of("a: b: c\n"), {"config.2: ", "c.yaml:1:5"}) == "");
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

TEST_CASE("what is no regular file, and what is too large for one, is refused at once") {
  const ScratchDirectory scratch;
  const std::string fifo = (scratch.path() / "fifo.yaml").string();
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  const auto error = [](const std::filesystem::path& path) { return raised_by([&] { (void)load_document(path); }); };
  CHECK(lacks(error(fifo), {"config.1: ", "a named pipe", "fifo.yaml"}) == "");
  CHECK(lacks(error("/dev/zero"), {"config.1: ", "a device"}) == "");
  CHECK(lacks(error(scratch.path()), {"config.1: ", "a named pipe"}) == "");  // the only .yaml in it
  CHECK(lacks(error(scratch.write("large.yaml", "a: " + std::string(2000000, 'x'))),
              {"config.1: ", "more than 1048576 bytes"}) == "");
}

TEST_CASE("aliases and merge keys count as what they stand for") {
  std::string lists = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n", merges = "m0: &m0 {k: 1}\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = std::to_string(i - 1), now = std::to_string(i);
    lists += "a" + now + ": &a" + now + " [";
    merges += "m" + now + ": &m" + now + "\n";
    for (int k = 0; k < 10; ++k) {
      lists += (k > 0 ? ", *a" : "*a") + before;
      merges += "  k" + std::to_string(k) + ": {<<: *m" + before + "}\n";
    }
    lists += "]\n";
  }
  CHECK(lacks(error_of(lists), {"config.28: ", "more than 100000 values", "c.yaml:", "anchors"}) == "");
  CHECK(lacks(error_of(merges), {"config.28: ", "more than 100000 values"}) == "");
  std::string texts = "a: &a " + std::string(100000, 'x') + "\nb: [";
  for (int i = 0; i < 1000; ++i) texts += "*a,";
  CHECK(lacks(error_of(texts + "]\n"), {"config.28: ", "16777216 bytes"}) == "");
  std::string keys = "a: {";
  for (int i = 0; i < 20000; ++i) keys += "k" + std::to_string(i) + ": 1, ";
  CHECK(lacks(error_of(keys + "}\n"), {"config.28: ", "10000 keys"}) == "");
  CHECK(lacks(raised_by([&] { (void)parse_value("[&a [1, 2], *a]", {.option = "--x"}); }), {"nothing"}) == "");
}

TEST_CASE("deep nesting is refused, by the parser or by us") {
  for (const char* open : {"[", "{a: ", "- ", "? "}) {
    std::string text = "x:\n  ";
    for (int i = 0; i < 100000; ++i) text += open;
    CHECK(lacks(error_of(text), {"config.2: ", "c.yaml"}) == "");
  }
  CHECK(lacks(error_of("x: " + std::string(70, '[') + std::string(70, ']')), {"config.2: ", "64 deep"}) == "");
}

TEST_CASE("what stands behind the end of the document is an error with its place, at once") {
  CHECK(lacks(error_of("{\"base_model\": \"./model\", \"rl\": \"grpo\"},\n"),
              {"config.2: ", "c.yaml:1:40", "behind the end", ": ,", "comma"}) == "");
  CHECK(lacks(error_of("{\"a\": 1, \"trl\": {\"beta\": 0.1}},\n \"rate\": 1e-6}\n"), {"config.2: ", "c.yaml:1:31"}) ==
        "");
  CHECK(lacks(error_of("\"\"9\n? "), {"config.2: ", "c.yaml:1:3", "9"}) == "");
  CHECK(lacks(error_of("{a: 1}}\n"), {"config.2: ", "c.yaml:1:7"}) == "");
  CHECK(lacks(error_of("a: [1, 2]]\n"), {"config.2: ", "c.yaml:1:10"}) == "");
  CHECK(lacks(error_of("a: 1\n...\nb: 2\n"), {"config.2: ", "c.yaml:3:1", "b: 2"}) == "");
  CHECK(error_of("a: 1\n...\n# the end\n") == "nothing");
  CHECK(error_of("--- # begins\na: 1\n") == "nothing");
  const auto value = [](const std::string& text) {
    return raised_by([&] { (void)parse_value(text, {.option = "--x"}); });
  };
  CHECK(lacks(value("[1, 2]]"), {"config.2: ", "command line --x", "closes nothing"}) == "");
  CHECK(lacks(value("{a: 1},"), {"config.2: ", "command line --x"}) == "");
  CHECK(lacks(value("{a: 1"), {"config.2: ", "command line --x", "{ that is not closed"}) == "");
}

TEST_CASE("every edit of one character gives a document or a numbered error") {
  const std::string json =
      "{\"base_model\": \"./m\", \"rl\": \"dpo\", \"datasets\": [{\"path\": \"r.jsonl\"}],\n"
      " \"trl\": {\"reward_funcs\": [\"a.b\"], \"beta\": 0.1},\n \"learning_rate\": 1e-6}\n";
  const std::string yaml =
      "base_model: &m ./m\nrl: grpo\ndatasets:\n  - path: r.jsonl\n    type: a.b\n# a comment\ntrl:\n"
      "  reward_funcs: [a.f, \"a.g\"]\n  <<: {beta: 0.1}\n  text: |\n    one\n    two\n\"learning_rate\": 1e-6\n"
      "output_dir: 'out'\nagain: *m\n";
  constexpr std::string_view letters(",{}[]:?-#&*!|>'\"%@ \n\t\\a\0\xff", 25);
  std::size_t edits = 0, refused = 0;
  std::string odd;
  const auto look = [&](const std::string& text, const char* file) {
    const std::string error = raised_by([&] { (void)parse_document(text, file); });
    ++edits;
    if (error == "nothing") return;
    ++refused;
    if (!error.starts_with("config.2: ") && !error.starts_with("config.3: ") && odd.empty()) odd = error + "\n" + text;
  };
  for (const auto& [text, file] : {std::pair(json, "c.json"), std::pair(yaml, "c.yaml")}) {
    look(text, file);
    for (std::size_t at = 0; at <= text.size(); ++at) {
      if (at < text.size()) look(text.substr(0, at) + text.substr(at + 1), file);
      look(text.substr(0, at), file);
      for (const char letter : letters) {
        look(text.substr(0, at) + letter + text.substr(at), file);
        if (at < text.size()) look(text.substr(0, at) + letter + text.substr(at + 1), file);
      }
    }
  }
  CHECK(odd == "");
  CHECK(edits > 15000);
  CHECK(refused > edits / 10);
  CHECK(refused < edits);
}

TEST_CASE("reading costs what the text has: quotes, equal keys and merges") {
  std::string quoted = "a: [";
  for (int i = 0; i < 90000; ++i) quoted += "\"x\",";
  CHECK(error_of(quoted + "]\n") == "nothing");
  std::string twice = "a:\n";
  for (int round = 0; round < 5; ++round)
    for (int i = 0; i < 9000; ++i) twice += "  k" + std::to_string(i) + ": 1\n";
  const Document document = parse_document(twice, "c.yaml");
  CHECK(document.root.find("a")->members.size() == 9000);
  CHECK(document.warnings.size() == 36000);
  CHECK(lacks(error_of("a: " + std::string(2000000, 'x')), {"config.28: ", "bytes"}) == "");
}
