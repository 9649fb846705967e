/*
 * An allocation policy: turns the requests of streams into driver calls.
 *
 * All of them get memory through the counted vmm__driver_*() calls only, so that the replayer reads
 * reserved bytes, calls and time from the driver, the same way for each.
 * May be called by: replayer and tests. Locks: none (one thread).
 */
#ifndef FRAGTEST_POLICY_H
#define FRAGTEST_POLICY_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct policy;

/* Settings of a policy beyond the limit: fields of vmm_config, zero for the defaults. */
struct policy_settings {
    uint32_t footprint_permille;
    vmm_reuse reuse;
    vmm_switch compaction;
};

/* How the settings are written; the indices are the values. */
#define POLICY_REUSE_WORDS      4
#define POLICY_COMPACTION_WORDS 3
extern const char *const policy_reuse_words[POLICY_REUSE_WORDS];
extern const char *const policy_compaction_words[POLICY_COMPACTION_WORDS];

struct policy_setup {
    struct driver *driver;
    uint64_t limit_bytes; /* most physical memory to hold; 0: none */
    const vmm_stream *streams;
    uint32_t stream_count;
    struct policy_settings settings;
};

/* The limit that the text of --memory means, a size or a share of `whole_bytes`; 0: none, for NULL. */
uint64_t policy_limit(const char *memory, uint64_t whole_bytes);

/* Where a block is, and what the policy finds it again by. */
struct policy_place {
    uint64_t address;
    void *token;
};

struct policy_ops {
    const char *name;
    bool has_settings;                 /* else it ignores the setup's */
    const struct pytorch_rules *rules; /* of PyTorch's policies: see pytorch_model.h */

    /* Makes a policy of these ops. Copies the setup; `streams` must outlive the policy. */
    vmm_status (*open)(const struct policy_ops *ops, const struct policy_setup *setup,
                       struct policy **out);
    vmm_status (*alloc)(struct policy *policy, uint64_t bytes, uint32_t stream,
                        struct policy_place *out);
    vmm_status (*free)(struct policy *policy, struct policy_place place);

    /* Declares that another stream uses a block. NULL: the policy has no such call. */
    vmm_status (*record)(struct policy *policy, struct policy_place place, uint32_t stream);

    /* Gives back all memory that it can; it may move live bytes. NULL: the policy has no trim. */
    vmm_status (*trim)(struct policy *policy);

    /* Gives back memory by moving live bytes; the device is idle. NULL: the policy cannot. */
    vmm_status (*compact)(struct policy *policy);

    /* NULL: the policy has no statistics. */
    vmm_status (*stats)(struct policy *policy, vmm_stats *out);

    /* After alloc found no memory: one line on why, for a person. NULL: the last error says it. */
    void (*explain)(struct policy *policy, uint64_t bytes, uint32_t stream, char *text,
                    size_t capacity);

    /* Waits for the device and gives everything back. Every block must be free. */
    vmm_status (*close)(struct policy *policy);
};

/* Every policy's own struct begins with this. */
struct policy {
    const struct policy_ops *ops;
};

extern const struct policy_ops policy_block_splitting;
extern const struct policy_ops policy_expandable;
extern const struct policy_ops policy_vmmcache;

#define POLICY_COUNT 3

/* The policies in the order in which they are shown, weakest first. */
const struct policy_ops *policy_at(unsigned index);

#endif
