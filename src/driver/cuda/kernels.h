/*
 * The kernels of the cuda driver's fill, check and delay, as PTX text that any driver since CUDA 9 compiles for its own
 * device.
 *
 *   vmm_fill(address, words, tail, seed): writes the mix of seed and index to each 32-bit word of
 *       the block; the tail, up to 3 bytes after the last whole word, gets the low bytes of the
 *       word at its index.
 *   vmm_check(address, words, tail, seed, count): adds to the 64-bit *count the number of words,
 *       and of bytes of the tail, that differ from what vmm_fill writes.
 *   vmm_delay(ns): one thread that reads the device's clock until ns nanoseconds have passed.
 *
 * vmm_fill and vmm_check accept any one-dimensional grid: each thread starts at its global index and advances by the
 * size of the grid. Threads 0 to 2 also process one byte of the tail each. A thread of vmm_check that finds no
 * difference does not access *count.
 *
 * The mix is seed + low(index) * A + high(index) * B, with its upper bits folded into the lower ones. For one index it
 * differs between any two seeds; for one seed, between any two indexes below 2^32.
 *
 * Owns: nothing. May be included by: work.c. Locks: none.
 */
#ifndef VMM_DRIVER_CUDA_KERNELS_H
#define VMM_DRIVER_CUDA_KERNELS_H

/* clang-format off */

#define CUDA_KERNEL_PARAMETERS                 \
    "    .param .u64 address_,\n"              \
    "    .param .u64 words_,\n"                \
    "    .param .u32 tail_,\n"                 \
    "    .param .u32 seed_"

#define CUDA_KERNEL_REGISTERS                  \
    "    .reg .pred more, has_tail;\n"         \
    "    .reg .u32 tail, seed, low, high, mix, folded, thread, block, threads, blocks;\n" \
    "    .reg .u64 address, words, index, first, step, place, wide;\n"

/* first: the thread's global index; step: the size of the grid. */
#define CUDA_KERNEL_START                      \
    "    ld.param.u64 address, [address_];\n"  \
    "    ld.param.u64 words, [words_];\n"      \
    "    ld.param.u32 tail, [tail_];\n"        \
    "    ld.param.u32 seed, [seed_];\n"        \
    "    cvta.to.global.u64 address, address;\n" \
    "    mov.u32 thread, %tid.x;\n"            \
    "    mov.u32 block, %ctaid.x;\n"           \
    "    mov.u32 threads, %ntid.x;\n"          \
    "    mov.u32 blocks, %nctaid.x;\n"         \
    "    cvt.u64.u32 wide, thread;\n"          \
    "    mad.wide.u32 first, block, threads, wide;\n" \
    "    mul.wide.u32 step, blocks, threads;\n" \
    "    mov.u64 index, first;\n"

/* mix: the word of the pattern at `index`. */
#define CUDA_KERNEL_MIX                        \
    "    cvt.u32.u64 low, index;\n"            \
    "    shr.u64 wide, index, 32;\n"           \
    "    cvt.u32.u64 high, wide;\n"            \
    "    mad.lo.u32 mix, low, 0x85EBCA77, seed;\n" \
    "    mad.lo.u32 mix, high, 0xC2B2AE3D, mix;\n" \
    "    shr.u32 folded, mix, 15;\n"           \
    "    xor.b32 mix, mix, folded;\n"

/* Threads without a byte of the tail jump to `done`; in the others mix starts with that byte. */
#define CUDA_KERNEL_TAIL                       \
    "    cvt.u64.u32 wide, tail;\n"            \
    "    setp.lt.u64 has_tail, first, wide;\n" \
    "    @!has_tail bra done;\n"               \
    "    mov.u64 index, words;\n"              \
    CUDA_KERNEL_MIX                            \
    "    shl.b64 place, words, 2;\n"           \
    "    add.u64 place, place, address;\n"     \
    "    add.u64 place, place, first;\n"       \
    "    cvt.u32.u64 thread, first;\n"         \
    "    shl.b32 thread, thread, 3;\n"         \
    "    shr.u32 mix, mix, thread;\n"

#define CUDA_KERNELS_PTX                       \
    ".version 6.0\n"                           \
    ".target sm_52\n"                          \
    ".address_size 64\n"                       \
    ".visible .entry vmm_fill(\n"              \
    CUDA_KERNEL_PARAMETERS ")\n"               \
    "{\n"                                      \
    CUDA_KERNEL_REGISTERS                      \
    CUDA_KERNEL_START                          \
    "each_word:\n"                             \
    "    setp.lt.u64 more, index, words;\n"    \
    "    @!more bra last;\n"                   \
    CUDA_KERNEL_MIX                            \
    "    shl.b64 place, index, 2;\n"           \
    "    add.u64 place, place, address;\n"     \
    "    st.global.u32 [place], mix;\n"        \
    "    add.u64 index, index, step;\n"        \
    "    bra each_word;\n"                     \
    "last:\n"                                  \
    CUDA_KERNEL_TAIL                           \
    "    st.global.u8 [place], mix;\n"         \
    "done:\n"                                  \
    "    ret;\n"                               \
    "}\n"                                      \
    ".visible .entry vmm_check(\n"             \
    CUDA_KERNEL_PARAMETERS ",\n"               \
    "    .param .u64 count_)\n"                \
    "{\n"                                      \
    CUDA_KERNEL_REGISTERS                      \
    "    .reg .pred differs;\n"                \
    "    .reg .u32 found;\n"                   \
    "    .reg .u64 count, different;\n"        \
    CUDA_KERNEL_START                          \
    "    ld.param.u64 count, [count_];\n"      \
    "    cvta.to.global.u64 count, count;\n"   \
    "    mov.u64 different, 0;\n"              \
    "each_word:\n"                             \
    "    setp.lt.u64 more, index, words;\n"    \
    "    @!more bra last;\n"                   \
    CUDA_KERNEL_MIX                            \
    "    shl.b64 place, index, 2;\n"           \
    "    add.u64 place, place, address;\n"     \
    "    ld.global.u32 found, [place];\n"      \
    "    setp.ne.u32 differs, found, mix;\n"   \
    "    @differs add.u64 different, different, 1;\n" \
    "    add.u64 index, index, step;\n"        \
    "    bra each_word;\n"                     \
    "last:\n"                                  \
    CUDA_KERNEL_TAIL                           \
    "    ld.global.u8 found, [place];\n"       \
    "    and.b32 mix, mix, 0xFF;\n"            \
    "    setp.ne.u32 differs, found, mix;\n"   \
    "    @differs add.u64 different, different, 1;\n" \
    "done:\n"                                  \
    "    setp.eq.u64 more, different, 0;\n"    \
    "    @more bra quiet;\n"                   \
    "    red.global.add.u64 [count], different;\n" \
    "quiet:\n"                                 \
    "    ret;\n"                               \
    "}\n"                                      \
    ".visible .entry vmm_delay(\n"             \
    "    .param .u64 ns_)\n"                   \
    "{\n"                                      \
    "    .reg .pred more;\n"                   \
    "    .reg .u64 ns, start, now;\n"          \
    "    ld.param.u64 ns, [ns_];\n"            \
    "    mov.u64 start, %globaltimer;\n"       \
    "again:\n"                                 \
    "    mov.u64 now, %globaltimer;\n"         \
    "    sub.u64 now, now, start;\n"           \
    "    setp.lt.u64 more, now, ns;\n"         \
    "    @more bra again;\n"                   \
    "    ret;\n"                               \
    "}\n"

/* clang-format on */

#endif
