#!/usr/bin/env python3
"""Shows that the tests of the CUDA kernels on the host catch mistakes; the last line is `N of N mutants caught`.

    kernel_mutants.py [--quick] [--jobs N] [KERNEL ...]      KERNEL: a header of include/rlalgo/cuda, without .cuh

A mutant is a kernel with one mistake: a barrier that is missing, an index, a mask, a rounding, an order. Its test is compiled
against it under AddressSanitizer and UBSan and run; one that passes is compiled with the detector of races, too
(tests/support/race_detector.hpp). Caught means that one of the two ends with a failure. --quick takes the first mutant of
four kernels. The unchanged kernel must pass both. A text of the table that its header does not have exactly once is an error: change
the table with the kernel.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 300  # of one run of a test: a mutant may not end
FLAGS = ["-std=c++20", "-O1", "-g0", "-w"]
VARIANTS = {"sanitizers": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"], "races": ["-fsanitize=thread"]}

# Header → (what is wrong, text, text of the mutant).
MUTANTS = {
    "elements": [
        ("ties go to the odd one", "(bits >> 16U & 1U)", "(~bits >> 16U & 1U)"),
        ("cut instead of rounded", "bits + 0x7FFFU + (bits >> 16U & 1U)", "bits"),
        ("NaN is rounded to infinity", "if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FC0};", ""),
        ("addresses are not looked at", "&& ((reinterpret_cast<std::uintptr_t>(memory) % 16 == 0) && ...)", ""),
    ],
    "float8": [
        ("ties go to the odd one", "(size >> 20U & 1U)", "(~size >> 20U & 1U)"),
        ("cut instead of rounded", "size + 0x7FFFFU + (size >> 20U & 1U)", "size"),
        ("the largest is NaN", "code = 0x7EU;", "code = 0x7FU;"),
        ("the largest begins where it rounds to infinity", "size >= 0x43E00000U", "size >= 0x43F00000U"),
        ("the smallest are cut", "__fadd_rn(__uint_as_float(size), 16384.0F)", "__fadd_rn(__uint_as_float(size & 0xFFF00000U), 16384.0F)"),
        ("the smallest end too late", "size < 0x3C800000U", "size < 0x3D800000U"),
        ("NaN is the largest", "if (size > 0x7F800000U)", "if (false)"),
        ("NaN is a number", "(x.bits & 0x7FU) == 0x7FU ? NAN : ", ""),
        ("the sign is lost", "sign | code", "code"),
        ("of another bias", "1329227995784915872903807060280344576.0F", "664613997892457936451903530140172288.0F"),
    ],
    "product_8bit": [
        ("no barrier before the warps' sums are added", "  __syncthreads();\n", ""),
        ("columns beyond the last are read", "if (own >= a.columns) continue;", ""),
        ("a column beyond the last is written", "if (row >= a.rows || to >= a.columns) continue;", "if (row >= a.rows) continue;"),
        ("a row beyond the last is written", "if (row >= a.rows || to >= a.columns) continue;", "if (to >= a.columns) continue;"),
        ("rows beyond the last are read", "if (row < a.rows && k < a.inner && sixteens)", "if (k < a.inner && sixteens)"),
        ("inputs beyond the last are read", "if (row < a.rows && k < a.inner && sixteens)", "if (row < a.rows && sixteens)"),
        ("one by one, rows beyond the last are read", "if (row < a.rows && !sixteens)", "if (!sixteens)"),
        ("one by one, inputs beyond the last are read", "if (k + j < a.inner) eight", "eight"),
        ("one by one, pairs exchanged", "<< 16U * (j % 2)", "<< 16U * (1 - j % 2)"),
        ("groups beyond the last are read", "        if (chunk + i < groups)\n", ""),
        ("the scale of the next group", "lane / 4 * 4 + i)", "lane / 4 * 4 + (i + 1) % 4)"),
        ("the scale of the other half", "factor[j / 2]", "factor[1 - j / 2]"),
        ("scales beyond the last group are read", "if (grouped && chunk + t < groups)", "if (grouped)"),
        ("halves of the strip exchanged", "codes[i][half].four[step], w[step][half]", "codes[i][1 - half].four[step], w[step][half]"),
        ("pairs exchanged", "first = bits[0] >> 16U | (bits[1] & 0xFFFF0000U);", "first = bits[1] >> 16U | (bits[0] & 0xFFFF0000U);"),
        ("codes without their sign", "(four ^ 0x80808080U)", "four"),
        ("every warp takes all groups", "chunk = warp % shares * product_8bit_at_once", "chunk = 0"),
        ("groups are left out", "chunk += shares * product_8bit_at_once", "chunk += 2 * shares * product_8bit_at_once"),
        ("a strip misses the sums of a warp", "for (int w = 0; w < shares; ++w) all", "for (int w = 1; w < shares; ++w) all"),
        ("sums of the first strip", "shared.sums[first + w]", "shared.sums[w]"),
        ("rows of e4m3 without their scale", "if constexpr (!grouped) all *= a.scales[to];", ""),
        ("what was there is lost", "a.add ? __fadd_rn(widen(out), all) : all", "all"),
        ("tiles of the first rows", "first_row + 8 * tile + g", "first_row + g"),
        ("addresses are not looked at", "in_sixteens<Bfloat16>(a.inner, a.x)", "a.inner % 8 == 0"),
        ("widths are not looked at", "in_sixteens<Bfloat16>(a.inner, a.x)", "true"),
        ("the order of sums follows the rows", "all += shared.sums[first + w]", "all += shared.sums[first + (a.rows > 8 ? shares - 1 - w : w)]"),
    ],
    "warp": [
        ("no barrier before the warps' sums are read", "  __syncthreads();\n  float sum = 0.0F;", "  float sum = 0.0F;"),
        ("the last warp is left out", "for (int w = 0; w < Warps; ++w) sum", "for (int w = 0; w + 1 < Warps; ++w) sum"),
        ("half of the lanes are left out", "int bits = 16; bits > 0", "int bits = 8; bits > 0"),
        ("the largest of half of the lanes", "bits = 1; bits < 32", "bits = 1; bits < 16"),
    ],
    "philox": [
        ("the stream is not part of the key", "^ stream * 0x9E3779B9U", ""),
        ("nine rounds", "round < 10", "round < 9"),
        ("the upper half of the step is lost", "static_cast<std::uint32_t>(step >> 32U)", "0"),
        ("words in another order", "{{c0, static_cast<std::uint32_t>(p1), c2,", "{{c2, static_cast<std::uint32_t>(p1), c0,"),
        ("uniform by the wrong words", "c.word[0]) << 32U | c.word[1]", "c.word[1]) << 32U | c.word[0]"),
    ],
    "dropout": [
        ("every element by the first word", "words.word[w] < a.threshold", "words.word[0] < a.threshold"),
        ("what is dropped is what should stay", "< a.threshold ? 0.0F", ">= a.threshold ? 0.0F"),
        ("rows are numbered by their places", "a.rows[row] * width", "row * width"),
        ("elements of the row before", "if (i < 0 || i >= width)", "if (i >= width)"),
        ("elements of the next row", "if (i < 0 || i >= width)", "if (i < 0)"),
        ("the last words of a row that begins within a block", "(a.width + 6) / 4", "(a.width + 3) / 4"),
        ("the module is not part of the number", "a.module << 40U | ", ""),
        ("what stays is not scaled", "__fmul_rn(widen(static_cast<const T*>(a.x)[at]), a.keep)", "widen(static_cast<const T*>(a.x)[at])"),
    ],
    "adamw_8bit": [
        ("no barrier before the tables are read", "  __syncthreads();\n", ""),
        ("scales are written while they are read", "  __syncwarp();", ""),
        ("a block beyond the last", "if (block >= a.blocks)", "if (block > a.blocks)"),
        ("a parameter's first block is taken for the one before", "a.first[item + step] <= block", "a.first[item + step] < block"),
        ("scales of the blocks of this launch", "at = of.block + own", "at = block"),
        ("an element beyond the last", "if (begin + place >= of.elements) continue;\n    float g", "if (begin + place > of.elements) continue;\n    float g"),
        ("a code beyond the last", "if (begin + place >= of.elements) continue;\n    m_codes", "if (begin + place > of.elements) continue;\n    m_codes"),
        ("halfway the larger code", "bounds[code + step - 1] < x", "bounds[code + step - 1] <= x"),
        ("the last code is never reached", "step = 128; step > 0", "step = 128; step > 1"),
        ("second moments by the codes of the first", "tables.v_values[v_codes[place]]", "tables.m_values[v_codes[place]]"),
        ("second moments rounded to the codes of the first", "nearest_code(tables.v_bounds", "nearest_code(tables.m_bounds"),
        ("gradients are not divided", "if (a.divisor != nullptr) g = g / *a.divisor;", ""),
        ("what is skipped is done", "if (a.skip != nullptr && *a.skip != 0.0F) return;", ""),
        ("no decay", "__fmul_rn(of.master[begin + place], of.kept)", "of.master[begin + place]"),
        ("corrections of another parameter", "root = a.roots[of.number]", "root = a.roots[0]"),
        ("largest of a lane", "  m_most = warp_max(m_most);\n", ""),
        ("a tiny largest has no inverse", "__float_as_uint(inverse) == 0x7F800000U ? x / largest : __fmul_rn(x, inverse)", "__fmul_rn(x, inverse)"),
        ("all zeros are divided", "  if (largest == 0.0F) return 0.0F;\n", ""),
        ("in one rounding", "__fadd_rn(__fmul_rn(of.master[begin + place], of.kept), __fmul_rn(size, m[k]) / below)", "fmaf(of.master[begin + place], of.kept, __fmul_rn(size, m[k]) / below)"),
        ("the rounding is not written", "if (of.value != nullptr) static_cast<T*>(of.value)[begin + place] = rounded<T>(p);", ""),
    ],
    "rms_norm": [
        ("no barrier between the lines of ∂w", "  sums.of[line][lane] = sum;\n  __syncthreads();", "  sums.of[line][lane] = sum;"),
        ("a row beyond the last is computed", "return row < rows;", "return row <= rows;"),
        ("ε outside of the root", "/ static_cast<float>(a.width) + a.epsilon)", "/ static_cast<float>(a.width)) + a.epsilon"),
        ("Gemma's weight without its one", "a.one_more ? 1.0F + widen(w.at[k]) : widen(w.at[k])", "widen(w.at[k])"),
        ("a norm that is rounded once is rounded twice", "a.one_more || a.once ? normed", "a.one_more ? normed"),
        ("the residual is not kept", "      *reinterpret_cast<Run*>(x + i) = run;\n", ""),
        ("r² instead of r³", "* r * r * r /", "* r * r /"),
        ("the residual branch of the gradient is dropped", "a.add ? change + widen(sum.at[k]) : change", "change"),
        ("chunks of ∂w miss a row", "a.rows * (chunk + 1) / chunks;", "a.rows * (chunk + 1) / chunks - 1;"),
    ],
    "rotate": [
        ("the angle is of another token", "token = head / a.heads", "token = head % a.heads"),
        ("backward turns forward", "a.backward ? -a.sine", "a.backward ? a.sine"),
        ("pairs side by side", "a.interleaved ? 1 : a.half", "1"),
        ("heads close together", "head * a.width +", "head * 2 * a.half +"),
        ("interleaved pairs begin at every element", "a.interleaved ? 2 * i : i", "i"),
        ("a pair beyond the last", "if (pair >= a.tokens", "if (pair > a.tokens"),
        ("sums in one rounding", "__fsub_rn(__fmul_rn(low, cosine), __fmul_rn(high, sine))", "fmaf(low, cosine, -(high * sine))"),
    ],
    "gated": [
        ("the slope of the sigmoid alone", "share * (1.0F + x * (1.0F - share) * along)", "share"),
        ("a run beyond the last", "if (i >= a.count) return;\n  const std::int64_t at = gated_place(a, i);\n  const Run gate", "if (i > a.count) return;\n  const std::int64_t at = gated_place(a, i);\n  const Run gate"),
        ("the cubic term's slope", "1.0F + 3.0F * cubic", "1.0F + cubic"),
        ("rows lie close together", "i / a.width * a.stride + i % a.width", "i"),
        ("gate and up exchanged", "  gate = of_gate;\n  up = of_up;", "  gate = of_up;\n  up = of_gate;"),
        ("not rounded before the product", "widen(rounded<T>(activate(widen(gate.at[k]), a.activation).value))", "0.99F * activate(widen(gate.at[k]), a.activation).value"),
    ],
    "segment_sum": [
        ("every place adds its segment", "(first > 0 && a.segment[first - 1] == segment)", "false"),
        ("what was there is lost", "float sum = widen(out);", "float sum = 0.0F;"),
        ("reads beyond the last place", "place < a.places && ", ""),
        ("rows by place, not by order", "a.x)[a.order[place] *", "a.x)[place *"),
        ("a column beyond the last", "if (column >= a.width ||", "if (column > a.width ||"),
        ("only the first columns", "blockIdx.y) * segment_sum_threads", "0) * segment_sum_threads"),
    ],
    "heads": [
        ("no barrier between the lanes of a head", "  __syncwarp();\n  const int half", "  const int half"),
        ("the angle is of the row, not of its position", "a.cosine[position * half + i]", "a.cosine[row * half + i]"),
        ("keys have the norm of queries", "query ? a.q_weight : a.k_weight", "a.q_weight"),
        ("values are normalised", "  if (!query && !key) {", "  if (false) {"),
        ("a row beyond the last", "if (item >= a.rows * all) return;", "if (item > a.rows * all) return;"),
        ("rows without a position are written", "} else if (position >= 0) {", "} else {"),
        ("values lie where keys do", "key ? a.pages.key_offset : a.pages.value_offset", "a.pages.key_offset"),
        ("the bias of another head", "static_cast<const T*>(a.bias) + head * dim", "static_cast<const T*>(a.bias) + (head + 1) % all * dim"),
        ("what is not rotated is left out", "for (int d = 2 * half + lane; d < dim; d += 32)", "for (int d = dim + lane; d < dim; d += 32)"),
        ("pairs side by side", "a.interleaved ? first + 1 : i + half", "first + 1"),
        ("Gemma's weight without its one", "a.one_more ? 1.0F + widen(weight[d]) : widen(weight[d])", "widen(weight[d])"),
        ("not rounded before the product", "a.one_more || a.once ? normed : widen(rounded<T>(normed))", "normed"),
        ("not rounded before it is float8", "rounded<Stored>(widen(rounded<T>(value)))", "rounded<Stored>(value)"),
        ("pages in float8 are written as the rest", "a.pages.float8 ? eight : same", "same"),
    ],
    "unrolled_heads": [
        ("a row beyond the last", "const bool there = item < rows * heads;", "const bool there = item <= rows * heads;"),
        ("keys in the order of the rows", "!there ? row : a.tokens[row];", "!there ? row : row;"),
        ("queries are gathered like keys", "kind == 0 || a.tokens == nullptr || !there ? row", "a.tokens == nullptr || !there ? row"),
        ("rows lie close together", "token * a.stride[kind] + item % heads * dim", "token * heads * dim + item % heads * dim"),
        ("the angle is of the key, not of its token", "a.cosine + token * a.half + pair", "a.cosine + row * a.half + pair"),
        ("values are rotated", "if (at.rotated && kind != 2) {\n      const float* const cosines = a.cosine + token", "if (at.rotated) {\n      const float* const cosines = a.cosine + token"),
        ("values are normalised", "const T* const weight = kind == 2 ? nullptr : static_cast<const T*>(a.weight[kind]);\n  const float scale", "const T* const weight = static_cast<const T*>(a.weight[kind == 2 ? 1 : kind]);\n  const float scale"),
        ("pairs of what is not rotated overlap", "{half + pair, half + pair + rest, false}", "{half + pair, half + pair + 1, false}"),
        ("pairs side by side", "HeadPairs{pair, pair + half, true}", "HeadPairs{pair, pair + 1, true}"),
        ("the scale of a lane", "lanes_sum(squares, lanes) /", "squares /"),
        ("the scale of a whole warp", "bits = lanes / 2; bits > 0", "bits = 16; bits > 0"),
        ("ε outside of the root", "/ static_cast<float>(a.head_dim) + a.epsilon)", "/ static_cast<float>(a.head_dim)) + a.epsilon"),
        ("Gemma's weight without its one", "a.one_more ? 1.0F + widen(weight) : widen(weight)", "widen(weight)"),
        ("a norm that is rounded once is rounded twice", "a.one_more || a.once ? normed", "a.one_more ? normed"),
        ("not rounded before the rotation", "return widen(rounded<T>(kept * ", "return (0.99F * (kept * "),
        ("sums in one rounding", "__fsub_rn(__fmul_rn(x0, cosine), __fmul_rn(x1, sine))", "fmaf(x0, cosine, -(x1 * sine))"),
        ("runs are read where they do not begin", "whole = whole && a.stride[i] % n == 0 && strides[i] % n == 0 && in_sixteens<T>(n, a.from[i]);", ""),
        ("a rotated part that ends within a run", "a.half % n == 0 && ", ""),
        ("interleaved pairs are read in runs", "bool whole = !a.interleaved && ", "bool whole = "),
        ("a row's first key alone", "last = own || !there ? row + 1 : g.first[row + 1];", "last = own || !there ? row + 1 : first + 1;"),
        ("keys by place, not by order", "(own ? place : g.order[place])", "(place)"),
        ("the gradient is rotated forward", "low[e][k] = __fadd_rn(__fmul_rn(y0, cosine), __fmul_rn(y1, sine));\n          high[e][k] = __fsub_rn(__fmul_rn(y1, cosine), __fmul_rn(y0, sine));", "low[e][k] = __fsub_rn(__fmul_rn(y0, cosine), __fmul_rn(y1, sine));\n          high[e][k] = __fadd_rn(__fmul_rn(y1, cosine), __fmul_rn(y0, sine));"),
        ("the weight is part of its own gradient", "weight_low[e][k] += low[e][k] * widen(x0.at[k]) * scale;", "weight_low[e][k] += low[e][k] * widen(w.at[k]) * widen(x0.at[k]) * scale;"),
        ("r² instead of r³", "* scale * scale * scale /", "* scale * scale /"),
        ("the pull of a lane", "lanes_sum(along, lanes) * scale", "along * scale"),
        ("a head's second half without its pull", "high[e][k] * scale - widen(above.at[k]) * pull", "high[e][k] * scale"),
        ("no barrier before the groups' sums are read", "  __syncthreads();\n  const int column", "  const int column"),
        ("the last group is left out", "for (int i = 0; i < groups; ++i) sum", "for (int i = 0; i + 1 < groups; ++i) sum"),
        ("chunks of keys where those of queries lie", "(static_cast<std::int64_t>(kind) * gridDim.x + blockIdx.x) * dim + column", "(static_cast<std::int64_t>(blockIdx.x)) * dim + column"),
        ("what was there is lost", "out = rounded<T>(widen(out) + sum);", "out = rounded<T>(sum);"),
        ("the last chunk is left out", "chunk < chunks; ++chunk)", "chunk + 1 < chunks; ++chunk)"),
        ("every block sums all heads", "begin += gridDim.x * groups) {", "begin += groups) {"),
    ],
    "dequantise": [
        ("no barrier before the values are read", "    __syncthreads();\n", ""),
        ("an element beyond the last", "if (item >= static_cast<std::uint32_t>(a.rows) * runs) return;", "if (item > static_cast<std::uint32_t>(a.rows) * runs) return;"),
        ("the part begins at the first row", "(a.row + row) * a.width", "row * a.width"),
        ("rows as wide as the part", "(a.row + row) * a.width", "(a.row + row) * a.columns"),
        ("the part begins at the first column", "+ a.column + column;  //", "+ column;  //"),
        ("the lower half of a byte first", "k % 2 == 0 ? byte >> 4U : byte & 0xFU", "k % 2 == 0 ? byte & 0xFU : byte >> 4U"),
        ("the upper half alone", "at % 2 == 0 ? byte >> 4U : byte & 0xFU", "byte >> 4U"),
        ("the scale of the next block", "dequantise_scale(a, at >> block_shift", "dequantise_scale(a, (at + 1) >> block_shift"),
        ("scales of one group", "a.scale_scales[block >> group_shift]", "a.scale_scales[0]"),
        ("no offset", "a.scale_scales[block >> group_shift]), a.scale_offset)", "a.scale_scales[block >> group_shift]), 0.0F)"),
        ("in one rounding", "__fadd_rn(__fmul_rn(a.scale_values[code], a.scale_scales[block >> group_shift]), a.scale_offset)", "fmaf(a.scale_values[code], a.scale_scales[block >> group_shift], a.scale_offset)"),
        ("the scale of the part's row", "(a.scales)[a.row + row]", "(a.scales)[row]"),
        ("divided at the end", "__fmul_rn(static_cast<const float*>(a.scales)[a.row + row], static_cast<float>(1.0 / 127.0))", "static_cast<const float*>(a.scales)[a.row + row] / 127.0F"),
        ("codes of 8 bits without a sign", "Neighbours<std::int8_t, N>", "Neighbours<std::uint8_t, N>"),
        ("a run over two blocks", "(!four || a.block % n == 0) &&", ""),
        ("a run over two rows", "a.columns % n == 0 && a.column", "a.column"),
        ("a run begins anywhere in a row", "a.column % n == 0 && a.width % n", "a.width % n"),
        ("rows begin anywhere", "a.width % n == 0 &&", ""),
        ("addresses are not looked at", " &&\n                       in_sixteens<T>(n, a.codes, a.out)", ""),
    ],
    "page_write": [
        ("values in the place of keys", "to[a.pages.value_offset] =", "to[a.pages.key_offset] ="),
        ("the page of the first row", "a.page[row] *", "a.page[0] *"),
        ("heads by the wrong stride", "head * a.pages.head_stride", "head * a.head_dim"),
        ("an element beyond the last", "if (i >= a.rows * width)", "if (i > a.rows * width)"),
        ("pages in float8 are written as the rest", "a.pages.float8 ? eight : same", "same"),
    ],
    "decode_attention": [
        ("no barrier before the warps' sums are read", "  __syncthreads();\n  // The warps' sums, in their order.", "  // The warps' sums, in their order."),
        ("no barrier between the sums of two warps", "          sum = (w == 0 ? 0.0F : sum) + share[i / 2] * o[j][i];\n        }\n    __syncthreads();", "          sum = (w == 0 ? 0.0F : sum) + share[i / 2] * o[j][i];\n        }"),
        ("no barrier after the queries are read", "  __syncthreads();\n  // Of step s", "  // Of step s"),
        ("one position too many is seen", "position >= seen.first && position < seen.end ?", "position >= seen.first && position <= seen.end ?"),
        ("the window begins a position early", "position >= seen.first && position < seen.end ?", "position + 1 >= seen.first && position < seen.end ?"),
        ("values that are not seen are computed with", "tile + place >= seen.first && tile + place < seen.end && ", ""),
        ("pages of the first row", "a.table + row * a.max_pages", "a.table + 0 * a.max_pages"),
        ("earlier sums are not rescaled", "o[j][2 * r] *= factor, o[j][2 * r + 1] *= factor;", ";"),
        ("halves of values exchanged", "lower_halves(v[0].pair[i], v[1].pair[i])", "lower_halves(v[1].pair[i], v[0].pair[i])"),
        ("queries of other heads are read", "head < heads && d < a.head_dim", "d < a.head_dim"),
        ("elements beyond the head are read", "if (t * own + 8 * i < a.head_dim) eight", "eight"),
        ("chunks are added without their share", "const float share = expf(from[D] - most);", "const float share = 1.0F;"),
        ("the cap is forgotten", "if (a.softcap > 0.0F) score", "if (a.softcap < 0.0F) score"),
        ("the second part of a large group is the first", "part * decode_heads;\n  const int heads", "0 * decode_heads;\n  const int heads"),
        ("no fence before a block says that it has ended", "    __threadfence();\n    shared.last", "    shared.last"),
        ("no fence before the last block reads", "== chunks;\n    __threadfence();", "== chunks;"),
        ("no barrier before a block says that it has ended", "  __syncthreads();\n  if (threadIdx.x == 0) {\n    const auto chunks", "  if (threadIdx.x == 0) {\n    const auto chunks"),
        ("the count stays", "if (shared.last) *count = 0;", ""),
        ("blocks count together", "a.arrived + row * a.heads + first_head", "a.arrived + row * a.heads"),
        ("a row that sees nothing says nothing", "a.arrived != nullptr && seen.end <= 0", "a.arrived != nullptr && seen.end < 0"),
        ("the upper code of two first", "two & 0xFFU)) >> 16U", "two >> 8U & 0xFFU)) >> 16U"),
        ("the second four codes are the first", "codes.at[i / 2] >> 16U * (i % 2)", "codes.at[0] >> 16U * (i % 2)"),
        ("pages in float8 are read as bfloat16", "a.pages.float8 ? decode_attention_chunks<D, Float8> : decode_attention_chunks<D, Bfloat16>", "decode_attention_chunks<D, Bfloat16>"),
        ("a chunk before the window is merged", "first = static_cast<int>(seen.first / decode_chunk)", "first = static_cast<int>(0 * seen.first)"),
    ],
    "log_prob": [
        ("no barrier before the warps' states are read", "  __syncthreads();\n  if (threadIdx.x != 0) return;", "  if (threadIdx.x != 0) return;"),
        ("sums are not moved to the new maximum", "out.powers += one.powers * factor;", "out.powers += one.powers;"),
        ("the moment is not shifted", "(one.moment + shift * one.powers) * factor", "one.moment * factor"),
        ("tiles forget the ones before", "if (!first) all =", "if (first) all ="),
        ("the target of another tile", "target >= 0 && target < a.columns", "target >= 0 && target <= a.columns"),
        ("no weight of −∞", "    if (l == -INFINITY) continue;\n", ""),
        ("the gradient misses the target", "a.targets[row] - a.first_column == j ?", "a.targets[row] == j ?"),
        ("the entropy's gradient has the wrong sign", "grad -= a.grad_entropy", "grad += a.grad_entropy"),
        ("columns by the wrong extent", "blockIdx.y) * log_prob_threads", "blockIdx.y) * 255"),
    ],
    "draw": [
        ("no barrier before the partial sums are added", "shared.sums[block] = sum;\n  }\n  __syncthreads();", "shared.sums[block] = sum;\n  }"),
        ("no barrier before the terms are walked", "  __syncthreads();\n  if (thread == 0) {\n    std::int64_t chosen = -1;\n    double before = shared.before;", "  if (thread == 0) {\n    std::int64_t chosen = -1;\n    double before = shared.before;"),
        ("of equal logits the later", "a.logit == b.logit && a.id < b.id", "a.logit == b.logit && a.id > b.id"),
        ("the block after the one that holds it", "<= target)", "< target + 1.0)"),
        ("rows without their stride", "a.logits + ask.row * a.stride", "a.logits + ask.row * a.vocabulary"),
        ("temperature is forgotten", "float scale = greedy ? 1.0F : ask.scale;", "float scale = 1.0F;"),
        ("terms beyond the vocabulary", "if (thread < count) shared.terms", "if (thread <= count) shared.terms"),
        ("no barrier before the histogram is read", "      if ((bits & mask) == known) atomicAdd(&shared.bins[bits >> shift & 255U], 1U);\n    }\n    __syncthreads();", "      if ((bits & mask) == known) atomicAdd(&shared.bins[bits >> shift & 255U], 1U);\n    }"),
        ("logits of other bytes are counted", "if ((bits & mask) == known) atomicAdd", "atomicAdd"),
        ("negative logits rise the wrong way", "(bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U", "bits | 0x80000000U"),
        ("zeros of two signs are two numbers", "__float_as_uint(__fadd_rn(x, 0.0F))", "__float_as_uint(x)"),
        ("ids beyond the room are written", "if (at < draw_kept) shared.keys", "if (at <= draw_kept) shared.keys"),
        ("no barrier in the sort", "apart > 0; apart /= 2) {\n      __syncthreads();", "apart > 0; apart /= 2) {"),
        ("what is behind the last key is sorted in", "shared.keys[i] = ~std::uint64_t{0};", "shared.keys[i] = 0;"),
        ("the mass of top_p is that of the kept", "double total = all;", "double total = 0.0;"),
        ("min_p drops the last", "while (kept > 1 && shared.weights[kept - 1] < ask.min_p)", "while (kept > 0 && shared.weights[kept - 1] <= ask.min_p + 2.0)"),
        ("a mass that is not reached is taken for all", "kept = ~0U;", "kept = count;"),
        ("kept ids are walked by logit", "shared.keys[i] = exchanged(shared.keys[i]);\n  sort_keys<Threads>(shared, kept);", "shared.keys[i] = exchanged(shared.keys[i]);\n  __syncthreads();"),
        ("the row itself is edited", "logits = copy;", "for (std::int64_t j = thread; j < a.vocabulary; j += Threads) const_cast<float*>(original)[j] = copy[j];\n    __syncthreads();\n    logits = copy;"),
        ("negative logits are divided by the penalty", "l > 0.0F ? l / ask.penalty : __fmul_rn(l, ask.penalty)", "l / ask.penalty"),
        ("forbidden ids stay", "copy[a.ids[ask.first_forbidden + i]] = draw_forbidden;", "(void)draw_forbidden;"),
        ("log-probs are those of the edited row", "if (drawn && ask.of_model != 0) {", "if (drawn && ask.of_model == 7) {"),
        ("the rank counts equal ones", "above += logits[j] > own", "above += logits[j] >= own"),
        ("likely ids of the first ask", "static_cast<std::int64_t>(blockIdx.x) * a.likely_each", "0 * a.likely_each"),
    ],
}
QUICK = ("warp", "segment_sum", "decode_attention", "log_prob")


class Builder:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.compiler = os.environ.get("CXX", "g++")
        self.objects = []
        for name in ("main.cpp", "test_dir.cpp", "race_detector.cpp"):
            made = self.folder / f"{name}.o"
            self.call([*FLAGS, f'-DRLALGO_TEST_DIR="{ROOT / "tests"}"', f"-I{ROOT / 'tests'}", "-c", str(ROOT / "tests/support" / name), "-o", str(made)])
            self.objects.append(str(made))
        # What every test includes first, precompiled: half of the time of a mutant.
        for variant, flags in VARIANTS.items():
            place = self.folder / variant / "support"
            place.mkdir(parents=True)
            (place / "catch.hpp").write_text(f'#pragma once\n#include "{ROOT / "tests/support/catch.hpp"}"\n#include <support/on_host.hpp>\n')
            self.call([*FLAGS, *flags, f"-I{ROOT / 'tests'}", "-x", "c++-header", str(place / "catch.hpp"), "-o", str(place / "catch.hpp.gch")])

    def call(self, words):
        done = subprocess.run([self.compiler, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}\n{done.stderr[:2000]}")

    def fails(self, header, text, number, variant):
        """How the test of `header` ends where the header has this text: '' = it passes."""
        place = self.folder / f"{header}_{number}_{variant}"
        shutil.copytree(ROOT / "include/rlalgo/cuda", place / "rlalgo/cuda")
        (place / f"rlalgo/cuda/{header}.cuh").write_text(text, encoding="utf-8")
        flags = VARIANTS[variant]
        try:
            self.call([*FLAGS, *flags, f"-I{self.folder / variant}", f"-I{place}", f"-I{ROOT / 'include'}", f"-I{ROOT / 'tests'}", "-c",
                       str(ROOT / f"tests/cuda/{header}_test.cpp"), "-o", str(place / "test.o")])
            self.call([*(flags if variant == "sanitizers" else []), str(place / "test.o"), *self.objects, "-o", str(place / "test")])
            done = subprocess.run([str(place / "test")], capture_output=True, text=True, timeout=SECONDS, errors="replace")
        except subprocess.TimeoutExpired:
            return "does not end"
        finally:
            keep = place / "test"
            if keep.exists():
                keep.unlink()
        if done.returncode == 0:
            return ""
        for word in ("AddressSanitizer", "runtime error", "race: "):
            if word in done.stdout + done.stderr:
                return word.strip(": ")
        return "other numbers"

    def verdict(self, header, number, name, text):
        for variant in VARIANTS:
            if why := self.fails(header, text, number, variant):
                return header, name, why
        return header, name, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the first mutant of four kernels; unchanged ones are not run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("kernels", nargs="*")
    options = parser.parse_args()
    if unknown := set(options.kernels) - set(MUTANTS):
        parser.error(f"no such kernel: {', '.join(sorted(unknown))}; there are {', '.join(MUTANTS)}")
    headers = [h for h in MUTANTS if (h in options.kernels if options.kernels else not options.quick or h in QUICK)]
    work = []
    for header in headers:
        text = (ROOT / f"include/rlalgo/cuda/{header}.cuh").read_text(encoding="utf-8")
        for number, (name, before, after) in enumerate(MUTANTS[header][: 1 if options.quick else None]):
            if text.count(before) != 1:
                sys.exit(f"kernel_mutants.py: {header}, {name}: its text stands {text.count(before)} times in the header")
            work.append((header, number + 1, name, text.replace(before, after)))
    broken = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        builder = Builder(folder)
        if not options.quick:
            same = {h: (ROOT / f"include/rlalgo/cuda/{h}.cuh").read_text(encoding="utf-8") for h in headers}
            for header, _, why in pool.map(lambda h: builder.verdict(h, 0, "", same[h]), headers):
                if why:
                    broken += 1
                    print(f"FAIL {header}: the unchanged kernel fails: {why}", flush=True)
        missed = 0
        for header, name, why in pool.map(lambda w: builder.verdict(*w), work):
            missed += not why
            print(f"{'caught' if why else 'FAIL missed'} {header}: {name}{f': {why}' if why else ''}", flush=True)
    print(f"{len(work) - missed} of {len(work)} mutants caught")
    return 1 if missed or broken else 0


if __name__ == "__main__":
    sys.exit(main())
