// A JSON schema as an expression (pattern.hpp) of texts that fulfil it.
//
// Supported: type (also a list of types), properties with required, items with minItems and maxItems, enum, const,
// anyOf and oneOf (as anyOf), $ref to $defs or definitions, pattern, minLength and maxLength of texts. Properties come
// in the order of the schema, others do not come. Numbers have at most 16 digits before and after the point. A space
// may stand behind : and , unless `spaces` is off. What would narrow texts further is refused by name, not left out.
//
// Errors (status 400): [rlalgo.serve.24] a schema that cannot be read, or asks for what is not supported.
#pragma once

#include <string>

#include <rlalgo/serve/fields.hpp>

namespace rlalgo::serve {

[[nodiscard]] std::string schema_pattern(const Json& schema, bool spaces = true);

// Any JSON object, nested at most three levels deep.
[[nodiscard]] std::string any_object_pattern(bool spaces = true);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/schema_pattern_impl.hpp>
#endif
