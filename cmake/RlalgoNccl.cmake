# rlalgo::nccl: header and library of NCCL, from RLALGO_NCCL_ROOT, the system, or the nvidia-nccl wheel beside the torch
# wheel.
set(RLALGO_NCCL_ROOT "" CACHE PATH "Folder with NCCL's include/ and lib/")
if(TARGET rlalgo::libtorch)
  cmake_path(GET RLALGO_TORCH_INCLUDE PARENT_PATH _rlalgo_torch)
  set(_rlalgo_nccl ${_rlalgo_torch}/../nvidia/nccl)
endif()
find_path(RLALGO_NCCL_INCLUDE nccl.h HINTS ${RLALGO_NCCL_ROOT}/include ${_rlalgo_nccl}/include)
find_library(RLALGO_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${RLALGO_NCCL_ROOT}/lib ${_rlalgo_nccl}/lib)
mark_as_advanced(RLALGO_NCCL_INCLUDE RLALGO_NCCL_LIBRARY)
if(NOT RLALGO_NCCL_INCLUDE OR NOT RLALGO_NCCL_LIBRARY)
  message(FATAL_ERROR "RLALGO_NCCL is on but nccl.h or libnccl was not found. Set RLALGO_NCCL_ROOT, or turn RLALGO_NCCL off.")
endif()
find_package(CUDAToolkit REQUIRED)  # nccl.h includes cuda_runtime.h
add_library(rlalgo_nccl INTERFACE)
add_library(rlalgo::nccl ALIAS rlalgo_nccl)
target_include_directories(rlalgo_nccl SYSTEM INTERFACE ${RLALGO_NCCL_INCLUDE})
target_link_libraries(rlalgo_nccl INTERFACE ${RLALGO_NCCL_LIBRARY} CUDA::cudart)
