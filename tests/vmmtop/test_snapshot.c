/* A snapshot of hostile bytes: it is refused, or everything in it can be used. */
#define _GNU_SOURCE
#include "segment_support.h"

#include <stdlib.h>

static struct snapshot_error error;

/* Reads all that a snapshot has. */
static uint64_t snapshot_touch(const struct snapshot *snapshot)
{
    uint64_t sum = strlen(snapshot->head->program) + strlen(snapshot->head->library);
    for (uint32_t i = 0; i < snapshot->head->caches; i++) {
        const struct snapshot_cache *cache = &snapshot->caches[i];
        sum += strlen(cache->cache->driver) + strlen(cache->cache->device_name);
        for (uint32_t j = 0; j < cache->cache->pools; j++)
            sum += strlen(cache->pools[j].name) + cache->pools[j].stats.allocations.freed;
        for (uint32_t j = 0; j < cache->cache->lanes; j++)
            sum +=
                cache->pools[cache->lanes[j].pool].stats.allocations.freed + cache->lanes[j].blocks;
    }
    return sum;
}

/* A copy of exactly these bytes, so that sanitizers see a read beyond them. */
static enum snapshot_outcome outcome_of(const void *bytes, size_t count)
{
    struct snapshot snapshot;
    void *copy = malloc(count + (count == 0));
    assert_non_null(copy);
    memcpy(copy, bytes, count);
    enum snapshot_outcome outcome = snapshot_make(&snapshot, copy, count, &error);
    free(copy);
    if (outcome == SNAPSHOT_OK)
        (void)snapshot_touch(&snapshot);
    else
        assert_null(snapshot.head);
    snapshot_free(&snapshot);
    return outcome;
}

static void sample_refuse(const struct sample *sample, const char *why)
{
    struct sample sealed = *sample;
    sample_seal(&sealed);
    assert_int_equal(outcome_of(&sealed, sizeof sealed), SNAPSHOT_WRONG);
    assert_string_equal(error.text, why);
}

/* A name may have been cut within a character. */
TEST(texts_are_characters)
{
    struct sample sample = sample_make();
    struct snapshot snapshot;
    strcpy(sample.first_pools[0].name, "a\xC3\xA4\xFF\xED\xA0\x80 \xC2\x9B"
                                       "2J\n\xE6\xBC");
    sample_seal(&sample);
    assert_int_equal(snapshot_make(&snapshot, &sample, sizeof sample, &error), SNAPSHOT_OK);
    assert_string_equal(snapshot.caches[0].pools[0].name, "a\xC3\xA4???? ??2J???");
    snapshot_free(&snapshot);
}

TEST(a_whole_segment_is_read)
{
    struct sample sample = sample_make();
    struct snapshot snapshot;
    assert_int_equal(snapshot_make(&snapshot, &sample, sizeof sample, &error), SNAPSHOT_OK);
    assert_int_equal(snapshot.head->caches, 2);
    assert_string_equal(snapshot.caches[0].pools[0].name, "default");
    assert_int_equal(snapshot.caches[0].lanes[2].allocated_bytes, 3 * MIB);
    assert_ptr_equal(snapshot_find(&snapshot, 2), &snapshot.caches[1]);
    assert_null(snapshot_find(&snapshot, 3));
    snapshot_free(&snapshot);
    assert_null(snapshot_find(&snapshot, 2));
}

/* Also with what an earlier, longer state left behind it. */
TEST(bytes_after_the_segment_do_not_count)
{
    char bytes[sizeof(struct sample) + 1000];
    struct sample sample = sample_make();
    memset(bytes, 0xEE, sizeof bytes);
    memcpy(bytes, &sample, sizeof sample);
    assert_int_equal(outcome_of(bytes, sizeof bytes), SNAPSHOT_OK);
}

TEST(a_cut_segment_is_refused)
{
    struct sample sample = sample_make();
    for (size_t count = 0; count < sizeof sample; count++) {
        assert_int_equal(outcome_of(&sample, count), SNAPSHOT_WRONG);
        assert_string_equal(error.text, "it is cut");
    }
}

TEST(a_changed_bit_is_noticed)
{
    struct sample sample = sample_make();
    unsigned char *bytes = (unsigned char *)&sample;
    for (size_t bit = 0; bit < 8 * sizeof sample; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_int_not_equal(outcome_of(&sample, sizeof sample), SNAPSHOT_OK);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    sample.second.stats.allocations.freed++;
    assert_int_equal(outcome_of(&sample, sizeof sample), SNAPSHOT_TORN);
    assert_string_equal(error.text, "its checksum is wrong");
}

/* A forged segment, whose checksum is right. */
TEST(what_does_not_add_up_is_refused)
{
    static const char records[] = "its records do not add up";
    static const char sizes[] = "its structures have other sizes than those of this vmmtop";
    static const char whole[] = "its size is no size of a segment";
    const struct sample good = sample_make();
    struct sample bad;
#define REFUSE(change, why)                                                                        \
    bad = good;                                                                                    \
    bad.change;                                                                                    \
    sample_refuse(&bad, why)
    REFUSE(head.magic[0] = 'V', "not a segment of vmmcache");
    REFUSE(head.version = 1, "format 1; this vmmtop reads format 3");
    REFUSE(head.head_bytes++, sizes);
    REFUSE(head.cache_bytes = 0, sizes);
    REFUSE(head.pool_bytes--, sizes);
    REFUSE(head.lane_bytes = UINT32_MAX, sizes);
    REFUSE(head.bytes = 8, whole);
    REFUSE(head.bytes++, whole);
    REFUSE(head.bytes = UINT64_MAX, whole);
    REFUSE(head.bytes = MONITOR_MOST_BYTES, "it is cut");
    REFUSE(head.caches = 1, records);
    REFUSE(head.caches = 3, records);
    REFUSE(head.caches = UINT32_MAX, records);
    REFUSE(first.pools = 0, records);
    REFUSE(first.pools = UINT32_MAX, records);
    REFUSE(first.lanes = UINT32_MAX, records);
    REFUSE(second.lanes = 1, records);
    REFUSE(first_lanes[1].pool = 2, records);
    REFUSE(first_lanes[1].pool = UINT32_MAX, records);
}

TEST(texts_end_and_have_no_control_characters)
{
    struct sample sample = sample_make();
    struct snapshot snapshot;
    memset(sample.head.program, 'x', sizeof sample.head.program);
    memset(sample.first_pools[1].name, '\033', sizeof sample.first_pools[1].name);
    memset(sample.first.device_name, '\n', sizeof sample.first.device_name);
    sample_seal(&sample);
    assert_int_equal(snapshot_make(&snapshot, &sample, sizeof sample, &error), SNAPSHOT_OK);
    assert_int_equal(strlen(snapshot.head->program), MONITOR_NAME_BYTES - 1);
    assert_int_equal(strspn(snapshot.caches[0].pools[1].name, "?"), MONITOR_NAME_BYTES - 1);
    assert_int_equal(strspn(snapshot.caches[0].cache->device_name, "?"), MONITOR_DEVICE_BYTES - 1);
    snapshot_free(&snapshot);
}

/* Random changes with a right checksum. */
TEST(forged_segments_never_lead_outside)
{
    uint64_t seed = 1;
    unsigned accepted = 0;
    for (unsigned round = 0; round < 200000; round++) {
        struct sample sample = sample_make();
        for (unsigned change = 0; change <= round % 3; change++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
            size_t at = (size_t)(seed >> 33) % (sizeof sample / 4) * 4;
            uint32_t value = (uint32_t)(seed >> 20) % ((seed >> 60) < 8 ? 5 : UINT32_MAX);
            memcpy((char *)&sample + at, &value, sizeof value);
        }
        sample_seal(&sample);
        accepted += outcome_of(&sample, sizeof sample) == SNAPSHOT_OK;
    }
    assert_true(accepted > 1000);
}
