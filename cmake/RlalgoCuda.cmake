# The project's own CUDA kernels (include/rlalgo/cuda), compiled where nvcc is: RLALGO_HAS_CUDA says whether.
#   rlalgo::cuda     the kernels' headers and the CUDA runtime (static), for projects with the CUDA language
#   rlalgo_kernels   the table of kernels (cmake/compiled/cuda/kernels.cu); rlalgo_with_kernels(<program>) links it. A program
#                    with it needs no library of CUDA: where there is no GPU, nothing of it is called.
# Without nvcc programs compute on a GPU with LibTorch's operators alone.
set(RLALGO_HAS_CUDA OFF)
if(RLALGO_CUDA)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(RLALGO_HAS_CUDA ON)
  elseif(NOT RLALGO_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "RLALGO_CUDA is on but no nvcc was found. Put nvcc on PATH, set CMAKE_CUDA_COMPILER, or set RLALGO_CUDA to AUTO or OFF.")
  endif()
endif()

function(rlalgo_with_kernels program)
  if(RLALGO_HAS_CUDA)
    target_sources(${program} PRIVATE $<TARGET_OBJECTS:rlalgo_kernels>)
    target_link_libraries(${program} PRIVATE CUDA::cudart_static)
    set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX)
  endif()
endfunction()

if(NOT RLALGO_HAS_CUDA)
  return()
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual CACHE STRING "GPU generations to compile for")
endif()
if(RLALGO_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows no C++20 of nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
find_package(CUDAToolkit REQUIRED)

add_library(rlalgo_cuda INTERFACE)
add_library(rlalgo::cuda ALIAS rlalgo_cuda)
set_target_properties(rlalgo_cuda PROPERTIES EXPORT_NAME cuda)
target_include_directories(rlalgo_cuda INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_link_libraries(rlalgo_cuda INTERFACE CUDA::cudart_static)

add_library(rlalgo_kernels OBJECT EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/cmake/compiled/cuda/kernels.cu)
target_link_libraries(rlalgo_kernels PRIVATE rlalgo_cuda)
