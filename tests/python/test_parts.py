"""parts(): the physical memory behind a tensor."""
from support import LibraryTest, MIB, ProgramTest

import vmmcache
from vmmcache import VmmError


class PartsTest(LibraryTest):
    def test_parts_add_up_to_the_block(self):
        block = self.alloc(20 * MIB)
        parts = vmmcache.parts(block, 0)
        self.assertEqual(parts[0]["address"], block)
        self.assertGreaterEqual(sum(part["bytes"] for part in parts), 20 * MIB)
        for part in parts:
            self.assertGreater(part["handle"], 0)
            self.assertLessEqual(part["offset"] + part["bytes"], part["handle_bytes"])

    def test_what_is_no_block_is_told(self):
        block = self.alloc(4 * MIB)
        with self.assertRaisesRegex(VmmError, "it is byte 512 of the block"):
            vmmcache.parts(block + 512, 0)


class TensorTest(ProgramTest):
    def test_a_tensor_has_the_parts_of_its_block(self):
        self.succeeds("""if True:
            import torch, vmmcache
            vmmcache.install()
            tensor = torch.empty(4 << 20)
            assert vmmcache.parts(tensor) == vmmcache.parts(tensor.data_ptr(), 0) != []
            """)
