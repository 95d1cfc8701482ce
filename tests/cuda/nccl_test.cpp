// NCCL's header and library fit together: the library is the one that the header describes, or a later 2.x.
#include <nccl.h>

#include <cstdio>

int main() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess || version < NCCL_VERSION_CODE || version / 10000 != NCCL_MAJOR) {
    std::printf("FAIL nccl: library %d, header %d\n", version, NCCL_VERSION_CODE);
    return 1;
  }
  std::printf("ok nccl %d\n", version);
  return 0;
}
