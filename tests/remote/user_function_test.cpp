#include <filesystem>
#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <rlalgo/remote/user_function.hpp>

using namespace rlalgo;
using remote::module_file;
using remote::user_has;

TEST_CASE("a module is a file or a package in a directory given, or in PYTHONPATH") {
  const support::ScratchDirectory scratch;
  const auto& here = scratch.path();
  scratch.write("one.py", "");
  scratch.write("two/__init__.py", "");
  scratch.write("two/inner.py", "");
  scratch.write("data/rows.jsonl", "");
  scratch.write("elsewhere/three.py", "");
  CHECK(module_file("one.f", {here}) == here / "one.py");
  CHECK(module_file("two.f", {here}) == here / "two/__init__.py");
  CHECK(module_file("two.inner.f", {here}) == here / "two/inner.py");
  CHECK(module_file("two.other.f", {here}).empty());
  CHECK(module_file("data.f", {here}).empty());
  CHECK(module_file("one", {here}).empty());
  CHECK(module_file(".f", {here}).empty());
  CHECK(module_file("one.f", {}).empty());
  CHECK(module_file("three.f", {here}).empty());
  const support::ScopedVariable variable("PYTHONPATH", "/nowhere::" + (here / "elsewhere").string());
  CHECK(module_file("three.f", {here}) == here / "elsewhere/three.py");
  CHECK(user_has("three.f", {here}) == false);
}

TEST_CASE("a name counts wherever the module has it, however it got there") {
  const support::ScratchDirectory scratch;
  scratch.write("made.py", "def given(x):\n    pass\nclass Kept:\n    pass\n");
  const auto has = [&](const std::string& text, const std::string& name = "given") {
    scratch.write("m.py", text);
    std::filesystem::remove_all(scratch.path() / "__pycache__");  // two files of one size in one second
    return user_has("m." + name, {scratch.path()});
  };
  CHECK(has("def given(x):\n    pass\n"));
  CHECK(has("async def given(x):\n    pass\n"));
  CHECK(has("from made import Kept as given\n"));
  CHECK(has("from made import *\n"));
  CHECK(has("given = lambda x: x\n"));
  CHECK(has("globals()['gi' + 'ven'] = 3\n"));
  CHECK(has("def __getattr__(name):\n    return name\n"));
  CHECK_FALSE(has(""));
  CHECK_FALSE(has("# given\n"));
  CHECK_FALSE(has("class Box:\n    def given(self):\n        pass\n"));
  CHECK_FALSE(has("from made import *\n", "absent"));
}

TEST_CASE("what cannot be found out is left to who loads the function") {
  const support::ScratchDirectory scratch;
  scratch.write("m.py", "import no_such_module\ndef given():\n    pass\n");
  CHECK(user_has("m.given", {scratch.path()}));
  CHECK(user_has("m.given", {scratch.path()}, "/no/such/python"));
  CHECK_FALSE(user_has("absent.given", {scratch.path()}, "/no/such/python"));
  CHECK(remote::absent_in("a.b.f", {"/x", "/y"}) == "no file a/b.py in /x, /y has a function of that name");
}
