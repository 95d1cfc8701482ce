#include <data/golden_formats.hpp>

#include <rlalgo/data/user_format.hpp>

using namespace rlalgo::data;

TEST_CASE("user-defined formats: golden rows") {
  CHECK(golden_formats::check("{", "dpo") == 6);
  CHECK(golden_formats::check("{", "kto") == 4);
}

TEST_CASE("unknown keys and values that are no text are data.12") {
  CHECK_THROWS_WITH(user_format({{"field_choosen", "a"}}, PreferenceFamily::pairs, "w"),
                    Catch::StartsWith("[rlalgo.data.12]") && Catch::Contains("field_chosen"));
  CHECK_THROWS_WITH(user_format({{"field_label", "a"}}, PreferenceFamily::pairs, "w"),
                    Catch::StartsWith("[rlalgo.data.12]"));
  CHECK_THROWS_WITH(user_format({{"prompt_format", 3}}, PreferenceFamily::pairs, "w"),
                    Catch::StartsWith("[rlalgo.data.12]"));
}
