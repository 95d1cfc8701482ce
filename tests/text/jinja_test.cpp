#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/jinja.hpp>

namespace {

using namespace rlalgo;
using text::JinjaOptions;
using text::JinjaTemplate;
using text::Json;

std::string render(const std::string& source, const Json& variables = Json::object(),
                   const JinjaOptions& options = {}) {
  return JinjaTemplate(source).render(variables, options);
}

// The error text of parsing or rendering.
std::string error_of(const std::string& source, const Json& variables = Json::object(),
                     const JinjaOptions& options = {}) {
  try {
    return "no error, but: " + render(source, variables, options);
  } catch (const rlalgo::core::Error& error) {
    return error.what();
  }
}

bool has(const std::string& where, const std::string& what) { return where.find(what) != std::string::npos; }

std::string repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

// recorded from Jinja2 3.1 by scripts/fixtures/text_jinja.py
TEST_CASE("renders as Jinja2 does") {
  std::ifstream file(std::filesystem::path(rlalgo::support::test_dir) / "golden/text/jinja.json");
  const Json fixture = Json::parse(file);
  std::size_t rendered = 0, failed = 0;
  for (const Json& entry : fixture["cases"]) {
    const auto source = entry["template"].get<std::string>();
    INFO(source);
    if (entry.contains("out")) {
      CHECK(render(source, fixture["variables"]) == entry["out"].get<std::string>());
      ++rendered;
      continue;
    }
    const auto kind = entry["error"].get<std::string>();
    const std::string error = error_of(source, fixture["variables"]);
    CHECK(has(error, kind == "syntax" ? "[rlalgo.text.6]" : kind == "raised" ? "[rlalgo.text.8]" : "[rlalgo.text.7]"));
    if (kind == "raised") CHECK(has(error, entry["message"].get<std::string>()));
    ++failed;
  }
  CHECK(rendered > 500);
  CHECK(failed > 100);
}

TEST_CASE("errors name the line") {
  CHECK(has(error_of("a\nb {% if %}\n"), "line 2"));
  CHECK(has(error_of("a\n\n{{ 1 + }}"), "line 3"));
  CHECK(has(error_of("{% for i in [1] %}\n\nx"), "line 3"));  // where the missing endfor was noticed
  CHECK(has(error_of("a\n{{ missing.role }}\n"), "'missing' is undefined, at chat template, line 2"));
  CHECK(has(error_of("{% macro f() %}\n{{ 1 / 0 }}\n{% endmacro %}\n\n{{ f() }}"), "line 2"));
  const std::string raised = error_of("{# c\n#}\n{{ raise_exception('Roles must alternate') }}");
  CHECK(has(raised, "[rlalgo.text.8]"));
  CHECK(has(raised, "Roles must alternate"));
  CHECK(has(raised, "line 3"));
  try {
    static_cast<void>(JinjaTemplate("{{", "my.jinja"));
    FAIL("no error");
  } catch (const rlalgo::core::Error& error) {
    CHECK(has(error.what(), "my.jinja, line 1"));
  }
}

TEST_CASE("undefined values: lenient, until they are used as something") {
  CHECK(render("[{{ x }}]{{ x is defined }}{% for i in x %}{% endfor %}{{ x == y }}") == "[]FalseTrue");
  CHECK(has(error_of("{{ 'a' + x }}"), "'x' is undefined"));
  CHECK(has(error_of("{{ x.y }}"), "'x' is undefined"));
  CHECK(has(error_of("{{ m.y.z }}", Json{{"m", Json::object()}}), "'dict object' has no attribute 'y'"));
  CHECK(has(error_of("{{ f() }}"), "'f' is undefined"));
}

TEST_CASE("runaway templates are stopped") {
  const std::string loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
  CHECK(has(error_of(loop), "steps"));
  CHECK(has(error_of("{% for a in range(9999) %}x{% endfor %}", Json::object(), {.step_limit = 1000}), "1000 steps"));
  CHECK(has(error_of("{{ 'x' * 1000000000000 }}"), "[rlalgo.text.7]"));
  CHECK(has(error_of("{{ [0] * 1000000000 }}"), "[rlalgo.text.7]"));
  CHECK(has(error_of("{% set s = 'xxxxxxxx' %}" + repeat("{% set s = s + s %}", 60)), "steps"));
  CHECK(has(error_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), "recursion"));
  CHECK(has(error_of("{{ " + std::string(100'000, '(')), "[rlalgo.text.6]"));
  CHECK(has(error_of("{{ " + repeat("not ", 100'000) + "x }}"), "[rlalgo.text.6]"));
  CHECK(has(error_of("{{ 1" + repeat(" + 1", 100'000) + " }}"), "[rlalgo.text.6]"));
  CHECK(has(error_of(repeat("{% if x %}", 100'000)), "[rlalgo.text.6]"));
  CHECK(render("{{ 1" + repeat(" + 1", 300) + " }}") == "301");
  CHECK(render("{{ " + std::string(150, '(') + "1" + std::string(150, ')') + " }}") == "1");
}

TEST_CASE("every operation costs its length") {
  CHECK(render("{{ ('a'*100000 ~ 'b') in ('a'*500000) }}") == "False");
  CHECK(render("{{ ('a'*500000).rfind('b' ~ 'a'*100000) }}") == "-1");
  CHECK(render("{{ ('xyxy' * 10).rfind('yxyxyxyxyxyxyxyxyxyxy') }}") == "19");
  const std::string often = "{% for i in range(9999) %}{% for j in range(9999) %}", end = "{% endfor %}{% endfor %}";
  const std::string text = "{% set s = 'a' * 500000 %}{% set t = s ~ 'b' %}",
                    list = "{% set s = [1] * 50000 %}{% set d = dict(a=1) %}";
  for (const std::string& each :
       {text + often + "{% if t in s %}{% endif %}", text + often + "{% if s < t %}{% endif %}",
        text + often + "{% if s ~ 'a' == t %}{% endif %}", text + often + "{{ s.rfind(t) }}",
        text + often + "{% set x = s|urlencode %}", text + often + "{% set x = ('%s' * 100) % ((s,) * 100) %}",
        text + often + "{% set x = ('{0}' * 100).format(s) %}",
        text + often + "{% set x = ['1']|map('replace', s, s)|list %}",
        text + often + "{% set x = 'x' is eq(s) %}{% set x = s is upper %}", list + often + "{% set x = s|max %}",
        list + often + "{% set x = s|sum %}", list + often + "{% set x = s == s %}",
        list + often + "{% set x = joiner(*s) %}", list + often + "{% set x = s < s %}",
        list + often + "{% set x = s|batch(7) %}",
        std::string("{% set s = '1' * 500000 %}") + often + "{% set x = [s]|map('float')|list %}",
        often + "{% set x = strftime_now('%c' * 2000) %}", often + "{% macro m() %}{% endmacro %}"}) {
    INFO(each);
    CHECK(has(error_of(each + end, Json::object(), {.step_limit = 2'000'000}), "2000000 steps"));
  }
  std::string names;
  for (int i = 0; i < 2000; ++i) names += "{% set a" + std::to_string(1000 + i) + " = 1 %}";
  CHECK(has(error_of(names + often + "{{ b9999 }}" + end, Json::object(), {.step_limit = 2'000'000}), "steps"));
}

TEST_CASE("a template is parsed in time that grows with it") {
  for (const std::string piece :
       {"{#", "{{", "{% raw %}", "{{ '", "{{ (", "{% if a %}", "{%- set a = 1 %}\n  ", "{{ a|b"}) {
    std::string source;
    while (source.size() < 300'000) source += piece;
    CHECK(has(error_of(source), "[rlalgo.text.6]") == (piece.find("set") == std::string::npos));
  }
}

TEST_CASE("macros may outlive the loop they were defined in") {
  CHECK(render("{% set ns = namespace(f=none) %}{% for i in [1, 2] %}{% macro f(x) %}{{ x }}{{ i }}{% endmacro %}"
               "{% set ns.f = f %}{% endfor %}{{ ns.f('a') }}") == "a2");
  CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{{ ns.me.me is defined }}") == "True");  // a cycle
}

TEST_CASE("strftime_now formats local time") {
  const std::time_t noon = 1'721'995'200;  // 2024-07-26 12:00:00 UTC
  CHECK(render("{{ strftime_now('%Y-%m') }}", Json::object(), {.now = noon}) == "2024-07");
  CHECK(render("{{ strftime_now('') }}", Json::object(), {.now = noon}).empty());
  CHECK(render("{{ strftime_now('%Y') | int > 2020 }}") == "True");  // the clock
}

TEST_CASE("variables keep their JSON types and order") {
  const Json variables = Json::parse(R"({"d": {"z": 1, "a": [1.0, 2, null, true, "x"], "big": 9007199254740993}})");
  CHECK(render("{{ d | tojson }}", variables) ==
        R"({"z": 1, "a": [1.0, 2, null, true, "x"], "big": 9007199254740993})");
  CHECK(render("{{ d }}", variables) == "{'z': 1, 'a': [1.0, 2, None, True, 'x'], 'big': 9007199254740993}");
  CHECK(render("{{ s | length }}", Json{{"s", "a\xFF"}}) == "2");  // ill-formed UTF-8 becomes U+FFFD
}

TEST_CASE("many threads render one template") {
  const JinjaTemplate chat("{% for m in messages %}{{ m.role ~ ':' ~ m.content | upper }};{% endfor %}");
  const Json variables =
      Json::parse(R"({"messages": [{"role": "user", "content": "hé"}, {"role": "assistant", "content": "ok"}]})");
  std::vector<std::string> out(4);
  std::vector<std::thread> threads;
  for (std::string& text : out) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) text = chat.render(variables);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : out) CHECK(text == "user:HÉ;assistant:OK;");
}
