// Branches that hang off anchors of one document: each sees the document up to its anchor, and itself.
//
//   branch b attends to document[0, start_b) and to its own tokens; token t of it has position start_b + t
//
// The document is one segment of the token tree, every branch a child of it. Branches in turn with the same start read
// the document in one product (attention_plan.hpp). Several documents may be laid into one tree, each a root.
// Errors: [rlalgo.model.34] a branch that starts at 0 or beyond the document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/model/token_tree.hpp>

namespace rlalgo::model {

struct Branch {
  std::int64_t start = 0;  // tokens of the document that it sees, at least 1
  std::span<const std::int32_t> ids;
};

// Where append_document() laid the tokens, as indices into TokenTree::ids.
struct AnchoredDocument {
  std::int64_t begin = 0;              // of the document's first token
  std::vector<std::int64_t> branches;  // of each branch's first token
};

// Appends document and branches to `tree`; targets are the caller's.
[[nodiscard]] inline AnchoredDocument append_document(TokenTree& tree, std::span<const std::int32_t> document,
                                                      std::span<const Branch> branches) {
  const auto lay = [&](std::span<const std::int32_t> ids, std::int32_t parent, std::int64_t prefix) {
    const std::int64_t begin = tree.tokens();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      tree.ids.push_back(ids[t]);
      tree.positions.push_back(prefix + static_cast<std::int64_t>(t));
    }
    tree.segments.push_back({begin, tree.tokens(), parent, prefix});
    return begin;
  };
  const auto root = static_cast<std::int32_t>(tree.segments.size());
  AnchoredDocument out;
  out.begin = lay(document, -1, 0);
  for (const Branch& branch : branches) {
    if (branch.start < 1 || branch.start > static_cast<std::int64_t>(document.size()))
      core::raise("model", 34,
                  {.what = "a branch starts where the document has no token before it",
                   .found = std::to_string(branch.start),
                   .expected = "1 to " + std::to_string(document.size()) + ", the tokens of the document"});
    out.branches.push_back(lay(branch.ids, root, branch.start));
  }
  return out;
}

}  // namespace rlalgo::model
