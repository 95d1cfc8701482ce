// A JSON schema as an expression (pattern.hpp) of texts that fulfil it.
//
// Every keyword is kept, or refused by its name and place; docs/serving.md lists them. What an expression cannot say is said by
// a part of the texts: properties come in the order of the schema, others do not come; numbers have at most 16 digits; a
// schema within itself ends after a few levels; texts of a pattern are without characters that readers of patterns disagree
// about. So every text fulfils the schema, and not every text that does can come. A space may stand behind : and , unless
// `spaces` is off.
//
// Errors (status 400): [rlalgo.serve.24] a schema that cannot be read, asks for what is not supported, stands for too much, or
// that nothing fulfils.
#pragma once

#include <string>

#include <rlalgo/serve/fields.hpp>

namespace rlalgo::serve {

// `alone`: the text is this JSON and nothing else; lists whose items must differ can then be kept by ConstrainedTokens.
[[nodiscard]] std::string schema_pattern(const Json& schema, bool spaces = true, bool alone = true);

// Any JSON object, nested at most three levels deep.
[[nodiscard]] std::string any_object_pattern(bool spaces = true);

}  // namespace rlalgo::serve

#ifndef RLALGO_COMPILED
#include <rlalgo/serve/detail/schema_pattern_impl.hpp>
#endif
