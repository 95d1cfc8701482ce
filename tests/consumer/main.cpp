#include <rlalgo/core/philox.hpp>

int main() { return rlalgo::core::uniform({7}, 1, 2) < 1.0 ? 0 : 1; }
