// The verbs of the command line, one file each. Every verb returns the process exit status and throws core::Error.
#pragma once

#include <string>
#include <vector>

namespace rlalgo::cli {

using Arguments = std::vector<std::string>;  // what follows the verb

int train(const Arguments& arguments);
int preprocess(const Arguments& arguments);
int inference(const Arguments& arguments);
int merge_lora(const Arguments& arguments);
int tokenize(const Arguments& arguments);
int score(const Arguments& arguments);
int generate(const Arguments& arguments);
int report(const Arguments& arguments);
int version(const Arguments& arguments);

}  // namespace rlalgo::cli
