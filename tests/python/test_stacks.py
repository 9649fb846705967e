"""Stacks of Python and their numbers."""
import threading
import time
import unittest
import unittest.mock

from support import ProgramTest, run_python
from vmmcache import _stacks


def ask():
    return _stacks.number()


class StacksTest(unittest.TestCase):
    def setUp(self):
        _stacks.forget()

    def test_the_same_place_has_the_same_number(self):
        numbers = [ask() for _ in range(3)]
        self.assertEqual(len(set(numbers)), 1)
        self.assertNotEqual(numbers[0], 0)

    def test_other_places_have_other_numbers(self):
        first = ask()
        second = ask()
        self.assertNotEqual(first, second)

    def test_frames_are_innermost_first_with_their_lines(self):
        line = self.test_frames_are_innermost_first_with_their_lines.__code__.co_firstlineno + 2
        number = ask()
        frames = _stacks.frames(number)
        self.assertEqual([frame["name"] for frame in frames[:2]],
                         ["ask", "test_frames_are_innermost_first_with_their_lines"])
        self.assertEqual(frames[1]["line"], line)
        self.assertEqual(frames[1]["filename"], __file__)
        self.assertIs(frames, _stacks.frames(number))

    def test_number_0_has_no_frames(self):
        self.assertEqual(_stacks.frames(0), [])

    def test_deep_stacks_keep_their_innermost_frames(self):
        def deep(levels):
            return deep(levels - 1) if levels else ask()
        frames = _stacks.frames(deep(3 * _stacks.DEPTH))
        self.assertEqual(len(frames), _stacks.DEPTH)
        self.assertEqual(frames[0]["name"], "ask")

    def test_called_by_the_library_only_the_callers_are_in_it(self):
        frames = _stacks.frames(_stacks.CALLBACK())
        self.assertEqual(frames[0]["name"], "test_called_by_the_library_only_the_callers_are_in_it")

    def test_an_interrupt_reaches_the_program(self):
        def interrupt():
            raise KeyboardInterrupt
        with unittest.mock.patch.object(_stacks, "_getframe", interrupt):
            self.assertEqual(_stacks.number(), 0)
        with self.assertRaises(KeyboardInterrupt):
            time.sleep(20)

    def test_what_a_signal_handler_raises_reaches_the_program(self):
        code = """if True:
            import signal, sys, threading, time, vmmcache
            from support import alloc, free, MIB
            class Alarm(Exception):
                pass
            def ring(*_):
                raise Alarm
            signal.signal(signal.SIGALRM, ring)
            vmmcache.record_history(max_entries=100)
            for which in ('SIGALRM', 'SIGINT') * 40:
                try:
                    threading.Timer(0.002, signal.raise_signal, (getattr(signal, which),)).start()
                    start = time.monotonic()
                    while time.monotonic() - start < 2:
                        free(alloc(MIB))
                    sys.exit(which + ' was lost')
                except (Alarm, KeyboardInterrupt) as error:
                    assert isinstance(error, Alarm) == (which == 'SIGALRM')
            """
        status, said = run_python(code)
        self.assertEqual((status, said), (0, ""))

    def test_threads_agree_on_numbers(self):
        found, barrier = [], threading.Barrier(8)

        def work():
            barrier.wait()
            found.extend(ask() for _ in range(500))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(set(found)), 1)
        self.assertEqual(_stacks.frames(found[0])[0]["name"], "ask")

    def test_code_that_is_gone_stays_known(self):
        numbers = set()
        for value in range(50):
            scope = {"ask": ask}
            exec(compile(f"def made_{value}(): return ask()\nfound = made_{value}()", "made", "exec"), scope)
            numbers.add(scope["found"])
        names = {_stacks.frames(number)[1]["name"] for number in numbers}
        self.assertEqual(names, {f"made_{value}" for value in range(50)})


class EndTest(ProgramTest):
    def test_a_program_may_end_while_it_records(self):
        code = """if True:
            import threading, vmmcache
            from support import alloc, free, MIB
            vmmcache.record_history()
            def work():
                while True:
                    free(alloc(MIB))
            for _ in range(4):
                threading.Thread(target=work, daemon=True).start()
            blocks = [alloc(MIB) for _ in range(100)]
            """
        for _ in range(3):
            self.succeeds(code, fake=False)

    def test_a_child_after_fork_ends_by_itself(self):
        code = """if True:
            import os, sys, threading, warnings, vmmcache
            from support import alloc, free, MIB
            warnings.simplefilter('ignore')
            vmmcache.record_history(max_entries=1000)
            go_on = True
            def work():
                while go_on:
                    free(alloc(MIB))
            threads = [threading.Thread(target=work) for _ in range(3)]
            for thread in threads:
                thread.start()
            for _ in range(5):
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            go_on = False
            """
        self.succeeds(code, fake=False)


    def test_memory_may_run_out_after_the_program_has_ended(self):
        """The C library's on_exit() calls its function with the status of exit, here: the bytes."""
        code = """if True:
            import ctypes, sys, vmmcache
            from vmmcache import _config, _library
            _config.configure(limit='2MiB', pressure=lambda size: False)
            vmmcache.on_out_of_memory(lambda *what: None)
            vmmcache.record_history()
            library = _library.load()
            while library.vmm_torch_try_alloc(7, 0, None):
                pass
            ctypes.CDLL(None).on_exit(library.vmm_torch_try_alloc, None)
            class Told:
                def __del__(self, print=print):
                    print('gone')
            told = Told()
            sys.exit(7)
            """
        status, said = run_python(code)
        self.assertEqual((status, said), (7, "gone\n"))

    def test_a_child_after_fork_finds_no_lock_held(self):
        code = """if True:
            import os, sys, threading, vmmcache
            from support import alloc
            alloc(1)
            vmmcache.on_out_of_memory(print)
            sys.setswitchinterval(1e-6)
            go_on = True
            def work():
                while go_on:
                    vmmcache.memory_stats(0)
            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for _ in range(8):
                child = os.fork()
                if child == 0:
                    vmmcache.memory_stats(0)
                    sys.exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            go_on = False
            """
        self.succeeds(code, fake=False)


if __name__ == "__main__":
    unittest.main()
