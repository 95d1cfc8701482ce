// The kernels with which tiles of a product of matrices are multiplied (detail/product_tiles.hpp), one for each type and instruction set:
// avx2::Float32, avx512::Float32, avx512::Bfloat16, amx::Bfloat16. tensor/products.hpp chooses among them.
#pragma once

#include <rlalgo/cpu/detail/amx_products.hpp>
#include <rlalgo/cpu/detail/avx2_products.hpp>
#include <rlalgo/cpu/detail/avx512_bf16_products.hpp>
#include <rlalgo/cpu/detail/avx512_products.hpp>
#include <rlalgo/cpu/detail/product_tiles.hpp>
