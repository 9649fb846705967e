/* A treap of intrusive nodes: see ordered.h. */
#include "fragtest/policies/ordered.h"

#include "fragtest/trace/random.h"

#include <stdbool.h>
#include <stddef.h>

static bool node_is_below(const struct ordered_node *node, uint64_t major, uint64_t minor)
{
    return node->major < major || (node->major == major && node->minor < minor);
}

/* Parts a subtree into what is below (major, minor) and the rest. */
static void subtree_split(struct ordered_node *root, uint64_t major, uint64_t minor,
                          struct ordered_node **below, struct ordered_node **rest)
{
    while (root != NULL) {
        if (node_is_below(root, major, minor)) {
            *below = root;
            below = &root->right;
            root = root->right;
        } else {
            *rest = root;
            rest = &root->left;
            root = root->left;
        }
    }
    *below = NULL;
    *rest = NULL;
}

/* Joins two subtrees, all of `low` below all of `high`, into *out. */
static void subtree_join(struct ordered_node *low, struct ordered_node *high,
                         struct ordered_node **out)
{
    while (low != NULL && high != NULL) {
        if (low->priority >= high->priority) {
            *out = low;
            out = &low->right;
            low = low->right;
        } else {
            *out = high;
            out = &high->left;
            high = high->left;
        }
    }
    *out = low != NULL ? low : high;
}

void ordered_insert(struct ordered *set, struct ordered_node *node)
{
    struct ordered_node **link = &set->root;

    node->priority = random_next(&set->seed);
    while (*link != NULL && (*link)->priority >= node->priority) {
        bool right = node_is_below(*link, node->major, node->minor);
        link = right ? &(*link)->right : &(*link)->left;
    }
    subtree_split(*link, node->major, node->minor, &node->left, &node->right);
    *link = node;
}

void ordered_remove(struct ordered *set, struct ordered_node *node)
{
    struct ordered_node **link = &set->root;

    while (*link != node) {
        bool right = node_is_below(*link, node->major, node->minor);
        link = right ? &(*link)->right : &(*link)->left;
    }
    subtree_join(node->left, node->right, link);
}

/* The last node that is below the pair, or the first that is not. */
static struct ordered_node *node_find(const struct ordered *set, uint64_t major, uint64_t minor,
                                      bool below)
{
    struct ordered_node *best = NULL;
    struct ordered_node *node = set->root;

    while (node != NULL) {
        bool is_below = node_is_below(node, major, minor);
        best = is_below == below ? node : best;
        node = is_below ? node->right : node->left;
    }
    return best;
}

struct ordered_node *ordered_at_least(const struct ordered *set, uint64_t major, uint64_t minor)
{
    return node_find(set, major, minor, false);
}

struct ordered_node *ordered_below(const struct ordered *set, uint64_t major, uint64_t minor)
{
    return node_find(set, major, minor, true);
}

struct ordered_node *ordered_first(const struct ordered *set)
{
    return ordered_at_least(set, 0, 0);
}

struct ordered_node *ordered_after(const struct ordered *set, const struct ordered_node *node)
{
    uint64_t minor = node->minor + 1;
    return ordered_at_least(set, minor == 0 ? node->major + 1 : node->major, minor);
}
