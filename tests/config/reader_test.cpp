#include <support/scratch.hpp>

#include <rlalgo/config/document.hpp>
#include <rlalgo/config/overrides.hpp>
#include <rlalgo/config/reader.hpp>

using namespace rlalgo::config;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {
// The value of key `k` as T, or what reading it raises.
template <class T>
T read(const std::string& yaml, T value = {}) {
  const Document document = parse_document(yaml, "c.yaml");
  Findings findings;
  findings.refusals = Refusals("c.yaml");
  Reader(document.root, "s.", findings).read("k", value);
  findings.refusals.raise();
  return value;
}
template <class T>
std::string error_of(const std::string& yaml) {
  return raised_by([&] { (void)read<T>(yaml); });
}
}  // namespace

TEST_CASE("numbers may be texts, whole floats are integers") {
  CHECK(read<double>("k: \"1e-5\"\n") == 1e-5);
  CHECK(read<double>("k: 3\n") == 3.0);
  CHECK(read<std::int64_t>("k: 8.0\n") == 8);
  CHECK(read<std::int64_t>("k: '8'\n") == 8);
  CHECK(read<std::int64_t>("k: 1e3\n") == 1000);
  CHECK(read<bool>("k: 'yes'\n"));
  CHECK(read<bool>("k: 1\n"));
  CHECK_FALSE(read<bool>("k: No\n", true));
  CHECK(read<std::vector<double>>("k: [1, '2.5']\n") == std::vector<double>{1.0, 2.5});
  CHECK(*read<std::optional<std::string>>("k: x\n") == "x");
}

TEST_CASE("null and absence leave the default") {
  CHECK(read<std::int64_t>("k:\n", 7) == 7);
  CHECK(read<std::int64_t>("other: 1\n", 7) == 7);
  CHECK_FALSE(read<std::optional<double>>("k: ~\n").has_value());
}

TEST_CASE("the wrong type names key, line, found and expected") {
  CHECK(lacks(error_of<std::int64_t>("a: 1\nk: eight\n"),
              {"config.5: ", "s.k", "c.yaml:2", "the text \"eight\"", "an integer"}) == "");
  CHECK(lacks(error_of<std::int64_t>("k: 1.5\n"), {"config.5: ", "the number 1.5"}) == "");
  CHECK(lacks(error_of<std::int64_t>("k: true\n"), {"config.5: ", "the boolean true"}) == "");
  CHECK(lacks(error_of<double>("k: .nan\n"), {"config.5: ", "found .nan (not a number)", "expected a number"}) == "");
  CHECK(lacks(error_of<std::int64_t>("k: .nan\n"), {"config.5: ", "found .nan (not a number)"}) == "");
  CHECK(lacks(error_of<std::int64_t>("k: 99999999999999999999999\n"),
              {"config.6: ", "99999999999999999999999", "64 bits"}) == "");
  CHECK(lacks(error_of<std::int64_t>("k: 1e400\n"), {"config.6: ", "1e400", "64 bits"}) == "");
  CHECK(lacks(error_of<double>("k: 1e308\n"), {"config.6: ", "1e308", "float32", "c.yaml:1"}) == "");
  CHECK(lacks(error_of<double>("k: -1e39\n"), {"config.6: ", "float32"}) == "");
  CHECK(error_of<double>("k: 3.4e38\n") == "nothing");
  CHECK(error_of<double>("k: .inf\n") == "nothing");
  CHECK(lacks(error_of<double>("k: [1]\n"), {"config.5: ", "a list of 1"}) == "");
  CHECK(lacks(error_of<bool>("k: maybe\n"), {"config.5: ", "true or false"}) == "");
  CHECK(lacks(error_of<std::string>("k: 42\n"), {"config.5: ", "in quotes"}) == "");
  CHECK(lacks(error_of<std::string>("k: {a: 1}\n"), {"config.5: ", "a mapping"}) == "");
  CHECK(lacks(error_of<std::vector<std::string>>("k: a.b\n"), {"config.5: ", "a list"}) == "");
  CHECK(lacks(error_of<std::vector<std::string>>("k: [a, [b]]\n"), {"config.5: ", "s.k[1]"}) == "");
}

TEST_CASE("on the command line every scalar is a text and one item is a list") {
  Document document = parse_document("a: 1\n", "c.yaml");
  apply_overrides(document, std::vector<std::string>{"--k", "42", "--l", "a.b"});
  Findings findings;
  Reader reader(document.root, "", findings);
  std::string text;
  std::vector<std::string> list;
  reader.read("k", text);
  reader.read("l", list);
  CHECK(text == "42");
  CHECK(list == std::vector<std::string>{"a.b"});
  CHECK(findings.given.at("k").text() == "command line --k");
}

TEST_CASE("words out of a list") {
  const auto choose = [](const std::string& yaml) {
    const Document document = parse_document(yaml, "c.yaml");
    Findings findings;
    std::string out = "default";
    Reader(document.root, "", findings).read_choice("k", out, {"no", "steps", "epoch"});
    findings.refusals.raise();
    return out;
  };
  CHECK(choose("k: steps\n") == "steps");
  CHECK(choose("k: no\n") == "no");  // YAML's false
  CHECK(choose("k:\n") == "default");
  CHECK(lacks(raised_by([&] { choose("k: step\n"); }),
              {"config.6: ", "c.yaml:1", "no, steps, epoch", "did you mean steps?"}) == "");
  CHECK(lacks(raised_by([&] { choose("k: [a]\n"); }), {"config.5: "}) == "");
}

TEST_CASE("a value that is refused leaves the default, and is not trusted") {
  const Document document = parse_document("a: x\nb: 2\nc: stepp\nd: {e: 1}\n", "c.yaml");
  Findings findings;
  findings.refusals = Refusals("c.yaml");
  Reader reader(document.root, "s.", findings);
  std::int64_t a = 7, b = 7;
  std::string c = "default";
  std::vector<std::string> d = {"one"};
  CHECK_FALSE(reader.read("a", a));
  CHECK(reader.read("b", b));
  CHECK_FALSE(reader.read_choice("c", c, {"steps"}));
  CHECK_FALSE(reader.read("d", d));
  CHECK(a == 7);
  CHECK(b == 2);
  CHECK(c == "default");
  CHECK(d == std::vector<std::string>{"one"});
  CHECK(findings.refusals.distrusts("s.a"));
  CHECK_FALSE(findings.refusals.distrusts("s.b"));
  CHECK(lacks(raised_by([&] { findings.refusals.raise(); }), {"3 problems", "s.a", "s.c", "s.d"}) == "");
}

TEST_CASE("keys that nobody took are refused with the nearest match, each of them") {
  const Document document = parse_document("beta: 1\nlearnin_rate: 2\n", "c.yaml");
  const auto refused = [&](const std::vector<std::string>& known, const std::vector<std::string>& elsewhere = {}) {
    Findings findings;
    findings.refusals = Refusals("c.yaml");
    Reader reader(document.root, "trl.", findings);
    for (const std::string& key : known) reader.recognise(key);
    const bool all = reader.finish(elsewhere);
    CHECK(all == findings.refusals.empty());
    return raised_by([&] { findings.refusals.raise(); });
  };
  CHECK(lacks(refused({"beta", "epsilon"}, {"learning_rate"}), {"config.4: ", "trl.learnin_rate", "c.yaml:2"}) == "");
  CHECK(lacks(refused({"beta", "learning_rate"}), {"config.4: ", "did you mean trl.learning_rate?"}) == "");
  CHECK(lacks(refused({"epsilon"}), {"2 problems", "unknown key trl.beta", "unknown key trl.learnin_rate"}) == "");
  CHECK(refused({"beta", "learnin_rate"}) == "nothing");
}

TEST_CASE("what was refused of a key that is written otherwise is given up") {
  const Document document = parse_document("learnin_rate: 2\n", "c.yaml");
  Findings findings;
  findings.refusals = Refusals("c.yaml");
  Reader reader(document.root, "", findings);
  reader.recognise("learning_rate");
  reader.refuse(7, {.what = "learning_rate is missing"});
  reader.finish();
  CHECK(lacks(raised_by([&] { findings.refusals.raise(); }), {"config.4: ", "learnin_rate"}) == "");
}

TEST_CASE("a key that belongs to another section is told so") {
  const Document document = parse_document("num_generations: 4\n", "c.yaml");
  Findings findings;
  const Reader reader(document.root, "", findings);
  reader.finish({"trl.num_generations"});
  CHECK(lacks(raised_by([&] { findings.refusals.raise(); }), {"config.4: ", "written trl.num_generations"}) == "");
}

TEST_CASE("a section must be a mapping") {
  const Document document = parse_document("trl: [a]\n", "c.yaml");
  Findings findings;
  Reader reader(*document.root.find("trl"), "trl.", findings);
  CHECK(reader.finish());
  CHECK(findings.refusals.distrusts("trl."));
  CHECK(lacks(raised_by([&] { findings.refusals.raise(); }), {"config.5: ", "value of trl has", "c.yaml:1"}) == "");
}

TEST_CASE("fields of the object that is read are recorded with their value, set or not") {
  struct Fields {
    double rate = 0.5;
    std::optional<std::int64_t> steps;
    std::vector<std::string> names = {"a"};
    std::string word = "x";
  } fields;
  const Document document = parse_document("rate: 0.25\nword: y\nelsewhere: 3\n", "c.yaml");
  Findings findings;
  findings.fields = std::as_bytes(std::span(&fields, 1));
  Reader reader(document.root, "s.", findings);
  double local = 0;
  reader.read("rate", fields.rate);
  reader.read("steps", fields.steps);
  reader.read("names", fields.names);
  reader.read_choice("word", fields.word, {"x", "y"});
  reader.read("elsewhere", local);
  REQUIRE(findings.values.size() == 4);
  CHECK(findings.values.at("s.rate")() == 0.25);
  CHECK(findings.values.at("s.steps")().is_null());
  CHECK(findings.values.at("s.names")() == rlalgo::data::Json({"a"}));
  fields.word = "z";  // what becomes of a field later counts
  CHECK(findings.values.at("s.word")() == "z");
}
