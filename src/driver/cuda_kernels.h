/*
 * The kernels of the cuda driver's fill, check and delay, as PTX text that any driver since CUDA 9
 * turns into code for its own device.
 *
 *   vmm_fill(address, words, tail, seed): each 32-bit word of the block becomes the mix of seed and
 *       its index; the tail, the up to 3 bytes after the last whole word, gets the low bytes of the
 *       word that would stand there.
 *   vmm_check(address, words, tail, seed, count): adds to the 64-bit *count the words, and bytes of
 *       the tail, that are not what vmm_fill wrote.
 *
 *   vmm_delay(ns): one thread that reads the device's clock until ns nanoseconds have passed.
 *
 * The first two take any grid of one dimension: a thread starts at its number in the grid and steps by the
 * size of the grid. Threads 0 to 2 also look after one byte of the tail each. A thread of vmm_check
 * that found nothing does not touch *count.
 * The mix is seed + low(index) * A + high(index) * B, with its upper bits folded into the lower
 * ones: for one index it is different for any two seeds, and for one seed for any two indexes below
 * 2^32.
 *
 * May be included by: cuda_work.c.
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

/* first: the number of the thread in the grid; step: the size of the grid. */
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

/* mix: the word of the pattern at index. */
#define CUDA_KERNEL_MIX                        \
    "    cvt.u32.u64 low, index;\n"            \
    "    shr.u64 wide, index, 32;\n"           \
    "    cvt.u32.u64 high, wide;\n"            \
    "    mad.lo.u32 mix, low, 0x85EBCA77, seed;\n" \
    "    mad.lo.u32 mix, high, 0xC2B2AE3D, mix;\n" \
    "    shr.u32 folded, mix, 15;\n"           \
    "    xor.b32 mix, mix, folded;\n"

/* Jumps to `done` in threads that have no byte of the tail; else mix starts with that byte. */
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
