/* Names of blocks: see names.h. */
#include "lane/names.h"
#include "base/error.h"
#include "base/hostmem.h"

#include <stdio.h>

struct name {
    struct map_node node; /* first member; its key is the block's address */
    char text[VMM_NAME_BYTES];
};

static void name_free(struct map_node *node)
{
    vmm__host_free(node, sizeof(struct name));
}

void vmm__names_init(struct block_names *names)
{
    *names = (struct block_names){ .map = { .count = 0 } };
    vmm__mutex_init(&names->lock);
}

void vmm__names_fini(struct block_names *names)
{
    vmm__map_clear(&names->map, name_free);
    vmm__mutex_fini(&names->lock);
}

static struct name *name_find(const struct block_names *names, uint64_t address)
{
    return (struct name *)vmm__map_find(&names->map, address);
}

static struct name *name_make(struct block_names *names, uint64_t address)
{
    struct name *name = vmm__host_alloc(1, sizeof *name);
    if (name == NULL)
        return NULL;
    name->node.key = address;
    vmm__map_add(&names->map, &name->node);
    return name;
}

vmm_status vmm__names_set(struct block_names *names, uint64_t address, const char *text)
{
    vmm__mutex_lock(&names->lock);
    struct name *name = name_find(names, address);
    if (name == NULL)
        name = name_make(names, address);
    if (name != NULL) {
        (void)snprintf(name->text, sizeof name->text, "%s", text);
        vmm__line_make(name->text);
    }
    vmm__mutex_unlock(&names->lock);
    return name != NULL ? VMM_OK
                        : vmm__error(VMM_ERR_HOST_OOM, "vmm_name: no host memory for the name");
}

void vmm__names_drop(struct block_names *names, uint64_t address)
{
    vmm__mutex_lock(&names->lock);
    struct name *name = name_find(names, address);
    if (name != NULL)
        vmm__map_remove(&names->map, &name->node);
    vmm__mutex_unlock(&names->lock);
    vmm__host_free(name, sizeof *name);
}

void vmm__names_move(struct block_names *names, uint64_t from, uint64_t to)
{
    vmm__mutex_lock(&names->lock);
    struct name *name = name_find(names, from);
    if (name != NULL) {
        vmm__map_remove(&names->map, &name->node);
        name->node.key = to;
        vmm__map_add(&names->map, &name->node);
    }
    vmm__mutex_unlock(&names->lock);
}

void vmm__names_read(struct block_names *names, uint64_t address, char text[VMM_NAME_BYTES])
{
    vmm__mutex_lock(&names->lock);
    const struct name *name = name_find(names, address);
    (void)snprintf(text, VMM_NAME_BYTES, "%s", name == NULL ? "" : name->text);
    vmm__mutex_unlock(&names->lock);
}
