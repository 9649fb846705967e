/*
 * An exhaustive model of streams, chunks, views and epochs, judged by the sim driver.
 *
 * A view is a row of second mappings, at consecutive addresses, of chunks with free memory. A block
 * in a view occupies granules of several chunks, which stay reachable at their homes, and perhaps
 * in other views. The model shows that the rules of model.h are enough to keep that safe, and that
 * each of them is needed:
 *
 *   No byte is reachable by two owners out of order. No address is unmapped while work may use it.
 *   No block loses its contents. The driver refuses no call.
 *
 * What exists: three streams; three chunks of two granules, each with a home mapping and an owner;
 * up to two views of one to three chunks; blocks of one to six granules, at home or in a view; one
 * captured graph. Each granule has a record "used" and the stamp of its last free: a stream and the
 * number of its event. Each mapping in a view has such a stamp.
 *
 * What happens: the operations of model.h. rules.c decides from the records which of them are
 * allowed, world.c performs them: each allocation fills its block, each use checks and fills it, on
 * the block's stream or another one, and views are mapped and unmapped. The sim driver follows the
 * bytes of each handle, whatever address they are used through, with a vector clock for each piece
 * of work. So a violation is found whenever it could happen, not only if the timing is unlucky.
 * At the end of each sequence the graph is launched and every live block is checked once more.
 *
 * All sequences of six operations are covered. They begin with one, two or three streams that own
 * the chunks; every other beginning differs in names only. Sequences that reach the same state are
 * merged: equal records, and equal clocks, writers, readers and users in the driver, up to names
 * and reflection (canonical.c). One of them is followed, the driver's state is made again by
 * replaying it, and each operation that the rules allow there is executed. The search is
 * breadth-first, so a failing sequence that it prints is a shortest one.
 *
 *   views_model                   the complete search; fails if a sequence fails
 *   views_model --depth 7         longer sequences
 *   views_model --without RULE    with a rule switched off; fails if no sequence fails, else prints
 *                                 a shortest one
 *   views_model --compare         the search with and without merging: both must find as many
 *                                 sequences, or fail after as many operations; also with --without
 *   ctest -L model                all of these
 *
 * There are 465 949 426 sequences of six operations. They lead through 173 939 states; 3 115 294
 * sequences are executed, in about 12 seconds on one busy core (Release). Five operations take 2
 * seconds. Seven take two minutes: of 8 750 058 085 sequences not one fails.
 *
 * What the model leaves out:
 *  - Threads: an operation is one step, except that a view may exist half, mapped without access.
 *  - Choices of policy. Any free run, idle chunk or view may be taken, in any order; but a block of
 *    one granule is always at home, the block of a new view reaches from its first chunk to its
 *    last, and a new view's chunks belong to one stream.
 *  - When events are recorded. Here it is at each free, the earliest moment at which the cache may.
 *    They pass one by one or all at once.
 *  - Waits of one stream for another by the cache (VMM_REUSE_STREAM_WAIT), and waits of the host.
 *  - A second use of one block by the same other stream; a graph pool with more than one block, or
 *    one that is dropped; splitting a chunk, which is a trim and two creates; relocation and sleep,
 *    which need that no work is under way.
 */
#include "model.h"

#include "base/hostmem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int usage(void)
{
    (void)fprintf(stderr, "usage: views_model [--depth N] [--without RULE] [--compare]\nrules:\n");
    for (unsigned i = 0; i < RULES; i++)
        (void)fprintf(stderr, "  %-26s%s\n", rule_name((enum rule)i), rule_text((enum rule)i));
    return 2;
}

static bool rule_find(const char *name, struct rules *rules)
{
    for (unsigned i = 0; i < RULES; i++) {
        if (strcmp(name, rule_name((enum rule)i)) == 0)
            return rules->off[i] = true;
    }
    return false;
}

static bool depth_read(const char *text, unsigned *depth)
{
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    *depth = (unsigned)number;
    return *text >= '0' && *text <= '9' && *end == '\0' && number >= 1 && number <= DEPTH_MOST;
}

static void print_counts(const struct search *search)
{
    uint64_t states = 0;
    for (unsigned i = 0; i < search->depth; i++)
        states += search->states[i];
    (void)printf("%u operations: %.0f sequences, %llu states, %llu sequences executed\n",
                 search->depth, search->sequences, (unsigned long long)states,
                 (unsigned long long)search->executed);
    for (unsigned i = 0; i < search->depth; i++)
        (void)printf("  new after %u: %llu\n", i, (unsigned long long)search->states[i]);
    for (unsigned i = OPERATION_BEGIN + 1; i < OPERATIONS; i++)
        (void)printf("  %-11s%llu\n", operation_name((enum operation_kind)i),
                     (unsigned long long)search->kinds[i]);
}

/* From four operations on, the search must reach every kind; a misuse is refused by its rule. */
static bool kinds_reached(const struct search *search)
{
    bool has_all = true;
    for (unsigned i = OPERATION_BEGIN + 1; i < OPERATIONS && search->depth >= 4; i++) {
        if (i == OPERATION_MISUSE || search->kinds[i] > 0)
            continue;
        (void)printf("never reached: %s\n", operation_name((enum operation_kind)i));
        has_all = false;
    }
    return has_all;
}

static int run_complete(struct search *search)
{
    if (!search_run(search))
        return 2;
    if (search->failing > 0) {
        (void)printf("fails after %u operations:\n", search->failing);
        search_print_path(search);
        return 1;
    }
    print_counts(search);
    return kinds_reached(search) ? 0 : 1;
}

static int run_control(struct search *search, const char *rule)
{
    if (!search_run(search))
        return 2;
    if (search->failing == 0) {
        (void)printf("without %s: no sequence of %u operations fails\n", rule, search->depth);
        return 1;
    }
    (void)printf("without %s: fails after %u operations\n", rule, search->failing);
    search_print_path(search);
    return 0;
}

static int run_compare(const struct search *search)
{
    struct search merged = *search;
    struct search every = *search;
    every.merges_nothing = true;
    if (!search_run(&merged) || !search_run(&every))
        return 2;
    uint64_t last = every.executed;
    for (unsigned i = 1; i < every.depth; i++)
        last -= every.states[i];
    if (merged.failing > 0 || every.failing > 0) {
        (void)printf("fails after %u operations, and %u with merging\n", every.failing,
                     merged.failing);
        return merged.failing == every.failing ? 0 : 1;
    }
    (void)printf("%u operations: %llu sequences, and %.0f with merging\n", search->depth,
                 (unsigned long long)last, merged.sequences);
    return (double)last == merged.sequences ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct search search = { .depth = 6 };
    const char *rule = NULL;
    bool compares = false;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--compare") == 0)
            compares = true;
        else if (has_value && strcmp(argv[i], "--depth") == 0 &&
                 depth_read(argv[i + 1], &search.depth))
            i++;
        else if (has_value && strcmp(argv[i], "--without") == 0 &&
                 rule_find(argv[i + 1], &search.rules))
            rule = argv[++i];
        else
            return usage();
    }
    int result = compares       ? run_compare(&search)
                 : rule != NULL ? run_control(&search, rule)
                                : run_complete(&search);
    if (vmm__host_outstanding() == 0)
        return result;
    (void)printf("the driver left host memory\n");
    return 1;
}
