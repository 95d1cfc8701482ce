#include <cstddef>
#include <type_traits>

#include <support/catch.hpp>

#include <rlalgo/data/columnar_plugin.hpp>

using namespace rlalgo::data;

// What crosses between a program and a plug-in of another compiler is C, and keeps its place.
static_assert(std::is_standard_layout_v<ColumnarProblem> && std::is_trivially_copyable_v<ColumnarProblem>);
static_assert(std::is_standard_layout_v<ColumnarRequest> && std::is_trivially_copyable_v<ColumnarRequest>);
static_assert(std::is_standard_layout_v<ColumnarPlugin> && std::is_trivially_copyable_v<ColumnarPlugin>);

TEST_CASE("the interface of version 1") {
  CHECK(columnar_plugin_version == 1);  // a member added, removed or moved is another version
  CHECK(offsetof(ColumnarPlugin, open) == 16);
  CHECK(sizeof(ColumnarPlugin) == 16 + 5 * sizeof(void*));
  CHECK(offsetof(ColumnarProblem, text) == 16 + 256);
  CHECK(sizeof(ColumnarProblem) == 16 + 256 + 1024);
  CHECK(sizeof(ColumnarRequest) == 32);
  CHECK(columnar_unsupported == 8);
}
