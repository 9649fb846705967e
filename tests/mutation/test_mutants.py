"""The faults that mutants.py makes, and the places that it does not touch."""
import unittest

import mutants

CODE = '''\
/* limit < 3 */
#define MOST (1 + 2)
enum { SIZES = 4 };

static vmm_status taken(struct pool *pool, uint64_t bytes)
{
    VMM_ASSERT_HELD(&pool->lock);
    const char *text = "a < b && 1";
    if (bytes > pool->most && pool->open)
        return vmm__error(VMM_ERR_DEVICE_OOM, "%d of %d", bytes + 1, 2);
    pool->bytes += bytes; /* 7 */
    pool_note(pool);
    pool->seen = true; /* hint: read before the next call only */
    return VMM_OK;
}
'''


class Faults(unittest.TestCase):
    def setUp(self):
        self.found = mutants.of_file("src/pool.c", CODE)

    def lines(self, kind):
        return sorted((mutant.line, mutant.after.strip()) for mutant in self.found if mutant.kind == kind)

    def test_relations_logic_and_conditions(self):
        self.assertEqual(self.lines("relation"), [(9, "if (bytes >= pool->most && pool->open)")])
        self.assertEqual(self.lines("logic"), [(9, "if (bytes > pool->most || pool->open)")])
        self.assertEqual(self.lines("condition"), [(9, "if (!(bytes > pool->most && pool->open))")])

    def test_statements_and_steps(self):
        self.assertEqual(self.lines("deleted"), [(11, "; /* 7 */"), (12, ";")])
        self.assertEqual(self.lines("step"), [(11, "pool->bytes -= bytes; /* 7 */")])

    def test_statuses(self):
        self.assertEqual(self.lines("status"), [
            (10, 'return vmm__error(VMM_OK, "%d of %d", bytes + 1, 2);'), (14, "return VMM_ERR_INTERNAL;")])

    def test_nothing_outside_of_functions_in_texts_messages_and_hints(self):
        self.assertEqual(sorted({mutant.line for mutant in self.found}), [9, 10, 11, 12, 14])
        self.assertEqual(self.lines("number") + self.lines("sum") + self.lines("truth"), [])

    def test_each_changes_one_place(self):
        for mutant in self.found:
            changed = mutant.applied(CODE).splitlines()
            differ = [number for number, (old, new) in enumerate(zip(CODE.splitlines(), changed), 1) if old != new]
            self.assertEqual(differ, [mutant.line])


unittest.main()
