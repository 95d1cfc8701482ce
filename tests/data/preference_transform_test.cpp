#include <support/catch.hpp>

#include <rlalgo/data/preference_transform.hpp>

using namespace rlalgo::data;

TEST_CASE("a type without a dot is .default; no type leaves rows alone") {
  const Json source = {{"prompt", "Q"}, {"chosen", "a"}, {"rejected", "b"}};
  for (const Json& type : {Json(), Json(""), Json("passthrough"), Json("passthrough.default")}) {
    Json row = source;
    make_preference_transform(type, PreferenceFamily::pairs, {}, {})(row, "r");
    CHECK(row == source);
  }
  Json row = source;
  make_preference_transform("chatml", PreferenceFamily::pairs, {}, {})(row, "r");
  CHECK(row["chosen"] == "a<|im_end|>");
}

TEST_CASE("orpo takes the formats of pairs too, kto does not") {
  CHECK_NOTHROW(make_preference_transform("chatml.intel", PreferenceFamily::odds, {}, {}));
  CHECK_NOTHROW(make_preference_transform("chat_template.default", PreferenceFamily::odds, {}, {}));
  CHECK_THROWS_WITH(make_preference_transform("chat_template.default", PreferenceFamily::unpaired, {}, {}),
                    Catch::StartsWith("[rlalgo.data.9]"));
}

TEST_CASE("an unknown type is data.9, with the nearest name and the place") {
  CHECK_THROWS_WITH(
      make_preference_transform("chatml.intl", PreferenceFamily::pairs, {}, {}, "datasets[0].type at c.yaml:3"),
      Catch::StartsWith("[rlalgo.data.9]") && Catch::Contains("chatml.intel") && Catch::Contains("c.yaml:3"));
  for (const auto family : {PreferenceFamily::pairs, PreferenceFamily::unpaired}) {
    const auto render = [](const Json&, bool) { return std::string(); };
    for (const std::string& name : preference_format_names(family))
      CHECK_NOTHROW(make_preference_transform(name, family, {}, render));
  }
}
