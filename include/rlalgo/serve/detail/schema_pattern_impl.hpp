// Definitions of schema_pattern.hpp.
#pragma once

#include <cstddef>
#include <string>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/detail/schema_merge.hpp>
#include <rlalgo/serve/detail/schema_reader.hpp>
#include <rlalgo/serve/schema_pattern.hpp>

namespace rlalgo::serve {

RLALGO_INLINE std::string schema_pattern(const Json& schema, bool spaces, bool alone) {
  // A schema within itself is made as deep as is small enough.
  constexpr std::size_t enough = 20'000;
  for (const int levels : {6, 4, 3, 2, 1}) {
    detail::SchemaReader reader(schema, spaces, levels);
    const bool last = levels == 1;
    try {
      const auto out = reader.of(schema, "");
      if (reader.recursive() && !last && (!out || out->size() > enough)) continue;
      if (out && reader.unique().empty()) return reader.compiled(*out);
      if (out && !alone)
        detail::refuse_schema("uniqueItems of texts or numbers among the arguments of a call", "",
                              "give items an enum, or leave it out");
      if (out) return reader.compiled(*out) + detail::lists_mark + Json(reader.unique()).dump();
      break;
    } catch (const detail::SchemaTooLarge& large) {
      if (last || !reader.recursive())
        detail::refuse_schema("a schema whose references stand for too much", large.at, "make it smaller");
    }
  }
  detail::refuse_schema("a schema that no text fulfils", "");
}

RLALGO_INLINE std::string any_object_pattern(bool spaces) {
  const Json none;
  return detail::SchemaReader(none, spaces, 1).any_object(3);
}

}  // namespace rlalgo::serve
