# rlalgo::cuda: the kernels of include/rlalgo/cuda (raw pointers and a stream; no torch), for projects with the CUDA language.
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "RLALGO_CUDA is on but no nvcc was found. Put nvcc on PATH, set CMAKE_CUDA_COMPILER, or turn RLALGO_CUDA off.")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90 CACHE STRING "GPU generations to compile for")
endif()
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no C++20 of nvcc
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)

add_library(rlalgo_cuda INTERFACE)
add_library(rlalgo::cuda ALIAS rlalgo_cuda)
set_target_properties(rlalgo_cuda PROPERTIES EXPORT_NAME cuda)
target_include_directories(rlalgo_cuda INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(rlalgo_cuda INTERFACE CUDA::cudart)
