"""Breaks each rule of scripts/check_architecture.py once, in a small tree of its own, and expects that rule to fail."""

import pathlib
import subprocess
import sys
import tempfile

CHECK = pathlib.Path(__file__).resolve().parents[2] / "scripts/check_architecture.py"

LIST = "// Rows. Errors: [rlalgo.data.1] a row is bad.\n"
LIST2 = "// Rows. Errors: [rlalgo.data.1–2] a row is bad.\n"
LIST7 = "// Rows. Errors: [rlalgo.data.1] a row is bad; [.7] very bad.\n"

CLEAN = {
    "include/rlalgo/core/error.hpp": "#pragma once\n",
    "include/rlalgo/data/rows.hpp": LIST + '#pragma once\n#include <rlalgo/core/error.hpp>\ninline void f() { core::raise("data", 1, {}); }\n',
    "include/rlalgo/loss/concept.hpp": "#pragma once\n#include <ATen/ops/sum_ops.h>\n#include <rlalgo/data/rows.hpp>\n",
    "include/rlalgo/grpo.hpp": "#pragma once\n#include <rlalgo/loss/concept.hpp>\n",
    "include/rlalgo/cuda/row_sum.cuh": "#include <cuda_runtime.h>\n",
    "tests/core/error_test.cpp": "",
    "tests/cuda/row_sum_test.cpp": "",
    "tests/data/rows_test.cpp": 'int g() { return 1; }\nTEST_CASE("a") {\n  struct S { bool operator()() const { return true; } };\n  CHECK(run([&] { if (g()) return; }));\n}\n',
    "tests/cli/b_test.py": "@case\ndef b(c):\n    def inner():\n        return 1\n    assert inner() == 1\n",
    "tests/loss/concept_test.cpp": "",
    "tests/doors/grpo_test.cpp": "",
    "README.md": "# One\n## Of `a/b`: 2\n[a](docs/errors.md) [b](#of-ab-2) [c](https://no.where/#x) `[d](e.md)`\n```\n[f](g.md)\n```\n",
    "docs/errors.md": "# Errors\n## data\n- **data.1** A row is bad: `core/error.hpp`, `tests/core/error_test.cpp`, trl/scripts/of_others.py, llama.cpp, `[name].hpp`.\n",
}

# rule → (what is broken, files that break it)
BROKEN = [
    ("floors", "a same-floor room", {"include/rlalgo/loss/concept.hpp": "#include <rlalgo/model/x.hpp>\n", "include/rlalgo/model/x.hpp": "", "tests/model/x_test.cpp": ""}),
    ("floors", "a higher room", {"include/rlalgo/data/rows.hpp": LIST + '#include <rlalgo/loss/concept.hpp>\ninline void f() { core::raise("data", 1, {}); }\n', "include/rlalgo/loss/concept.hpp": ""}),
    ("floors", "a quoted include", {"include/rlalgo/data/rows.hpp": LIST + '#include "other.hpp"\ninline void f() { core::raise("data", 1, {}); }\n'}),
    ("floors", "a room without floor", {"include/rlalgo/attic/x.hpp": "", "tests/attic/x_test.cpp": ""}),
    ("floors", "a door over config", {"include/rlalgo/grpo.hpp": "#include <rlalgo/config/read.hpp>\n"}),
    ("floors", "a room under the doors", {"include/rlalgo/data/rows.hpp": LIST + '#include <rlalgo/grpo.hpp>\ninline void f() { core::raise("data", 1, {}); }\n', "include/rlalgo/loss/concept.hpp": ""}),
    ("detail", "another room's detail", {"include/rlalgo/loss/concept.hpp": "#include <rlalgo/data/detail/x.hpp>\n"}),
    ("detail", "detail from an example", {"examples/rlalgo/main.cpp": "#include <rlalgo/data/detail/x.hpp>\n"}),
    ("torch_door", "torch/torch.h", {"include/rlalgo/loss/concept.hpp": "#include <torch/torch.h>\n"}),
    ("torch_door", "torch/nn", {"include/rlalgo/loss/concept.hpp": "#include <torch/nn/module.h>\n"}),
    ("aten_lists", "a list of tensors in an interface", {"include/rlalgo/loss/concept.hpp": "#pragma once\n#include <ATen/core/List.h>\n#include <rlalgo/data/rows.hpp>\n"}),
    ("aten_ops", "an operator's header with its free function", {"include/rlalgo/loss/concept.hpp": "#pragma once\n#include <ATen/ops/sum.h>\n#include <rlalgo/data/rows.hpp>\n"}),
    ("host_floors", "ATen in data", {"include/rlalgo/data/rows.hpp": LIST + '#include <ATen/core/Tensor.h>\ninline void f() { raise("data", 1, {}); }\n'}),
    ("cuda_wing", "torch in a kernel", {"include/rlalgo/cuda/row_sum.cuh": "#include <c10/cuda/CUDAStream.h>\n"}),
    ("cuda_wing", "torch in the table of kernels", {"include/rlalgo/cuda/kernels.hpp": "#include <ATen/core/Tensor.h>\n", "tests/cuda/kernels_test.cpp": ""}),
    ("cpu_wing", "torch in a kernel of the CPU", {"include/rlalgo/cpu/kernels.hpp": "#include <c10/util/BFloat16.h>\n", "tests/cpu/kernels_test.cpp": ""}),
    ("cpu_wing", "a room in a kernel of the CPU", {"include/rlalgo/cpu/kernels.hpp": "#include <rlalgo/data/rows.hpp>\n", "tests/cpu/kernels_test.cpp": ""}),
    ("cuda_wing", "a room in a kernel", {"include/rlalgo/cuda/row_sum.cuh": "#include <rlalgo/data/rows.hpp>\n"}),
    ("yaml", "yaml-cpp in data", {"include/rlalgo/loss/concept.hpp": "#include <yaml-cpp/yaml.h>\n"}),
    ("core", "JSON in core", {"include/rlalgo/core/error.hpp": "#include <nlohmann/json.hpp>\n"}),
    ("core", "a library's plain header in core", {"include/rlalgo/core/error.hpp": "#include <httplib/httplib.h>\n"}),
    ("boost", "Boost outside http/detail", {"include/rlalgo/data/rows.hpp": LIST + '#include <boost/asio.hpp>\ninline void f() { raise("data", 1, {}); }\n'}),
    ("ranges", "range-v3 in an interface", {"include/rlalgo/core/error.hpp": "#pragma once\n", "include/rlalgo/data/rows.hpp": LIST + '#include <range/v3/view/zip.hpp>\ninline void f() { core::raise("data", 1, {}); }\n'}),
    ("length", "a long door", {"include/rlalgo/grpo.hpp": "\n" * 121}),
    ("length", "a long header", {"include/rlalgo/core/error.hpp": "\n" * 501}),
    ("length", "a long lesson", {"examples/01_bandit/main.cpp": "\n" * 81}),
    ("mirror_tests", "no test", {"tests/data/rows_test.cpp": None}),
    ("mirror_tests", "no test of a kernel", {"tests/cuda/row_sum_test.cpp": None}),
    ("mirror_tests", "no door test", {"tests/doors/grpo_test.cpp": None}),
    ("names", "utils", {"examples/utils.py": ""}),
    ("unfinished", "a to-do", {"include/rlalgo/core/error.hpp": "// TO" + "DO\n"}),
    ("errors", "undocumented", {"include/rlalgo/data/rows.hpp": LIST2 + 'inline void f() { core::raise("data", 1, {}); raise_usage("data",\n 2, {}); }\n'}),
    ("errors", "undocumented through a wrapper", {"include/rlalgo/data/rows.hpp": LIST7 + 'inline void f() { core::raise("data", 1, {}); }\nvoid bad(const char* a, int number) { raise("data", number, {a}); }\nvoid g() { bad("a, (b", 7); }\n'}),
    ("errors", "undocumented, kept to be raised with others", {"include/rlalgo/data/rows.hpp": LIST.replace("a row is bad", "a row is bad; [rlalgo.config.7] kept") + 'inline void f() { core::raise("data", 1, {}); }\nvoid g() { reader.refuse(7, {.what = "x"}); }\n'}),
    ("errors", "unreadable number", {"include/rlalgo/data/rows.hpp": LIST + 'inline void f() { core::raise("data", 1, {}); core::raise("data", kNumber + 1, {}); }\n'}),
    ("errors", "documented, never raised", {"docs/errors.md": "## data\n- **data.1** A.\n- **data.2** B.\n"}),
    ("error_lists", "raised, not listed", {"include/rlalgo/data/rows.hpp": 'inline void f() { core::raise("data", 1, {}); }\n'}),
    ("error_lists", "listed, not raised", {"include/rlalgo/data/rows.hpp": LIST7 + 'inline void f() { core::raise("data", 1, {}); }\n'}),
    ("error_lists", "listed by one that does not include it", {"include/rlalgo/core/error.hpp": LIST}),
    ("error_lists", "a list in detail/ that lacks one", {"include/rlalgo/data/detail/x.hpp": "// [rlalgo.data.1]\n" + 'void f() { raise("data", 2, {}); raise("data", 1, {}); }\n',
                                                         "docs/errors.md": "## data\n- **data.1** A.\n- **data.2** B.\n"}),
    ("snippets", "code that is not compiled", {"docs/extending.md": "```cpp\nint x = 1;\nint y;\n```\n", "tests/docs/extending_test.cpp": "int x = 1;\n"}),
    ("snippets", "code of the README that is not compiled", {"README.md": "```cpp\nint x = 1;\n```\n", "tests/docs/a_test.cpp": "int y = 1;\n", "tests/docs/b_test.cpp": "int x = 2;\n"}),
    ("links", "a file that is not there", {"README.md": "See [there](docs/none).\n"}),
    ("links", "a heading that is not there", {"README.md": "See [there](docs/errors.md#datum).\n"}),
    ("links", "a heading of the page itself", {"README.md": "# One\nSee [there](#two).\n"}),
    ("compiled", "definitions that nothing compiles", {"include/rlalgo/data/detail/rows_impl.hpp": "", "include/rlalgo/data/rows.hpp":
        LIST + 'inline void f() { raise("data", 1, {}); }\n#ifndef RLALGO_COMPILED\n#include <rlalgo/data/detail/rows_impl.hpp>\n#endif\n'}),
    ("compiled", "definitions without their header", {"include/rlalgo/data/detail/rows_impl.hpp": "",
        "cmake/compiled/host/data.cpp": "#include <rlalgo/data/detail/rows_impl.hpp>\n"}),
    ("compiled", "a virtual function that every file would emit", {"include/rlalgo/data/detail/rows_impl.hpp": "",
        "cmake/compiled/host/data.cpp": "#include <rlalgo/data/detail/rows_impl.hpp>\n", "include/rlalgo/data/rows.hpp":
        LIST + 'inline void f() { raise("data", 1, {}); }\nstruct S {\n  virtual int g() const;\n};\n#ifndef RLALGO_COMPILED\n#include <rlalgo/data/detail/rows_impl.hpp>\n#endif\n'}),
    ("order", "two headers that include one another", {"include/rlalgo/data/rows.hpp": LIST + '#include <rlalgo/data/detail/more.hpp>\ninline void f() { raise("data", 1, {}); }\n',
        "include/rlalgo/data/detail/more.hpp": "#include <rlalgo/data/rows.hpp>\n"}),
    ("order", "definitions that need one who is being read", {
        "include/rlalgo/data/detail/more.hpp": "#include <rlalgo/data/rows.hpp>\nstruct M {};\n",
        "include/rlalgo/data/detail/rows_impl.hpp": "#include <rlalgo/data/detail/more.hpp>\n#include <rlalgo/data/rows.hpp>\n", "cmake/compiled/host/data.cpp":
        "#include <rlalgo/data/detail/rows_impl.hpp>\n", "include/rlalgo/data/rows.hpp":
        LIST + 'inline void f() { raise("data", 1, {}); }\n#ifndef RLALGO_COMPILED\n#include <rlalgo/data/detail/rows_impl.hpp>\n#endif\n'}),
    ("embedded", "a program without its header", {"python/x.py": "x = 1\n"}),
    ("errors", "under the wrong heading", {"docs/errors.md": "## core\n- **data.1** A.\n"}),
    ("early_returns", "a silent return", {"tests/data/rows_test.cpp": 'TEST_CASE("a",\n          "[b]") {\n  if (!there()) return;\n  CHECK(true);\n}\n'}),
    ("early_returns", "a return in a loop of a lambda's neighbour", {"tests/data/rows_test.cpp": 'TEST_CASE("a") {\n  const auto f = [&](int x) -> int { return x; };\n  for (int i = 0; i < f(3); ++i) {\n    if (i == 1) { return; }\n  }\n}\n'}),
    ("early_returns", "a warning", {"tests/data/rows_test.cpp": 'void f() { WARN("no GPU: not tested"); }\n'}),
    ("early_returns", "a silent return in Python", {"tests/cli/a_test.py": "@case\ndef a(c):\n    if not there():\n        return\n    assert c\n"}),
    ("named_files", "a header that does not exist, in a comment", {"include/rlalgo/core/error.hpp": "// As core/wrong.hpp says.\n"}),
    ("named_files", "a script that does not exist, in a document", {"docs/errors.md": "# Errors\n## data\n- **data.1** A row is bad: `scripts/none.py`.\n"}),
    ("words", "a private word", {"include/rlalgo/core/error.hpp": "// Weights in " + "slices.\n"}),
    ("words", "a private word of an explanation", {"include/rlalgo/core/error.hpp": "// Who is " + "told so.\n"}),
]


def outcome(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            if text is not None:
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        return subprocess.run([sys.executable, str(CHECK), folder], capture_output=True, text=True, timeout=60)


def report(name, good, detail):
    print(f"ok {name}" if good else f"FAIL {name}: {detail}")
    return good


def main():
    clean = outcome(CLEAN)
    good = report("clean_tree", clean.returncode == 0 and "FAIL" not in clean.stdout, clean.stdout + clean.stderr)
    for rule, what, files in BROKEN:
        done = outcome(CLEAN | files)
        failed = [line.split()[1].rstrip(":") for line in done.stdout.splitlines() if line.startswith("FAIL ")]
        good &= report(f"{rule}: {what}", done.returncode == 1 and failed == [rule], f"failed rules: {failed}\n{done.stderr}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
