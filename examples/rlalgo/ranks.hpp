// The ranks of a training on one machine: `rlalgo train CONFIG --nproc-per-node N` starts itself N times.
//
// Rank 0 has the terminal; lines of the others come behind "[rank 1] ". Signals go to all. Where one ends badly the others
// are told (distributed.8), and killed when they have not ended within the grace, at once where they are stopped; the exit status is that of the first that
// failed, 128 + the signal of one that was killed. Nobody is left behind when this process is killed. Each rank gets as many
// processors as any other, of its own where there are enough.
//
// With --max-restarts a training whose ranks have failed goes on: all are started anew from the newest checkpoint that they
// wrote, else from the beginning; why is printed. Not where that would end the same: after wrong usage or a signal that asks
// to stop, and after an error before the first step, unless the rank was killed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rlalgo::cli {

// Takes `--nproc-per-node N` (or =N, with underscores; or axolotl's --num-processes) out of `words`; 0: it is not there.
// [rlalgo.cli.23], usage
[[nodiscard]] int take_ranks(std::vector<std::string>& words);

// The same, and out of axolotl's forms: `--launcher NAME` is named in a note, and what stands behind `--` is a launcher's, whose
// number of ranks counts and of whose other words a warning says that they have no effect. [rlalgo.cli.7], usage
[[nodiscard]] int take_launched_ranks(std::vector<std::string>& words);

// The same of `--max-restarts N`, from 0.
[[nodiscard]] int take_restarts(std::vector<std::string>& words);

struct Restarts {
  int most = 0;
  std::filesystem::path output_dir;  // where the checkpoints are
};

// Runs `rlalgo` with `words` on so many ranks; the exit status.
[[nodiscard]] int run_ranks(int ranks, const std::vector<std::string>& words, double grace_seconds,
                            const Restarts& restarts);

}  // namespace rlalgo::cli
