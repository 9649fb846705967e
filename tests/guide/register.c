/* A network card gets the memory of a block. */
#define _DEFAULT_SOURCE
#include "gpu.h"

#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 20 << 20, CARDS_MOST = 16, SENT = 7 };

/* ---- Stands for the library of the card --------------------------------------------------------- */

struct region {
    void *seen; /* the memory, as the card has it; NULL: only counted */
    size_t bytes;
};

/* ibv_reg_dmabuf_mr(pd, 0, bytes, address, fd, access); a file of the host driver can be mapped. */
static struct region *card_register(uint64_t address, size_t bytes, int fd)
{
    static struct region regions[CARDS_MOST];
    static unsigned count;
    void *seen = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    EXPECT(count < CARDS_MOST && address != 0);
    regions[count] = (struct region){ seen == MAP_FAILED ? NULL : seen, bytes };
    return &regions[count++];
}

/* ibv_dereg_mr(region) */
static void card_deregister(struct region *region)
{
    if (region->seen != NULL)
        EXPECT(munmap(region->seen, region->bytes) == 0);
}

/* ---- The recipe ---------------------------------------------------------------------------------- */

/* [register] */
/* A block that a network card may use, and its registrations: one for each part of its memory. */
struct registered {
    vmm_cache *cache;
    char *block;
    unsigned count;
    struct region *regions[CARDS_MOST];
    vmm_status status; /* of the part that failed */
};

static int part_register(void *context, const vmm_part *part)
{
    int fd;
    struct registered *to = context;
    size_t offset = part->address - (uint64_t)(uintptr_t)to->block;
    to->status = VMM_ERR_UNSUPPORTED;
    if (to->count == CARDS_MOST)
        return 1; /* ends the walk */
    to->status = vmm_dmabuf_export(to->cache, to->block, offset, part->bytes, &fd);
    if (to->status != VMM_OK)
        return 1;
    to->regions[to->count++] = card_register(part->address, part->bytes, fd);
    close(fd); /* the registration has the memory */
    return 0;
}

static vmm_status block_register(struct registered *to)
{
    check(vmm_pin(to->cache, to->block)); /* before: from now on the parts stay */
    check(vmm_parts_walk(to->cache, to->block, part_register, to));
    return to->status;
}

/* After the last transfer, and before vmm_free() or a sleep of the pool. */
static void block_deregister(struct registered *to)
{
    while (to->count > 0)
        card_deregister(to->regions[--to->count]);
    check(vmm_unpin(to->cache, to->block));
}
/* [end] */

int main(void)
{
    void *block;
    vmm_pool *pool;
    vmm_pool_options options = VMM_POOL_OPTIONS_INIT;
    struct registered to = { .status = VMM_OK };
    check(vmm_create(NULL, &to.cache));
    options.shareable = VMM_SHARE_MACHINE; /* else the host driver has no file for the memory */
    check(vmm_pool_create(to.cache, &options, &pool));
    check(vmm_alloc_from(pool, BYTES, NULL, &block));
    gpu_fill(block, SENT, BYTES, NULL);
    check(vmm_wait(to.cache)); /* the card does not wait for streams */
    to.block = block;
    vmm_status status = block_register(&to);
    if (status == VMM_ERR_UNSUPPORTED) /* a GPU without dma-bufs: the line says why */
        (void)printf("%s\n", vmm_last_error());
    else
        check(status);
    for (unsigned i = 0; i < to.count && to.regions[i]->seen != NULL; i++)
        EXPECT(*(char *)to.regions[i]->seen == SENT);
    block_deregister(&to);
    check(vmm_free(to.cache, block));
    check(vmm_destroy(to.cache));
    return 0;
}
